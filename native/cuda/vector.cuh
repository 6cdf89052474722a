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
    return uniform_warp_index() * grid.n_blocks + grid.block;
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

// Where those of one row lie: what there is of a product fits into 32 bits, and 64 are more code.
struct Segments {
    const float* data;
    uint32_t first, step;  // of the first segment; to the next one
    int n;
};
OJ_DEVICE Segments segments_of(const Product& product, int r, int o) {
    const auto rows = static_cast<uint32_t>(product.rows);
    return {in_global(product.data), static_cast<uint32_t>(r) * rows + static_cast<uint32_t>(o),
            max_step_rows * rows, product.n_segments};
}

template <int n>
OJ_DEVICE void load_segment(const Segments& segments, int s, float* part) {
    const float* from = segments.data + (segments.first + static_cast<uint32_t>(s) * segments.step);
    if constexpr (n == 1) {
        part[0] = from[0];
    } else {
        load_floats<n>(from, part);
    }
}
// Segments from `first` on; again the first one for each that is not there.
template <int n>
OJ_DEVICE void load_segments(const Segments& segments, int first, float part[segments_at_once][n]) {
    OJ_UNROLL_ALL
    for (int i = 0; i < segments_at_once; ++i)
        load_segment<n>(segments, first + i < segments.n ? first + i : first, part[i]);
}
// Added in turn; there is at least one.
template <int n>
OJ_DEVICE void add_segments(const Segments& segments, int first,
                            const float part[segments_at_once][n], float* sum) {
    OJ_UNROLL_ALL
    for (int i = 0; i < segments_at_once; ++i) {
        OJ_UNROLL_ALL
        for (int j = 0; j < n; ++j)
            sum[j] = i == 0 || first + i < segments.n ? sum[j] + part[i][j] : sum[j];
    }
}

// The sum of the squares of a row of shared memory by one warp, for all its lanes. The next values
// come while these are added, one after the other.
OJ_DEVICE float sum_row_squares(const float* row, int n) {
    constexpr int batch = 16, columns = batch * warp_lanes;
    const float* mine = row + lane_index();
    const int whole = quotient(n, columns) * columns;
    float sum = 0.0f, v[batch] = {};  // squares of zeros change nothing
    OJ_UNROLL(1)
    for (int next = 0; whole > 0 && next <= whole; next += columns) {
        const float* from = mine + (next < whole ? next : 0);
        OJ_UNROLL_ALL
        for (int i = 0; i < batch; ++i) {
            sum = fmaf(v[i], v[i], sum);
            v[i] = from[i * warp_lanes];
        }
    }
    OJ_UNROLL(1)
    for (int k = whole + lane_index(); k < n; k += warp_lanes)
        sum = fmaf(row[k], row[k], sum);
    return warp_sum(sum);
}

// SiLU of two values; a function of its own for the same reason as write_input().
struct FloatPair {
    float a, b;
};
OJ_PHASE FloatPair silu_pair(FloatPair x) {
    return {silu_f32(x.a), silu_f32(x.b)};
}
OJ_DEVICE void silu_columns(LaneColumns& x) {
    OJ_UNROLL_ALL
    for (int i = 0; i < lane_columns; i += 2) {
        const FloatPair pair = silu_pair({x.v[i], x.v[i + 1]});
        x.v[i] = pair.a, x.v[i + 1] = pair.b;
    }
}

// exp_f32() and inverse_sqrt(), the same way.
OJ_PHASE float exp_value(float x) {
    return exp_f32(x);
}
OJ_PHASE float norm_factor(float x) {
    return inverse_sqrt(x);
}

// The norm of one row of n columns by a whole block. fill(row) writes row[0..n) of shared memory
// with all threads; emit(first, v) takes a lane's eight columns of the piece from `first`.
template <class Fill, class Emit>
OJ_DEVICE void norm_row(int n, float eps, const float* weight, Fill fill, Emit emit) {
    constexpr int stride = block_warps * piece_columns;
    constexpr int turns = (max_norm_columns + stride - 1) / stride;
    const int begin = uniform_warp_index() * piece_columns;
    const int lane_begin = lane_index() * lane_columns;
    uint8_t* shared = shared_memory();
    float* scale = take_shared<float>(shared, 1);
    float* row = take_shared<float>(shared, n);
    fill(row);
    float w[turns][lane_columns];  // on its way while the squares are added
    OJ_UNROLL_ALL
    for (int i = 0; i < turns; ++i) {
        const int column = begin + i * stride + lane_begin;
        load_floats<lane_columns>(in_global(weight) + (column < n ? column : 0), w[i]);
    }
    block_sync();
    if (begin == 0) {
        float squares = sum_row_squares(row, n);
        if (lane_index() == 0) *scale = norm_factor(squares / static_cast<float>(n) + eps);
    }
    // The other warps go through their work meanwhile, once without columns: its instructions are
    // in the cache when the factor is there.
    bool begun = false;
    float factor = 0.0f;
    int first = n;
    OJ_UNROLL(1)
    do {
        if (begun || begin > 0) {
            const int column = first + lane_begin;
            LaneColumns x;  // what lanes behind the end pass does not matter
            load_floats<lane_columns>(row + (column < n ? column : 0), x.v);
            OJ_UNROLL_ALL
            for (int i = 0; i < lane_columns; ++i)
                x.v[i] = x.v[i] * factor * w[0][i];
            emit(first, x);
        }
        if (begun) {
            first += stride;
            OJ_UNROLL_ALL
            for (int i = 1; i < turns; ++i) {
                OJ_UNROLL_ALL
                for (int j = 0; j < lane_columns; ++j)
                    w[i - 1][j] = w[i][j];
            }
        } else {
            block_sync();
            begun = true, first = begin, factor = *scale;
        }
    } while (first < n);
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

// Bit i: the thread has columns in strip i of a row of n. A comparison for each access would be
// more code.
OJ_DEVICE uint32_t strips_of(int n) {
    const int strips = quotient(n + RowPart::strip - 1 - 4 * thread_index(), RowPart::strip);
    return ((1u << RowPart::strips) - 1) >> (RowPart::strips - strips);
}

template <class Visit>
OJ_DEVICE void visit_strips(uint32_t strips, Visit visit) {
    OJ_UNROLL_ALL
    for (int i = 0; i < RowPart::strips; ++i) {
        if ((strips >> i & 1) != 0) visit(i, i * RowPart::strip + 4 * thread_index());
    }
}

OJ_DEVICE void load_part(const float* from, uint32_t strips, RowPart* to) {
    from = in_global(from);
    visit_strips(strips, [&](int i, int k) { load_floats<4>(from + k, to->v[i]); });
}

// The sum of `segments` of a row, then x, into `sum`. One block a row has to hide the memory's
// latency by itself: always some parts are on their way.
OJ_DEVICE void sum_row(const Segments& segments, const float* x, uint32_t strips, RowPart* sum) {
    constexpr int ahead = 2;
    const int count = segments.n + 1;
    RowPart parts[ahead] = {};
    OJ_UNROLL(1)
    for (int first = -ahead; first < count; first += ahead) {
        const bool begun = not_hoisted(first) >= 0;  // one copy of the loads
        OJ_UNROLL_ALL
        for (int i = 0; i < ahead; ++i) {
            if (first + i >= count) break;
            if (begun) {
                OJ_UNROLL_ALL
                for (int k = 0; k < RowPart::strips; ++k) {
                    OJ_UNROLL_ALL
                    for (int j = 0; j < 4; ++j)
                        sum->v[k][j] += parts[i].v[k][j];
                }
            }
            const int next = first + i + ahead;
            const auto at = segments.first + static_cast<uint32_t>(next) * segments.step;
            if (next < count)
                load_part(next < segments.n ? segments.data + at : x, strips, &parts[i]);
        }
    }
}

// row = x of row r, to which `out` is added first if `adds`.
OJ_DEVICE void load_stream(const Context& c, int r, bool adds, float* row) {
    const int n = c.dims.n_embd;
    const uint32_t strips = strips_of(n);
    float* x = in_global(c.scratch.x) + static_cast<uint32_t>(r * n);
    RowPart stream = {};
    if (adds) {
        sum_row(segments_of(c.scratch.out, r, 0), x, strips, &stream);
    } else {
        load_part(x, strips, &stream);
    }
    visit_strips(strips, [&](int i, int k) {
        if (adds) store_floats<4>(x + k, stream.v[i]);
        store_floats<4>(row + k, stream.v[i]);
    });
}

OJ_PHASE void phase_norm_input(const Context& c, const Grid& grid, const Phase& p) {
    const int n = c.dims.n_embd;
    for (int r = grid.block; r < view_of(c, p).n_rows; r += grid.n_blocks) {
        norm_row(
            n, c.dims.rms_eps, p.weight, [&](float* row) { load_stream(c, r, p.adds != 0, row); },
            [&](int first, const LaneColumns& x) {
                write_input(c.scratch.input, p.forms, r, n, first, x);
            });
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
    if (input_row >= 0) open_team(c.scratch.teams[input_row]);
    norm_row(
        n, c.dims.rms_eps, p.weight, [&](float* row) { load_stream(c, r, true, row); },
        [&](int first, const LaneColumns& x) {
            int column = first + lane_index() * lane_columns;
            if (column < n) store_floats<lane_columns>(in_global(hidden) + column, x.v);
            if (input_row >= 0) write_input(c.scratch.input, p.forms, input_row, n, first, x);
        });
}

OJ_PHASE void phase_head_input(const Context& c, const Grid& grid, const Phase& p) {
    for (int r = grid.block; r < c.step.n_rows; r += grid.n_blocks) {
        float* hidden = c.scratch.hidden + static_cast<int64_t>(r) * c.dims.n_embd;
        norm_hidden(c, p, r, hidden, shuffle(c.step.rows[r].logits_row, 0));  // same in all lanes
    }
}

OJ_PHASE void phase_act_input(const Context& c, const Grid& grid, const Phase& p) {
    const int cols = c.dims.n_ff, pieces = pieces_of_row(cols);
    const int items = view_of(c, p).n_rows * pieces;
    OJ_UNROLL(1)
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        const int r = quotient(item, pieces), first = (item - r * pieces) * piece_columns;
        int column = first + lane_index() * lane_columns;
        if (column >= cols) column = 0;  // what lanes behind the end pass does not matter
        const Segments of_gate = segments_of(c.scratch.gate, r, column);
        const Segments of_up = segments_of(c.scratch.up, r, column);
        float gates[segments_at_once][lane_columns], ups[segments_at_once][lane_columns];
        load_segments<lane_columns>(of_gate, 0, gates);
        load_segments<lane_columns>(of_up, 0, ups);
        LaneColumns gate = {}, up = {};
        add_segments<lane_columns>(of_gate, 0, gates, gate.v);
        add_segments<lane_columns>(of_up, 0, ups, up.v);
        silu_columns(gate);
        OJ_UNROLL_ALL
        for (int i = 0; i < lane_columns; ++i)
            up.v[i] = gate.v[i] * up.v[i];
        write_input(c.scratch.input, p.forms, r, cols, first, up);
    }
}

}  // namespace oj::cuda
