#include "cpu/weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cpu/tile.h"
#include "model/block_chunks.h"

namespace oj::cpu {

namespace {

// The four codes of one step, one a byte.
uint32_t step_codes(const CodeChunk& chunk, int step) {
    uint32_t codes;
    std::memcpy(&codes, chunk.codes + 4 * step, sizeof codes);
    return codes;
}

void put_step(uint8_t* plane, int row, uint32_t bytes) {
    std::memcpy(plane + 4 * row, &bytes, sizeof bytes);
}

void put_codes(const TileFormat& format, const CodeChunk& chunk, int row, uint8_t* codes) {
    if (format.code_bits == 8) {
        for (int step = 0; step < steps; ++step) {
            put_step(codes + 64 * step, row, step_codes(chunk, step));
        }
        return;
    }
    for (int i = 0; i < steps / 2; ++i) {
        uint32_t low = step_codes(chunk, 2 * i) & 0x0f0f0f0fu;
        uint32_t high = step_codes(chunk, 2 * i + 1) & 0x0f0f0f0fu;
        put_step(codes + 64 * i, row, low | high << 4);
    }
}

// One bit: plane bit `step`. Two bits: the first plane has steps 0..3, two bits each.
void put_high_bits(const TileFormat& format, const CodeChunk& chunk, int row, uint8_t* high) {
    uint32_t planes[2] = {};
    for (int step = 0; step < steps; ++step) {
        uint32_t bits = (step_codes(chunk, step) >> 4) & 0x0f0f0f0fu;
        if (format.high_bits == 1) {
            planes[0] |= bits << step;
        } else {
            planes[step / 4] |= bits << (2 * (step % 4));
        }
    }
    for (int i = 0; i < format.high_bits; ++i)
        put_step(high + 64 * i, row, planes[i]);
}

void put_half(uint8_t* plane, int row, uint16_t value) {
    std::memcpy(plane + 2 * row, &value, sizeof value);
}

// One row's chunk s of a block of n chunks.
void pack_chunk(const TileFormat& format, const CodeChunk& chunk, int n, int s, int row,
                uint8_t* block) {
    put_codes(format, chunk, row, block + codes_bytes(format, s));
    if (format.high_bits > 0) {
        put_high_bits(format, chunk, row, block + high_at(format, n) + high_bytes(format, s));
    }
    int subs = format.sub == 0 ? 0 : chunk_columns / format.sub;
    for (int i = 0; i < subs; ++i) {
        block[scales_at(format, n) + (s * subs + i) * tile_rows + row] = chunk.scales[i];
    }
    if (format.has_mins) {
        block[mins_at(format, n) + (s / 2 * tile_rows + row) * 2 + s % 2] = chunk.min;
    }
    size_t plane = format.group == super_group ? 0 : s * tile_rows * 2;
    put_half(block + d_at(format, n) + plane, row, chunk.d);
    if (format.has_m) put_half(block + m_at(format, n) + plane, row, chunk.m);
}

void pack_tile(const TileFormat& format, const Tensor& tensor, int tile, uint8_t* out) {
    int chunks = static_cast<int>(tensor.cols / chunk_columns);
    int rows = static_cast<int>(std::min<int64_t>(tile_rows, tensor.rows - tile * tile_rows));
    for (int first = 0; first < chunks; first += block_chunks) {
        int n = std::min(block_chunks, chunks - first);
        for (int row = 0; row < rows; ++row) {
            const uint8_t* source = tensor.row(int64_t{tile} * tile_rows + row);
            for (int s = 0; s < n; ++s) {
                pack_chunk(format, unpack_chunk(tensor.type, source, first + s), n, s, row, out);
            }
        }
        out += block_bytes(format, n);
    }
}

int tiles_of(int64_t rows) {
    return static_cast<int>((rows + tile_rows - 1) / tile_rows);
}

size_t packed_bytes(const Tensor& tensor) {
    const TileFormat format = tile_format(tensor.type);
    if (format.code_bits == 0) return 0;
    return tile_bytes(format, tensor.cols) * static_cast<size_t>(tiles_of(tensor.rows));
}

// Every matrix that is multiplied with; token_embd only where it is also the output.
std::vector<const Tensor*> matrices(const Model& model, bool with_mtp, bool with_draft_head) {
    std::vector<const Tensor*> all = {&model.output};
    auto add = [&](const Tensor& tensor) {
        if (tensor.data == nullptr) return;
        bool is_output = tensor.data == model.output.data && tensor.rows == model.output.rows;
        if (!is_output) all.push_back(&tensor);
    };
    auto add_layer = [&](const Layer& layer) {
        for (const Tensor* tensor :
             {&layer.ffn_gate, &layer.ffn_up, &layer.ffn_down, &layer.attn_q, &layer.attn_k,
              &layer.attn_v, &layer.attn_output, &layer.attn_qkv, &layer.attn_gate, &layer.ssm_beta,
              &layer.ssm_alpha, &layer.ssm_out}) {
            add(*tensor);
        }
    };
    for (const Layer& layer : model.layers)
        add_layer(layer);
    if (with_mtp) {
        add_layer(model.mtp->layer);
        add(model.mtp->eh_proj);
        if (with_draft_head) add(model.mtp->head);
    }
    return all;
}

void check(const Model& model, const Tensor& tensor) {
    if (tensor.cols % chunk_columns == 0) return;
    throw Error(OJ_ERR_UNSUPPORTED, model.path + ": " + tensor.name + " has " +
                                        std::to_string(tensor.cols) +
                                        " columns; the CPU backend needs a multiple of 32");
}

// Run by all threads; nothing to do for types that are read as they are.
void pack(Worker& worker, const Tensor& tensor, uint8_t* tiles) {
    const TileFormat format = tile_format(tensor.type);
    if (format.code_bits == 0) return;
    size_t bytes = tile_bytes(format, tensor.cols);
    worker.share(tiles_of(tensor.rows),
                 [&](int tile) { pack_tile(format, tensor, tile, tiles + tile * bytes); });
}

Matrix matrix_of(const Tensor& tensor, const uint8_t* tiles) {
    const TileFormat format = tile_format(tensor.type);
    const bool packed = format.code_bits != 0;
    Matrix matrix;
    matrix.type = tensor.type;
    matrix.rows = static_cast<int>(tensor.rows);
    matrix.cols = static_cast<int>(tensor.cols);
    matrix.tiles = packed ? tiles : tensor.data;
    matrix.tile_bytes = packed ? tile_bytes(format, tensor.cols) : tensor.row_bytes * tile_rows;
    return matrix;
}

}  // namespace

int Matrix::n_tiles() const {
    return tiles_of(rows);
}

WeightStore::WeightStore(const Model& model, bool with_mtp, bool with_draft_head, ThreadPool& pool)
    : memory_(bytes_needed(model, with_mtp, with_draft_head), "repacked weights") {
    std::vector<const Tensor*> all = matrices(model, with_mtp, with_draft_head);
    size_t offset = 0;
    for (const Tensor* tensor : all) {
        check(model, *tensor);
        offsets_[key(*tensor)] = offset;
        offset += packed_bytes(*tensor);
    }
    ThreadPool::Kind jobs;
    pool.run(&jobs, [&](Worker& worker) {
        for (const Tensor* tensor : all)
            pack(worker, *tensor, memory_.data() + offsets_.at(key(*tensor)));
    });
}

Matrix WeightStore::matrix(const Tensor& tensor) const {
    return matrix_of(tensor, memory_.data() + offsets_.at(key(tensor)));
}

size_t WeightStore::bytes_needed(const Model& model, bool with_mtp, bool with_draft_head) {
    size_t bytes = 0;
    for (const Tensor* tensor : matrices(model, with_mtp, with_draft_head))
        bytes += packed_bytes(*tensor);
    return bytes;
}

RowSubset::RowSubset(const Tensor& from, const std::vector<int32_t>& rows, ThreadPool& pool)
    : memory_(bytes_needed(from, rows.size()), "the draft head") {
    Pages<uint8_t> gathered(from.row_bytes * rows.size(), "the draft head's rows");
    for (size_t i = 0; i < rows.size(); ++i)
        std::memcpy(gathered.data() + i * from.row_bytes, from.row(rows[i]), from.row_bytes);
    Tensor tensor = from;
    tensor.rows = static_cast<int64_t>(rows.size());
    tensor.data = gathered.data();
    ThreadPool::Kind jobs;
    pool.run(&jobs, [&](Worker& worker) { pack(worker, tensor, memory_.data()); });
    matrix_ = matrix_of(tensor, memory_.data());
    if (matrix_.tiles == gathered.data()) memory_ = std::move(gathered);  // read as it is
}

size_t RowSubset::bytes_needed(const Tensor& from, size_t n_rows) {
    Tensor tensor = from;
    tensor.rows = static_cast<int64_t>(n_rows);
    return packed_bytes(tensor);
}

}  // namespace oj::cpu
