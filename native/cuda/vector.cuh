// Phases that work on rows: embeddings, norms and gated activations.
#pragma once

#include "cuda/phase.h"
#include "cuda/platform.h"
#include "cuda/quantize.cuh"
#include "cuda/work.h"
#include "model/block_values.h"

namespace oj::cuda {

// Bytes of 256 embedding values that a warp stages; wider types need no staging.
constexpr int staged_bytes = 288;

static_assert(max_norm_columns * sizeof(float) + 16 + block_warps * staged_bytes <=
              phase_shared_bytes);

OJ_DEVICE const StepView& view_of(const Context& c, const Phase& p) {
    return p.draft_pass ? c.draft : c.step;
}

// Warps take items in turn, neighbouring items in different blocks.
OJ_DEVICE int first_item_of_warp(const Grid& grid) {
    return warp_index() * grid.n_blocks + grid.block;
}
OJ_DEVICE int warps_of(const Grid& grid) {
    return grid.n_blocks * block_warps;
}

template <int n>
OJ_DEVICE void load_floats(const float* from, float* to) {
    for (int i = 0; i < n; i += 4) {
        Words4 words = load16(from + i);
        to[i] = bits_to_float(words.x);
        to[i + 1] = bits_to_float(words.y);
        to[i + 2] = bits_to_float(words.z);
        to[i + 3] = bits_to_float(words.w);
    }
}
template <int n>
OJ_DEVICE void store_floats(float* to, const float* from) {
    for (int i = 0; i < n; i += 4) {
        store16(to + i, {float_to_bits(from[i]), float_to_bits(from[i + 1]),
                         float_to_bits(from[i + 2]), float_to_bits(from[i + 3])});
    }
}

// What matrix products leave in segments, for row r: one output, or n neighbouring ones (n and o
// multiples of 4). Of few segments all loads are under way together.
constexpr int segments_at_once = 3;  // so many has a product of n_embd columns at most
static_assert(max_norm_columns <= segments_at_once * k_segment);

template <int n>
OJ_DEVICE void load_segment(const Product& product, int s, int r, int o, float* part) {
    const float* from = in_global(product.at(s, r)) + o;
    if constexpr (n == 1) {
        part[0] = from[0];
    } else {
        load_floats<n>(from, part);
    }
}
template <int n>
OJ_DEVICE void load_segments(const Product& product, int first, int r, int o,
                             float part[segments_at_once][n]) {
    OJ_UNROLL_ALL
    for (int i = 0; i < segments_at_once; ++i) {
        int s = first + i < product.n_segments ? first + i : first;
        load_segment<n>(product, s, r, o, part[i]);
    }
}
template <int n>
OJ_DEVICE void add_segments(const Product& product, int first,
                            const float part[segments_at_once][n], float* sum) {
    OJ_UNROLL_ALL
    for (int i = 0; i < segments_at_once; ++i) {
        OJ_UNROLL_ALL
        for (int j = 0; j < n; ++j)
            sum[j] = first + i < product.n_segments ? sum[j] + part[i][j] : sum[j];
    }
}
// Those from `first` on, one after the other.
template <int n>
OJ_DEVICE void add_rest(const Product& product, int first, int r, int o, float* sum) {
    OJ_UNROLL(1)
    for (int s = first; s < product.n_segments; ++s) {
        float part[n];
        load_segment<n>(product, s, r, o, part);
        for (int i = 0; i < n; ++i)
            sum[i] += part[i];
    }
}
template <int n>
OJ_DEVICE void sum_segments(const Product& product, int r, int o, float* sum) {
    for (int i = 0; i < n; ++i)
        sum[i] = 0.0f;
    OJ_UNROLL(1)
    for (int s = 0; s < product.n_segments; s += segments_at_once) {
        float part[segments_at_once][n];
        load_segments<n>(product, s, r, o, part);
        add_segments<n>(product, s, part, sum);
    }
}
OJ_DEVICE float sum_segments(const Product& product, int r, int o) {
    float sum[1];
    sum_segments<1>(product, r, o, sum);
    return sum[0];
}

// Sums of squares of x[0..n) by one warp, n a multiple of 32: added to what the lane has.
OJ_DEVICE float add_squares(const float* x, int n, float sum) {
    OJ_UNROLL(8)
    for (int k = lane_index(); k < n; k += warp_lanes)
        sum = fmaf(x[k], x[k], sum);
    return sum;
}

// All lanes get the sum.
OJ_DEVICE float sum_squares(const float* x, int n) {
    return warp_sum(add_squares(x, n, 0.0f));
}

// The same of a long row: the next values come while these are added, one after the other.
OJ_DEVICE float sum_row_squares(const float* x, int n) {
    constexpr int batch = 16, columns = batch * warp_lanes;
    const int whole = n / columns * columns;
    float sum = 0.0f, now[batch], next[batch] = {};
    auto load = [&](int first) {
        OJ_UNROLL_ALL
        for (int i = 0; i < batch; ++i)
            next[i] = x[first + i * warp_lanes + lane_index()];
    };
    if (whole > 0) load(0);
    OJ_UNROLL(1)
    for (int first = 0; first < whole; first += columns) {
        OJ_UNROLL_ALL
        for (int i = 0; i < batch; ++i)
            now[i] = next[i];
        if (first + columns < whole) load(first + columns);
        OJ_UNROLL_ALL
        for (int i = 0; i < batch; ++i)
            sum = fmaf(now[i], now[i], sum);
    }
    return warp_sum(add_squares(x + whole, n - whole, sum));
}

// The norm of one row of n columns by a whole block. fill(row) writes row[0..n) of shared memory
// with all threads; emit(first, v) takes a lane's eight columns of the piece from `first`.
template <class Fill, class Emit>
OJ_DEVICE void norm_row(int n, float eps, const float* weight, Fill fill, Emit emit) {
    constexpr int stride = block_warps * piece_columns;
    constexpr int turns = (max_norm_columns + stride - 1) / stride;
    const int begin = warp_index() * piece_columns, lane_begin = lane_index() * lane_columns;
    uint8_t* shared = shared_memory();
    float* scale = take_shared<float>(shared, 1);
    float* row = take_shared<float>(shared, n);
    fill(row);
    float w[turns][lane_columns] = {};  // on its way while the squares are added
    OJ_UNROLL_ALL
    for (int i = 0; i < turns; ++i) {
        int column = begin + i * stride + lane_begin;
        if (column < n) load_floats<lane_columns>(in_global(weight) + column, w[i]);
    }
    block_sync();
    if (warp_index() == 0) {
        float squares = sum_row_squares(row, n);
        if (lane_index() == 0) *scale = inverse_sqrt(squares / static_cast<float>(n) + eps);
    }
    block_sync();
    const float factor = *scale;
    OJ_UNROLL(1)
    for (int first = begin; first < n; first += stride) {
        int column = first + lane_begin;
        float v[lane_columns] = {};
        if (column < n) load_floats<lane_columns>(row + column, v);
        OJ_UNROLL_ALL
        for (int i = 0; i < lane_columns; ++i)
            v[i] = v[i] * factor * w[0][i];
        emit(first, v);
        OJ_UNROLL_ALL
        for (int i = 1; i < turns; ++i) {
            OJ_UNROLL_ALL
            for (int j = 0; j < lane_columns; ++j)
                w[i - 1][j] = w[i][j];
        }
    }
    block_sync();  // the next row takes the same memory
}

// Blocks of up to 256 columns of a token's embedding, on their way to one warp: they lie on the
// host.
struct Embedding {
    static constexpr int words = (staged_bytes / 2 + warp_lanes - 1) / warp_lanes;
    const uint8_t* blocks;
    int bytes;
    uint16_t mine[words];  // of the lane; of wider types none
};

OJ_DEVICE Embedding load_embedding(const Context& c, int token, int first, int n) {
    const int64_t row_bytes = c.embed_row_bytes;  // of n_embd columns
    Embedding e = {in_global(c.embed) + token * row_bytes + row_bytes * first / c.dims.n_embd,
                   static_cast<int>(row_bytes * n / c.dims.n_embd),
                   {}};
    OJ_UNROLL_ALL
    for (int i = 0; i < Embedding::words && e.bytes <= staged_bytes; ++i) {
        int at = 2 * (i * warp_lanes + lane_index());
        if (at < e.bytes) e.mine[i] = *reinterpret_cast<const uint16_t*>(e.blocks + at);
    }
    return e;
}

// Its n values, by the same warp.
OJ_DEVICE void unpack_embedding(const Context& c, const Embedding& e, int n, float* out) {
    const uint8_t* blocks = e.blocks;
    if (e.bytes <= staged_bytes) {
        uint8_t* staged = shared_memory() + phase_shared_bytes - (warp_index() + 1) * staged_bytes;
        OJ_UNROLL_ALL
        for (int i = 0; i < Embedding::words; ++i) {
            int at = 2 * (i * warp_lanes + lane_index());
            if (at < e.bytes) *reinterpret_cast<uint16_t*>(staged + at) = e.mine[i];
        }
        blocks = staged;
        warp_sync();
    }
    OJ_UNROLL(1)  // code of every type
    for (int i = lane_index(); i < n; i += warp_lanes)
        out[i] = element_value(static_cast<BlockType>(c.embed_type), blocks, i);
    warp_sync();
}

// Cosines and sines of one row's rotation by the threads that share `threads`, this one `index`.
OJ_DEVICE void rotate_row(const Context& c, int r, int position, int index, int threads) {
    int half = c.dims.rope_dim / 2;
    float* cosines = c.scratch.rotation + static_cast<int64_t>(r) * c.dims.rope_dim;
    OJ_UNROLL(1)  // long and rare
    for (int d = index; d < half; d += threads) {
        SinCos turn = rope_rotation(position, c.frequencies[d]);
        cosines[d] = turn.cosine;
        cosines[half + d] = turn.sine;
    }
}

OJ_PHASE void phase_embed(const Context& c, const Grid& grid, const Phase&) {
    int n = c.dims.n_embd, pieces = pieces_of_row(n);
    int items = embed_items(c.dims, c.step);  // the last piece of a row is its rotation
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        int r = item / (pieces + 1), first = item % (pieces + 1) * piece_columns;
        const Row& row = c.step.rows[r];
        if (first >= n) {
            rotate_row(c, r, row.position, lane_index(), warp_lanes);
            continue;
        }
        int count = n - first < piece_columns ? n - first : piece_columns;
        float* x = in_global(c.scratch.x) + static_cast<int64_t>(r) * n + first;
        unpack_embedding(c, load_embedding(c, row.token, first, count), count, x);
    }
}

// A thread's columns of a row: every 1,024 columns four neighbouring ones.
struct RowPart {
    static constexpr int strip = 4 * block_threads;
    static constexpr int strips = (max_norm_columns + strip - 1) / strip;
    float v[strips][4];
};

template <class Visit>
OJ_DEVICE void visit_strips(int n, Visit visit) {
    OJ_UNROLL_ALL
    for (int i = 0; i < RowPart::strips; ++i) {
        int k = i * RowPart::strip + 4 * thread_index();
        if (k < n) visit(i, k);
    }
}

OJ_DEVICE void load_part(const float* from, int n, RowPart* to) {
    visit_strips(n, [&](int i, int k) { load_floats<4>(in_global(from) + k, to->v[i]); });
}

// The segments of `out` of row r, added. One block a row has to hide the memory's latency by
// itself: always some segments are on their way.
OJ_DEVICE void sum_row(const Product& out, int r, int n, RowPart* sum) {
    constexpr int ahead = 2;
    RowPart parts[ahead] = {};
    OJ_UNROLL_ALL
    for (int i = 0; i < ahead; ++i) {
        if (i < out.n_segments) load_part(out.at(i, r), n, &parts[i]);
    }
    OJ_UNROLL(1)
    for (int first = 0; first < out.n_segments; first += ahead) {
        OJ_UNROLL_ALL
        for (int i = 0; i < ahead; ++i) {
            int s = first + i;
            if (s >= out.n_segments) break;
            visit_strips(n, [&](int strip, int) {
                OJ_UNROLL_ALL
                for (int j = 0; j < 4; ++j)
                    sum->v[strip][j] += parts[i].v[strip][j];
            });
            if (s + ahead < out.n_segments) load_part(out.at(s + ahead, r), n, &parts[i]);
        }
    }
}

// row = x of row r, to which `out` is added first if `adds`.
OJ_DEVICE void load_stream(const Context& c, int r, bool adds, float* row) {
    const int n = c.dims.n_embd;
    float* x = in_global(c.scratch.x) + static_cast<int64_t>(r) * n;
    RowPart stream = {}, sum = {};
    load_part(x, n, &stream);
    if (adds) sum_row(c.scratch.out, r, n, &sum);
    visit_strips(n, [&](int i, int k) {
        OJ_UNROLL_ALL
        for (int j = 0; adds && j < 4; ++j)
            stream.v[i][j] += sum.v[i][j];
        if (adds) store_floats<4>(x + k, stream.v[i]);
        store_floats<4>(row + k, stream.v[i]);
    });
}

OJ_PHASE void phase_norm_input(const Context& c, const Grid& grid, const Phase& p) {
    const int n = c.dims.n_embd;
    const Input input = in_global(c.scratch.input);
    const Forms forms = p.forms;
    for (int r = grid.block; r < view_of(c, p).n_rows; r += grid.n_blocks) {
        norm_row(
            n, c.dims.rms_eps, p.weight, [&](float* row) { load_stream(c, r, p.adds != 0, row); },
            [&](int first, const float* v) { write_input(input, forms, r, n, first, v); });
    }
}

// What the blocks that will choose a row's token together start from.
OJ_DEVICE void open_team(TeamMemory& memory) {
    TeamMemory& team = *in_global(&memory);
    if (thread_index() == 0) team.arrived = 0;
    for (int b = thread_index(); b < kSelectBins; b += block_threads)
        team.bins[0][b] = 0;
}

// The norm of x + out into `hidden`, and as row input_row (none if negative) of the input, from
// which a token will be chosen.
OJ_DEVICE void norm_hidden(const Context& c, const Phase& p, int r, float* hidden, int input_row) {
    const int n = c.dims.n_embd;
    const Input input = in_global(c.scratch.input);
    const Forms forms = p.forms;
    if (input_row >= 0) open_team(c.scratch.teams[input_row]);
    norm_row(
        n, c.dims.rms_eps, p.weight, [&](float* row) { load_stream(c, r, true, row); },
        [&](int first, const float* v) {
            int column = first + lane_index() * lane_columns;
            if (column < n) store_floats<lane_columns>(in_global(hidden) + column, v);
            if (input_row >= 0) write_input(input, forms, input_row, n, first, v);
        });
}

OJ_PHASE void phase_head_input(const Context& c, const Grid& grid, const Phase& p) {
    for (int r = grid.block; r < c.step.n_rows; r += grid.n_blocks) {
        float* hidden = c.scratch.hidden + static_cast<int64_t>(r) * c.dims.n_embd;
        norm_hidden(c, p, r, hidden, c.step.rows[r].logits_row);
    }
}

OJ_PHASE void phase_act_input(const Context& c, const Grid& grid, const Phase& p) {
    int lane = lane_index();
    int cols = c.dims.n_ff, pieces = pieces_of_row(cols);
    int items = view_of(c, p).n_rows * pieces;
    const Input input = in_global(c.scratch.input);
    const Forms forms = p.forms;
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        int r = quotient(item, pieces), first = (item - r * pieces) * piece_columns;
        int column = first + lane * lane_columns;
        float gate[lane_columns] = {}, up[lane_columns] = {};
        if (column < cols) {
            float of_gate[segments_at_once][lane_columns], of_up[segments_at_once][lane_columns];
            load_segments<lane_columns>(c.scratch.gate, 0, r, column, of_gate);
            load_segments<lane_columns>(c.scratch.up, 0, r, column, of_up);
            add_segments<lane_columns>(c.scratch.gate, 0, of_gate, gate);
            add_segments<lane_columns>(c.scratch.up, 0, of_up, up);
        }
        float v[lane_columns];
        for (int i = 0; i < lane_columns; ++i)
            v[i] = silu_f32(gate[i]) * up[i];
        write_input(input, forms, r, cols, first, v);
    }
}

}  // namespace oj::cuda
