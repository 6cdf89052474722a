// Attention over one split of one KV head: tiles of 64 positions ascending with online softmax.
// See engine/numerics.h.
#pragma once

#include "cuda/kv_page.h"
#include "cuda/ptx.h"
#include "cuda/vector.cuh"

namespace oj::cuda {

constexpr int max_head_dim = 256;
constexpr int max_item_queries = max_item_columns * column_rows;

// What a block, or with float codecs a warp, attends to: some column groups (or one query) of a row
// group.
struct SplitItem {
    RowGroup group;
    int kv_head, split;
    int first_column, n_columns;  // column groups
};

// ---- softmax of a tile, one query by one warp: positions lane and lane + 32 ----

struct TileState {
    float largest, sum, keep;
};

// Scores become weights, those of invisible positions 0; visible > 0.
OJ_DEVICE void softmax_tile(float (&scores)[2], int visible, TileState* state) {
    int lane = lane_index();
    bool sees[2] = {lane < visible, lane + warp_lanes < visible};
    float largest = state->largest;
    for (int i = 0; i < 2; ++i)
        largest = sees[i] && scores[i] > largest ? scores[i] : largest;
    largest = warp_max(largest);
    for (int i = 0; i < 2; ++i)
        scores[i] = sees[i] ? exp_f32(scores[i] - largest) : 0.0f;
    state->keep = exp_f32(state->largest - largest);
    state->largest = largest;
    state->sum = fmaf(state->sum, state->keep, warp_sum(scores[0] + scores[1]));
}

OJ_DEVICE int visible_positions(int position, int tile_begin) {
    int visible = position + 1 - tile_begin;
    return visible < 0 ? 0 : visible > kv_page ? kv_page : visible;
}

// Partial result of a row's head in a split of this wave: [max, sum, out[head_dim]].
OJ_DEVICE float* partial_of(const Context& c, const Phase& p, const StepView& view, int r, int head,
                            int split) {
    int64_t at = (static_cast<int64_t>(r) * c.dims.n_heads + head) * view.wave_splits + split -
                 p.wave * view.wave_splits;
    return c.scratch.partials + at * (c.dims.head_dim + 2);
}

// ---- q8_0 pages: integer products, a block an item ----

// Scores and weights are [query][position]; the stride keeps eight queries' reads of 16 bytes in
// different banks.
constexpr int weight_stride = kv_page + 16;

struct SplitShared {
    float* weights;       // [query][weight_stride]
    float* query_scales;  // [group of dimensions][query]
    float* largest;       // [query]
    float* sum;
    float* keep;  // factor of what was summed before this tile; -1: the query sees nothing here
};
OJ_DEVICE SplitShared split_shared(const Grid& grid) {
    uint8_t* at = grid.shared;
    SplitShared shared;
    shared.weights = take_shared<float>(at, max_item_queries * weight_stride);
    shared.query_scales = take_shared<float>(at, max_head_dim / kv_group * max_item_queries);
    shared.largest = take_shared<float>(at, max_item_queries);
    shared.sum = take_shared<float>(at, max_item_queries);
    shared.keep = take_shared<float>(at, max_item_queries);
    return shared;
}
static_assert(4 * max_item_queries * (weight_stride + max_head_dim / kv_group + 3) <=
              phase_shared_bytes);

// Column q of an item as a row and head.
struct ItemQuery {
    int row, head;
    bool valid;
};
OJ_DEVICE ItemQuery item_query(const Context& c, const SplitItem& item, int q) {
    int per_kv = c.dims.n_heads / c.dims.n_kv_heads, column = item.first_column * column_rows + q;
    bool valid = column < item.group.n_rows * per_kv;
    if (!valid) column = 0;
    return {item.group.first_row + column / per_kv, item.kv_head * per_kv + column % per_kv, valid};
}

OJ_DEVICE void start_split(const Context& c, const SplitShared& shared, const SplitItem& item) {
    int groups = c.dims.head_dim / kv_group, queries = item.n_columns * column_rows;
    for (int i = thread_index(); i < queries * groups; i += block_threads) {
        int q = i % queries, g = i / queries;
        ItemQuery query = item_query(c, item, q);
        int64_t at = static_cast<int64_t>(query.row) * c.dims.n_heads + query.head;
        shared.query_scales[g * max_item_queries + q] = c.scratch.query_scales[at * groups + g];
    }
    for (int q = thread_index(); q < queries; q += block_threads) {
        shared.largest[q] = -INFINITY;
        shared.sum[q] = 0.0f;
    }
}

// Scores of a tile: warps 0-3 and 4-7 take 16 positions each, of every second column group.
template <int dim, int max_columns>
OJ_DEVICE void tile_scores(const Context& c, const SplitShared& shared, const SplitItem& item,
                           const uint8_t* keys) {
    constexpr int own = (max_columns + 1) / 2, groups = dim / kv_group;
    int warp = warp_index(), m = warp % 4, parity = warp / 4;
    int lane = lane_index(), g = lane / 4, t = lane % 4;
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(keys) + m * 16 + g;
    const uint8_t* codes = keys + kv_scales_bytes(OJ_KV_Q8_0, dim) + m * groups * 512;
    const int8_t* queries = c.scratch.query_codes + query_group_at(c.dims, item.group.first_row,
                                                                   item.kv_head, item.first_column);
    float score[own][4] = {};
    OJ_UNROLL(2)
    for (int group = 0; group < groups; ++group) {
        Words4 a = load16(codes + group * 512 + lane * 16);
        const uint32_t key[4] = {a.x, a.y, a.z, a.w};
        float scale[2] = {load_half(scales[group * kv_page]),
                          load_half(scales[group * kv_page + 8])};
        OJ_UNROLL_ALL
        for (int i = 0; i < own; ++i) {
            int column = 2 * i + parity;
            if (column >= item.n_columns) continue;
            Words4 b = load16(queries + column * (column_rows * dim * 2) + group * 512 + lane * 16);
            const uint32_t high_codes[2] = {b.x, b.y}, low_codes[2] = {b.z, b.w};
            int32_t high[4] = {}, low[4] = {};
            mma_s8_k32(high, key, high_codes);
            mma_s8_k32(low, key, low_codes);
            const float* query_scale =
                shared.query_scales + group * max_item_queries + column * column_rows + 2 * t;
            for (int j = 0; j < 4; ++j) {
                float isum = static_cast<float>(128 * high[j] + low[j]);
                score[i][j] = fmaf(query_scale[j % 2], scale[j / 2] * isum, score[i][j]);
            }
        }
    }
    OJ_UNROLL_ALL
    for (int i = 0; i < own; ++i) {
        int column = 2 * i + parity;
        if (column >= item.n_columns) continue;
        float* to = shared.weights + (column * column_rows + 2 * t) * weight_stride + m * 16 + g;
        for (int j = 0; j < 4; ++j)
            to[j % 2 * weight_stride + j / 2 * 8] = score[i][j];
    }
}

// Scores become weights, a query a warp.
OJ_DEVICE void tile_weights(const Context& c, const SplitShared& shared, const SplitItem& item,
                            const StepView& view, int tile_begin) {
    for (int q = warp_index(); q < item.n_columns * column_rows; q += block_warps) {
        ItemQuery query = item_query(c, item, q);
        int visible =
            query.valid ? visible_positions(view.rows[query.row].position, tile_begin) : 0;
        float* row = shared.weights + q * weight_stride + lane_index();
        float scores[2] = {row[0], row[warp_lanes]};
        TileState state = {shared.largest[q], shared.sum[q], -1.0f};
        warp_sync();  // before lane 0 writes them
        if (visible > 0) {
            softmax_tile(scores, visible, &state);
        } else {
            scores[0] = scores[1] = 0.0f;
        }
        row[0] = scores[0];
        row[warp_lanes] = scores[1];
        if (lane_index() == 0) {
            shared.largest[q] = state.largest;
            shared.sum[q] = state.sum;
            shared.keep[q] = state.keep;
        }
    }
}

// A warp's weights of one column group times the scales of a group of dimensions, as operands B of
// the tile's two steps of 32 positions: lane (query, t) has positions 16 i + 4 t .. + 3.
struct WeightCodes {
    uint32_t high[4], low[4];
    float scale;
};
OJ_DEVICE WeightCodes quantize_weights(const float* weights, const float (&scales)[16]) {
    float w[16];
    int largest = 0;
    for (int i = 0; i < 4; ++i)
        load_floats<4>(weights + 16 * i, w + 4 * i);
    for (int i = 0; i < 16; ++i) {
        w[i] = w[i] == 0.0f ? 0.0f : w[i] * scales[i];  // whatever an unseen scale is
        int magnitude = static_cast<int>(float_to_bits(w[i]) & 0x7fffffffu);
        largest = magnitude > largest ? magnitude : largest;
    }
    for (int width = 1; width < 4; width *= 2) {
        int other = shuffle_xor(largest, width);
        largest = other > largest ? other : largest;
    }
    float magnitude = bits_to_float(static_cast<uint32_t>(largest));
    float factor = quantize16_factor(magnitude);
    WeightCodes codes = {{}, {}, quantize16_scale(magnitude)};
    for (int i = 0; i < 16; ++i) {
        int code = quantize_code(w[i], factor);
        codes.high[i / 4] |= (static_cast<uint32_t>(code16_high(code)) & 255u) << (i % 4 * 8);
        codes.low[i / 4] |= (static_cast<uint32_t>(code16_low(code)) & 255u) << (i % 4 * 8);
    }
    return codes;
}

// The outputs that a warp keeps in registers: one group of 32 dimensions of every `spread`-th
// column group, as accumulators of two mma (16 dimensions x 8 queries each).
template <int dim, int max_columns>
struct SplitOutputs {
    static constexpr int groups = dim / kv_group;
    static constexpr int spread = block_warps / groups;
    static constexpr int own = (max_columns + spread - 1) / spread;
    float out[own][2][4];
};

// A warp's group of dimensions of a tile's values: operands A of two times 16 dimensions and two
// steps of 32 positions, and scales as a lane needs them for its positions (WeightCodes).
struct TileValues {
    uint32_t codes[2][2][4];
    Words2 scales[4];
};

template <int dim>
OJ_DEVICE TileValues load_values(const uint8_t* values) {
    int group = warp_index() % (dim / kv_group), lane = lane_index(), t = lane % 4;
    const uint8_t* codes = values + kv_scales_bytes(OJ_KV_Q8_0, dim) + group * 2048;
    TileValues tile;
    for (int m = 0; m < 2; ++m) {
        for (int step = 0; step < 2; ++step) {
            Words4 a = load16(codes + (2 * m + step) * 512 + lane * 16);
            tile.codes[m][step][0] = a.x;
            tile.codes[m][step][1] = a.y;
            tile.codes[m][step][2] = a.z;
            tile.codes[m][step][3] = a.w;
        }
    }
    for (int i = 0; i < 4; ++i)
        tile.scales[i] = load8(values + 2 * kv_scale_at(16 * i + 4 * t, group));
    return tile;
}

// out = out * keep + weights x values.
template <int dim, int max_columns>
OJ_DEVICE void add_values(const SplitShared& shared, const SplitItem& item, const TileValues& tile,
                          SplitOutputs<dim, max_columns>* outputs) {
    using Outputs = SplitOutputs<dim, max_columns>;
    int first = warp_index() / Outputs::groups, g = lane_index() / 4, t = lane_index() % 4;
    float scales[16];
    for (int i = 0; i < 4; ++i) {
        scales[4 * i] = load_half(static_cast<uint16_t>(tile.scales[i].x));
        scales[4 * i + 1] = load_half(static_cast<uint16_t>(tile.scales[i].x >> 16));
        scales[4 * i + 2] = load_half(static_cast<uint16_t>(tile.scales[i].y));
        scales[4 * i + 3] = load_half(static_cast<uint16_t>(tile.scales[i].y >> 16));
    }
    OJ_UNROLL_ALL
    for (int i = 0; i < Outputs::own; ++i) {
        int column = first + i * Outputs::spread;
        if (column >= item.n_columns) continue;
        int q = column * column_rows;
        WeightCodes w = quantize_weights(shared.weights + (q + g) * weight_stride + 4 * t, scales);
        float scale[2] = {shuffle(w.scale, 8 * t), shuffle(w.scale, 8 * t + 4)};
        float keep[2] = {shared.keep[q + 2 * t], shared.keep[q + 2 * t + 1]};
        for (int m = 0; m < 2; ++m) {
            int32_t high[4] = {}, low[4] = {};
            for (int step = 0; step < 2; ++step) {
                mma_s8_k32(high, tile.codes[m][step], w.high + 2 * step);
                mma_s8_k32(low, tile.codes[m][step], w.low + 2 * step);
            }
            for (int j = 0; j < 4; ++j) {
                float& out = outputs->out[i][m][j];
                float isum = static_cast<float>(128 * high[j] + low[j]);
                float sum = fmaf(scale[j % 2], isum, out * keep[j % 2]);
                out = keep[j % 2] >= 0.0f ? sum : out;
            }
        }
    }
}

template <int dim, int max_columns>
OJ_DEVICE void store_split(const Context& c, const Phase& p, const StepView& view,
                           const SplitShared& shared, const SplitItem& item,
                           const SplitOutputs<dim, max_columns>& outputs) {
    using Outputs = SplitOutputs<dim, max_columns>;
    int group = warp_index() % Outputs::groups, first = warp_index() / Outputs::groups;
    int g = lane_index() / 4, t = lane_index() % 4;
    OJ_UNROLL_ALL
    for (int i = 0; i < Outputs::own; ++i) {
        int column = first + i * Outputs::spread;
        if (column >= item.n_columns) continue;
        for (int j = 0; j < 2; ++j) {
            int q = column * column_rows + 2 * t + j;
            ItemQuery query = item_query(c, item, q);
            bool sees = view.rows[query.row].position >= item.split * kv_split;
            if (!query.valid || !sees) continue;
            float* to = partial_of(c, p, view, query.row, query.head, item.split);
            if (group == 0 && g == 0) {
                to[0] = shared.largest[q];
                to[1] = shared.sum[q];
            }
            for (int m = 0; m < 2; ++m) {
                int d = group * kv_group + m * 16 + g;
                to[2 + d] = outputs.out[i][m][j];
                to[2 + d + 8] = outputs.out[i][m][2 + j];
            }
        }
    }
}

// Keys and values of a tile, which follow each other.
OJ_DEVICE void prefetch_tile(const KvView& kv, const uint8_t* keys) {
    constexpr int line = 128;
    for (int at = line * thread_index(); at < kv.head_bytes; at += line * block_threads)
        prefetch_line(keys + at);
}

template <int dim, int max_columns>
OJ_DEVICE void attend_columns(const Context& c, const Grid& grid, const Phase& p,
                              const StepView& view, const SplitItem& item) {
    SplitShared shared = split_shared(grid);
    SplitOutputs<dim, max_columns> outputs = {};
    const Row& last = view.rows[item.group.first_row + item.group.n_rows - 1];
    const int32_t* pages = view.pages + view.runs[last.run].first_page;
    int begin = item.split * kv_split, end = begin + kv_split;
    if (end > last.position + 1) end = last.position + 1;
    start_split(c, shared, item);
    block_sync();
    for (int position = begin; position < end; position += kv_page) {
        const uint8_t* keys =
            c.kv.keys(pages[position / kv_page], p.attention.kv_layer, item.kv_head);
        TileValues values = load_values<dim>(keys + c.kv.block_bytes);
        if (position + kv_page < end) {
            int next = pages[position / kv_page + 1];
            prefetch_tile(c.kv, c.kv.keys(next, p.attention.kv_layer, item.kv_head));
        }
        tile_scores<dim, max_columns>(c, shared, item, keys);
        block_sync();
        tile_weights(c, shared, item, view, position);
        block_sync();
        add_values(shared, item, values, &outputs);
        block_sync();
    }
    store_split(c, p, view, shared, item, outputs);
    block_sync();  // the next item takes the same memory
}

// Head sizes 64, 128 and 256; the backend refuses others.
OJ_DEVICE void attend_split(const Context& c, const Grid& grid, const Phase& p,
                            const StepView& view, const SplitItem& item) {
    if (c.dims.head_dim == 64) return attend_columns<64, max_item_columns>(c, grid, p, view, item);
    if (c.dims.head_dim == 128)
        return attend_columns<128, max_item_columns>(c, grid, p, view, item);
    if (item.n_columns == 1) return attend_columns<256, 1>(c, grid, p, view, item);
    attend_columns<256, max_item_columns>(c, grid, p, view, item);
}

// ---- f16 pages: float products, a warp an item of one query ----

OJ_DEVICE void attend_query(const Context& c, const Phase& p, const StepView& view, int r, int head,
                            int split, float* weights) {
    int lane = lane_index();
    int dim = c.dims.head_dim, kv_head = head / (c.dims.n_heads / c.dims.n_kv_heads);
    const Row& row = view.rows[r];
    const int32_t* pages = view.pages + view.runs[row.run].first_page;
    const float* query = c.scratch.query + (static_cast<int64_t>(r) * c.dims.n_heads + head) * dim;
    TileState state = {-INFINITY, 0.0f, 0.0f};
    float out[max_head_dim / warp_lanes] = {};
    int begin = split * kv_split, end = begin + kv_split;
    for (int position = begin; position < end && position <= row.position; position += kv_page) {
        int page = pages[position / kv_page], visible = visible_positions(row.position, position);
        const uint16_t* keys =
            reinterpret_cast<const uint16_t*>(c.kv.keys(page, p.attention.kv_layer, kv_head));
        const uint16_t* values =
            reinterpret_cast<const uint16_t*>(c.kv.values(page, p.attention.kv_layer, kv_head));
        float scores[2] = {};
        for (int group = 0; group < dim; group += kv_group) {
            float sum[2] = {};
            for (int d = group; d < group + kv_group; ++d) {
                for (int i = 0; i < 2; ++i) {
                    float key = load_half(keys[d * kv_page + i * warp_lanes + lane]);
                    sum[i] = fmaf(query[d], key, sum[i]);
                }
            }
            for (int i = 0; i < 2; ++i)
                scores[i] = scores[i] + sum[i];
        }
        softmax_tile(scores, visible, &state);
        weights[lane] = scores[0];
        weights[lane + warp_lanes] = scores[1];
        warp_sync();
        OJ_UNROLL_ALL
        for (int i = 0; i < max_head_dim / warp_lanes; ++i) {
            int d = i * warp_lanes + lane;
            if (d >= dim) break;
            out[i] *= state.keep;
            for (int j = 0; j < visible; ++j)
                out[i] = fmaf(weights[j], load_half(values[j * dim + d]), out[i]);
        }
        warp_sync();
    }
    float* to = partial_of(c, p, view, r, head, split);
    if (lane == 0) {
        to[0] = state.largest;
        to[1] = state.sum;
    }
    OJ_UNROLL_ALL
    for (int i = 0; i < max_head_dim / warp_lanes; ++i) {
        int d = i * warp_lanes + lane;
        if (d < dim) to[2 + d] = out[i];
    }
}

OJ_DEVICE void attend_floats(const Context& c, const Grid& grid, const Phase& p,
                             const StepView& view) {
    float* weights = reinterpret_cast<float*>(grid.shared) + warp_index() * kv_page;
    int per_row = c.dims.n_heads * view.wave_splits, items = float_split_items(c.dims, view);
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        int r = item / per_row, head = item % per_row / view.wave_splits;
        int split = p.wave * view.wave_splits + item % view.wave_splits;
        int position = view.rows[r].position;
        if (position < 0 || position < split * kv_split) continue;
        attend_query(c, p, view, r, head, split, weights);
    }
}

}  // namespace oj::cuda
