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
// multiples of 4).
OJ_DEVICE float sum_segments(const Product& product, int r, int o) {
    float sum = 0.0f;
    for (int s = 0; s < product.n_segments; ++s)
        sum += product.at(s, r)[o];
    return sum;
}
template <int n>
OJ_DEVICE void sum_segments(const Product& product, int r, int o, float* sum) {
    for (int i = 0; i < n; ++i)
        sum[i] = 0.0f;
    for (int s = 0; s < product.n_segments; ++s) {
        float part[n];
        load_floats<n>(product.at(s, r) + o, part);
        for (int i = 0; i < n; ++i)
            sum[i] += part[i];
    }
}

// Sum of squares of x[0..n) by one warp, n a multiple of 32; all lanes get it.
OJ_DEVICE float sum_squares(const float* x, int n) {
    float sum = 0.0f;
    OJ_UNROLL(8)
    for (int k = lane_index(); k < n; k += warp_lanes)
        sum = fmaf(x[k], x[k], sum);
    return warp_sum(sum);
}

// The norm of one row of n columns by a whole block. fill(row) writes row[0..n) of shared memory
// with all threads; emit(first, v) takes a lane's eight columns of the piece from `first`.
template <class Fill, class Emit>
OJ_DEVICE void norm_row(const Grid& grid, int n, float eps, const float* weight, Fill fill,
                        Emit emit) {
    int lane = lane_index();
    uint8_t* shared = grid.shared;
    float* scale = take_shared<float>(shared, 1);
    float* row = take_shared<float>(shared, n);
    fill(row);
    block_sync();
    if (warp_index() == 0) {
        float squares = sum_squares(row, n);
        if (lane == 0) *scale = inverse_sqrt(squares / static_cast<float>(n) + eps);
    }
    block_sync();
    for (int first = warp_index() * piece_columns; first < n;
         first += block_warps * piece_columns) {
        int column = first + lane * lane_columns;
        float v[lane_columns] = {}, w[lane_columns];
        if (column < n) {
            load_floats<lane_columns>(row + column, v);
            load_floats<lane_columns>(weight + column, w);
            for (int i = 0; i < lane_columns; ++i)
                v[i] = v[i] * *scale * w[i];
        }
        emit(first, v);
    }
    block_sync();  // the next row takes the same memory
}

// Columns [first, first + n) of a token's embedding by one warp, n at most 256.
OJ_DEVICE void load_embedding(const Context& c, const Grid& grid, int token, int first, int n,
                              float* out) {
    int lane = lane_index();
    BlockType type = static_cast<BlockType>(c.embed_type);
    int64_t row_bytes = c.embed_row_bytes;  // of n_embd columns
    const uint8_t* blocks = c.embed + token * row_bytes + row_bytes * first / c.dims.n_embd;
    int bytes = static_cast<int>(row_bytes * n / c.dims.n_embd);
    if (bytes <= staged_bytes) {  // lanes share blocks, which come from the host once
        uint8_t* staged = grid.shared + phase_shared_bytes - (warp_index() + 1) * staged_bytes;
        for (int i = 2 * lane; i < bytes; i += 2 * warp_lanes) {
            *reinterpret_cast<uint16_t*>(staged + i) =
                *reinterpret_cast<const uint16_t*>(blocks + i);
        }
        blocks = staged;
        warp_sync();
    }
    OJ_UNROLL(1)  // code of every type
    for (int i = lane; i < n; i += warp_lanes)
        out[i] = element_value(type, blocks, i);
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
        float* x = c.scratch.x + static_cast<int64_t>(r) * n + first;
        load_embedding(c, grid, row.token, first, count, x);
    }
}

// row = x of row r, to which `out` is added first if `adds`. All of a thread's columns of a segment
// are loaded together: one block a row has to hide the memory's latency by itself.
OJ_DEVICE void load_stream(const Context& c, int r, bool adds, float* row) {
    int thread = thread_index();
    constexpr int strips = (max_norm_columns + 4 * block_threads - 1) / (4 * block_threads);
    int n = c.dims.n_embd;
    float* x = c.scratch.x + static_cast<int64_t>(r) * n;
    float sum[strips][4] = {};
    OJ_UNROLL(3)
    for (int s = 0; s < (adds ? c.scratch.out.n_segments : 0); ++s) {
        const float* part = c.scratch.out.at(s, r);
        for (int i = 0; i < strips; ++i) {
            int k = 4 * (thread + i * block_threads);
            float add[4] = {};
            if (k < n) load_floats<4>(part + k, add);
            for (int j = 0; j < 4; ++j)
                sum[i][j] += add[j];
        }
    }
    for (int i = 0; i < strips; ++i) {
        int k = 4 * (thread + i * block_threads);
        if (k >= n) continue;
        float v[4];
        load_floats<4>(x + k, v);
        for (int j = 0; adds && j < 4; ++j)
            v[j] += sum[i][j];
        if (adds) store_floats<4>(x + k, v);
        store_floats<4>(row + k, v);
    }
}

OJ_PHASE void phase_norm_input(const Context& c, const Grid& grid, const Phase& p) {
    int n = c.dims.n_embd;
    for (int r = grid.block; r < view_of(c, p).n_rows; r += grid.n_blocks) {
        norm_row(
            grid, n, c.dims.rms_eps, p.weight,
            [&](float* row) { load_stream(c, r, p.adds != 0, row); },
            [&](int first, const float* v) {
                write_input(c.scratch.input, p.forms, r, n, first, v);
            });
    }
}

// What the blocks that will choose a row's token together start from.
OJ_DEVICE void open_team(TeamMemory& team) {
    if (thread_index() == 0) team.arrived = 0;
    for (int b = thread_index(); b < kSelectBins; b += block_threads)
        team.bins[0][b] = 0;
}

// The norm of x + out into `hidden`, and as row input_row (none if negative) of the input, from
// which a token will be chosen.
OJ_DEVICE void norm_hidden(const Context& c, const Grid& grid, const Phase& p, int r, float* hidden,
                           int input_row) {
    int n = c.dims.n_embd;
    if (input_row >= 0) open_team(c.scratch.teams[input_row]);
    norm_row(
        grid, n, c.dims.rms_eps, p.weight, [&](float* row) { load_stream(c, r, true, row); },
        [&](int first, const float* v) {
            int column = first + lane_index() * lane_columns;
            if (column < n) store_floats<lane_columns>(hidden + column, v);
            if (input_row >= 0) write_input(c.scratch.input, p.forms, input_row, n, first, v);
        });
}

OJ_PHASE void phase_head_input(const Context& c, const Grid& grid, const Phase& p) {
    for (int r = grid.block; r < c.step.n_rows; r += grid.n_blocks) {
        float* hidden = c.scratch.hidden + static_cast<int64_t>(r) * c.dims.n_embd;
        norm_hidden(c, grid, p, r, hidden, c.step.rows[r].logits_row);
    }
}

OJ_PHASE void phase_act_input(const Context& c, const Grid& grid, const Phase& p) {
    int lane = lane_index();
    int cols = c.dims.n_ff, pieces = pieces_of_row(cols);
    int items = view_of(c, p).n_rows * pieces;
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        int r = item / pieces, first = item % pieces * piece_columns;
        int column = first + lane * lane_columns;
        float gate[lane_columns] = {}, up[lane_columns] = {};
        if (column < cols) {
            sum_segments<lane_columns>(c.scratch.gate, r, column, gate);
            sum_segments<lane_columns>(c.scratch.up, r, column, up);
        }
        float v[lane_columns];
        for (int i = 0; i < lane_columns; ++i)
            v[i] = silu_f32(gate[i]) * up[i];
        write_input(c.scratch.input, p.forms, r, cols, first, v);
    }
}

}  // namespace oj::cuda
