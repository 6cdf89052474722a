// Attention over one split of one KV head: tiles of 64 positions ascending with online softmax.
// See engine/numerics.h.
#pragma once

#include "cuda/kv_page.h"
#include "cuda/ptx.h"
#include "cuda/vector.cuh"

namespace oj::cuda {

constexpr int max_head_dim = 256;
constexpr int max_item_queries = max_item_columns * column_rows;
constexpr int stage_tiles = 2;  // of q8_0 pages, that a block works on between meetings
constexpr int stage_positions = stage_tiles * kv_page;
static_assert(kv_split % stage_positions == 0 && stage_positions == 16 * block_warps);

// What a block attends to: some column groups of a row group, over one split.
struct SplitItem {
    RowGroup group;
    int kv_head, split;
    int first_column, n_columns;  // column groups
    int last;                     // position of the group's last row
    const int32_t* pages;         // of its run
    const int8_t* queries;        // codes of the first column group
    const uint8_t* kv;            // keys and values of page 0
};

OJ_DEVICE int visible_positions(int position, int tile_begin) {
    int visible = position + 1 - tile_begin;
    return visible < 0 ? 0 : visible > kv_page ? kv_page : visible;
}

// Partial result of a row's head in a split of this wave: [max, sum, out[head_dim]].
OJ_DEVICE float* partial_of(const Context& c, const Phase& p, const StepView& view, int row_head,
                            int split) {
    int64_t at =
        static_cast<int64_t>(row_head) * view.wave_splits + split - p.wave * view.wave_splits;
    return c.scratch.partials + at * (c.dims.head_dim + 2);
}

// ---- q8_0 pages: integer products, a block an item ----

// n floats, n even, from where pairs are aligned.
template <int n>
OJ_DEVICE void load_pairs(const float* from, float* to) {
    for (int i = 0; i < n; i += 2) {
        Words2 words = load8(from + i);
        to[i] = bits_to_float(words.x);
        to[i + 1] = bits_to_float(words.y);
    }
}

// Four values as codes code16 = 128 * high + low; low is 0..127. The sum's low 16 bits are the
// code.
OJ_DEVICE void quantize_codes16(const float* x, float factor, uint32_t* high, uint32_t* low) {
    uint32_t sums[4];
    for (int i = 0; i < 4; ++i)
        sums[i] = float_to_bits(x[i] * factor + 12582912.0f);
    uint32_t first = permute_bytes(sums[0], sums[1], 0x5410);
    uint32_t second = permute_bytes(sums[2], sums[3], 0x5410);
    *high = permute_bytes(first << 1, second << 1, 0x7531);
    *low = permute_bytes(first, second, 0x6420) & 0x7f7f7f7f;
}

// The stride keeps eight queries' reads of 16 bytes of weights in different banks.
constexpr int weight_stride = stage_positions + 16;

struct alignas(16) SplitShared {
    float weights[max_item_queries][weight_stride];  // scores, then weights, of a stage
    float query_scales[max_head_dim / kv_group][max_item_queries];
    float largest[max_item_queries], sum[max_item_queries];  // scores and weights so far
    // Factor of what was summed before a tile of the stage; -1: the query sees nothing of the tile.
    float keep[stage_tiles][max_item_queries];
    int positions[max_item_queries];  // -1: no query
    int row_heads[max_item_queries];  // row * n_heads + head
    int n_items;
    bool more_items;              // behind these
    SplitItem items[warp_lanes];  // of the block, in turn
};
static_assert(sizeof(SplitShared) <= phase_shared_bytes);
// The phase's memory, which begins the block's (Grid.shared): constant addresses.
OJ_DEVICE SplitShared& split_shared() {
    return *reinterpret_cast<SplitShared*>(shared_memory());
}

// A thread for each query and group of dimensions.
template <int dim>
OJ_DEVICE void start_split(const Context& c, const StepView& view, SplitShared& shared,
                           const SplitItem& item) {
    constexpr int groups = dim / kv_group;
    static_assert(max_item_queries * groups <= block_threads);
    int q = thread_index() / groups, group = thread_index() % groups;
    if (q >= max_item_queries) return;
    int per_kv = quotient(c.dims.n_heads, c.dims.n_kv_heads);
    int column = item.first_column * column_rows + q;
    bool valid = q < item.n_columns * column_rows && column < item.group.n_rows * per_kv;
    if (!valid) column = 0;
    int in_group = quotient(column, per_kv);
    int row = item.group.first_row + in_group;
    int row_head = row * c.dims.n_heads + item.kv_head * per_kv + column - in_group * per_kv;
    shared.query_scales[group][q] =
        c.scratch.query_scales[static_cast<int64_t>(row_head) * groups + group];
    if (group > 0) return;
    shared.largest[q] = -INFINITY;
    shared.sum[q] = 0.0f;
    shared.positions[q] = valid ? view.rows[row].position : -1;
    shared.row_heads[q] = row_head;
}

// Keys and values of the tile at `position`; past the last one, of that again.
OJ_DEVICE const uint8_t* tile_keys(const KvView& kv, const SplitItem& item, int position) {
    if (position > item.last) position = item.last;
    return in_global(item.kv) + in_global(item.pages)[position / kv_page] * kv.page_bytes;
}
// Those of the warp's tile of the stage at `position`.
OJ_DEVICE const uint8_t* stage_keys(const KvView& kv, const SplitItem& item, int position) {
    return tile_keys(kv, item, position + warp_index() / (kv_page / 16) * kv_page);
}
OJ_DEVICE const uint8_t* first_keys(const KvView& kv, const SplitItem& item) {
    return stage_keys(kv, item, item.split * kv_split);
}

// The code below loops where it could be unrolled: between two visits of a phase the instruction
// caches lose it, and an instruction that a visit runs for the first time costs 17 cycles (H200).

// Two groups of dimensions of a warp's 16 positions of a stage: operands A, and the scales of a
// lane's two positions.
struct StageKeys {
    Words4 codes[2];
    Words2 scales;
};

template <int dim>
OJ_DEVICE StageKeys load_keys(const uint8_t* tile, int group) {
    constexpr int groups = dim / kv_group;
    int m = warp_index() % (kv_page / 16), lane = lane_index();
    const uint8_t* codes = tile + kv_scales_bytes(OJ_KV_Q8_0, dim) + lane * 16;
    codes += (m * groups + group) * 512;
    const uint8_t* scales = tile + 2 * key_scale_at(m * 16 + lane / 4, group, dim);
    return {{load16(codes), load16(codes + 512)}, load8(scales)};
}

// Scores of a stage, 16 positions a warp, whose tile is `keys`; its first two groups are `first`.
template <int dim>
OJ_DEVICE void stage_scores(SplitShared& shared, const SplitItem& item, const uint8_t* keys,
                            const StageKeys& first) {
    int lane = lane_index(), g = lane / 4, t = lane % 4, n_columns = item.n_columns;
    const int8_t* queries = in_global(item.queries) + lane * 16;
    float score[max_item_columns][4] = {};
    StageKeys now = first;
    OJ_UNROLL(1)
    for (int group = 0; group < dim / kv_group; group += 2) {
        StageKeys next = now;
        if (group + 2 < dim / kv_group) next = load_keys<dim>(keys, group + 2);
        for (int k = 0; k < 2; ++k) {
            const Words4& a = now.codes[k];
            const uint32_t codes[4] = {a.x, a.y, a.z, a.w};
            const uint32_t scales = k == 0 ? now.scales.x : now.scales.y;
            float scale[2] = {load_half(static_cast<uint16_t>(scales)),
                              load_half(static_cast<uint16_t>(scales >> 16))};
            OJ_UNROLL_ALL
            for (int i = 0; i < max_item_columns; ++i) {
                if (i >= n_columns) break;
                Words4 b = load16(queries + i * (column_rows * dim * 2) + (group + k) * 512);
                const uint32_t high_codes[2] = {b.x, b.y}, low_codes[2] = {b.z, b.w};
                int32_t high[4] = {}, low[4] = {};
                mma_s8_k32(high, codes, high_codes);
                mma_s8_k32(low, codes, low_codes);
                float query_scale[2];
                load_pairs<2>(&shared.query_scales[group + k][i * column_rows + 2 * t],
                              query_scale);
                for (int j = 0; j < 4; ++j) {
                    float isum = static_cast<float>(128 * high[j] + low[j]);
                    score[i][j] = fmaf(query_scale[j % 2], scale[j / 2] * isum, score[i][j]);
                }
            }
        }
        now = next;
    }
    float* to = &shared.weights[2 * t][warp_index() * 16 + g];
    OJ_UNROLL_ALL
    for (int i = 0; i < max_item_columns; ++i) {
        if (i >= n_columns) break;
        for (int j = 0; j < 4; ++j)
            to[(i * column_rows + j % 2) * weight_stride + j / 2 * 8] = score[i][j];
    }
}

// exp_f32 of n values that all lanes have: lane i computes the i-th.
template <int n>
OJ_DEVICE void exp_uniform(float (&x)[n]) {
    float mine = x[0];
    OJ_UNROLL_ALL
    for (int i = 1; i < n; ++i)
        mine = lane_index() == i ? x[i] : mine;
    mine = exp_f32(mine);
    OJ_UNROLL_ALL
    for (int i = 0; i < n; ++i)
        x[i] = shuffle(mine, i);
}

// Scores of query q in a stage become weights, those of invisible positions 0; by one warp.
OJ_DEVICE void query_weights(SplitShared& shared, int q, int begin) {
    int lane = lane_index();
    float scores[stage_tiles][2], largest[stage_tiles], keep[stage_tiles], sum[stage_tiles];
    int visible = shared.positions[q] + 1 - begin;  // in the stage, or more
    float* weights = &shared.weights[q][lane];
    for (int i = 0; i < stage_tiles; ++i) {
        for (int j = 0; j < 2; ++j) {
            int position = i * kv_page + j * warp_lanes;
            scores[i][j] = position + lane < visible ? weights[position] : -INFINITY;
        }
        largest[i] = fmaxf(scores[i][0], scores[i][1]);
    }
    OJ_UNROLL(1)
    for (int width = warp_lanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < stage_tiles; ++i)
            largest[i] = fmaxf(largest[i], shuffle_xor(largest[i], width));
    }
    for (int i = 0; i < stage_tiles; ++i) {
        float before = i == 0 ? shared.largest[q] : largest[i - 1];
        largest[i] = fmaxf(largest[i], before);
        keep[i] = before - largest[i];
        for (int j = 0; j < 2; ++j)
            scores[i][j] = exp_f32(scores[i][j] - largest[i]);  // of -INFINITY: 0
        sum[i] = scores[i][0] + scores[i][1];
    }
    float total = shared.sum[q];
    exp_uniform(keep);
    OJ_UNROLL(1)
    for (int width = warp_lanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < stage_tiles; ++i)
            sum[i] = sum[i] + shuffle_xor(sum[i], width);
    }
    for (int i = 0; i < stage_tiles; ++i) {
        for (int j = 0; j < 2; ++j)
            weights[i * kv_page + j * warp_lanes] = scores[i][j];
        total = fmaf(total, keep[i], sum[i]);
        if (lane == 0) shared.keep[i][q] = visible > i * kv_page ? keep[i] : -1.0f;
    }
    warp_sync();  // all lanes have read what one of them writes
    if (lane == 0) {
        shared.sum[q] = total;
        shared.largest[q] = largest[stage_tiles - 1];
    }
}

// A warp's group of dimensions of a tile's values: operands A of two times 16 dimensions and two
// steps of 32 positions, and scales of positions 16 i + 4 t .. + 3.
struct TileValues {
    uint32_t codes[2][2][4];
    Words2 scales[4];
};

template <int dim>
OJ_DEVICE void load_values(const uint8_t* values, TileValues* tile) {
    int group = warp_index() % (dim / kv_group), lane = lane_index(), t = lane % 4;
    const uint8_t* codes = values + kv_scales_bytes(OJ_KV_Q8_0, dim) + group * 2048 + lane * 16;
    OJ_UNROLL_ALL
    for (int i = 0; i < 4; ++i) {
        Words4 a = load16(codes + i * 512);
        uint32_t* to = tile->codes[i / 2][i % 2];
        to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
        tile->scales[i] = load8(values + 2 * value_scale_at(16 * i + 4 * t, group));
    }
}

// The outputs that a warp keeps in registers: one group of 32 dimensions of every `spread`-th
// column group, as accumulators of two mma (16 dimensions x 8 queries each).
template <int dim>
struct SplitOutputs {
    static constexpr int groups = dim / kv_group;
    static constexpr int spread = block_warps / groups;
    static constexpr int own = (max_item_columns + spread - 1) / spread;
    float out[own][2][4];
};

// The warp's column groups in turn, each with its outputs; one copy of the code: outputs move up a
// place in each turn and are where they were after all of them. Float by float: of copies by
// memcpy, nvcc 13.0 lost a half.
template <int dim, class Work>
OJ_DEVICE void for_own_columns(SplitOutputs<dim>* outputs, int n_columns, Work work) {
    using Outputs = SplitOutputs<dim>;
    int column = warp_index() / Outputs::groups;
    OJ_UNROLL(1)
    for (int i = 0; i < Outputs::own; ++i) {
        float out[2][4];
        OJ_UNROLL_ALL
        for (int j = 0; j < 8; ++j)
            out[j / 4][j % 4] = outputs->out[0][j / 4][j % 4];
        if (column < n_columns) work(column, out);
        OJ_UNROLL_ALL
        for (int j = 0; j < 8; ++j) {
            OJ_UNROLL_ALL
            for (int k = 0; k + 1 < Outputs::own; ++k)
                outputs->out[k][j / 4][j % 4] = outputs->out[k + 1][j / 4][j % 4];
            outputs->out[Outputs::own - 1][j / 4][j % 4] = out[j / 4][j % 4];
        }
        column += Outputs::spread;
    }
}

// A lane's scales of a tile of values, of which the group's last row sees `visible` positions: what
// was never stored may be anything.
OJ_DEVICE void value_scales(const TileValues& values, int visible, float (&scales)[16]) {
    int t = lane_index() % 4;
    OJ_UNROLL_ALL
    for (int i = 0; i < 16; ++i) {
        const Words2& words = values.scales[i / 4];
        const uint32_t word = i % 4 < 2 ? words.x : words.y;
        scales[i] = load_half(static_cast<uint16_t>(word >> i % 2 * 16));
        if (i / 4 * 16 + 4 * t + i % 4 >= visible) scales[i] = 0.0f;
    }
}

// out = out * keep + weights x values for a tile of the stage and a column group. A lane's weights
// are of query g and positions 16 i + 4 t .. + 3, as operands B of two steps of 32 positions want
// them.
OJ_DEVICE void add_values(const SplitShared& shared, int tile, int column, const TileValues& values,
                          const float (&scales)[16], float (&out)[2][4]) {
    int g = lane_index() / 4, t = lane_index() % 4, q = column * column_rows;
    const float* from = &shared.weights[q + g][tile * kv_page + 4 * t];
    float weights[16], largest = 0.0f;
    for (int j = 0; j < 4; ++j)
        load_floats<4>(from + 16 * j, weights + 4 * j);
    for (int j = 0; j < 16; ++j) {
        weights[j] *= scales[j];
        largest = fmaxf(largest, fabsf(weights[j]));
    }
    for (int width = 1; width < 4; width *= 2)
        largest = fmaxf(largest, shuffle_xor(largest, width));
    const float factor = quantize16_factor(largest);
    // For an unseen tile, fma(-0, 0, out * 1) is out, whatever that is.
    const float scale = shared.keep[tile][q + g] < 0.0f ? -0.0f : quantize16_scale(largest);
    const float scale2[2] = {shuffle(scale, 8 * t), shuffle(scale, 8 * t + 4)};
    float keep2[2];
    load_pairs<2>(&shared.keep[tile][q + 2 * t], keep2);
    uint32_t high_codes[4], low_codes[4];
    for (int j = 0; j < 4; ++j)
        quantize_codes16(weights + 4 * j, factor, &high_codes[j], &low_codes[j]);
    for (int m = 0; m < 2; ++m) {
        int32_t high[4] = {}, low[4] = {};
        for (int step = 0; step < 2; ++step) {
            mma_s8_k32(high, values.codes[m][step], high_codes + 2 * step);
            mma_s8_k32(low, values.codes[m][step], low_codes + 2 * step);
        }
        for (int j = 0; j < 4; ++j) {
            float isum = static_cast<float>(128 * high[j] + low[j]);
            out[m][j] = fmaf(scale2[j % 2], isum, out[m][j] * fabsf(keep2[j % 2]));
        }
    }
}

template <int dim>
OJ_DEVICE void store_split(const Context& c, const Phase& p, const StepView& view,
                           const SplitShared& shared, const SplitItem& item,
                           SplitOutputs<dim>* outputs) {
    using Outputs = SplitOutputs<dim>;
    int group = warp_index() % Outputs::groups, g = lane_index() / 4, t = lane_index() % 4;
    for_own_columns<dim>(outputs, item.n_columns, [&](int column, float (&out)[2][4]) {
        for (int j = 0; j < 2; ++j) {
            int q = column * column_rows + 2 * t + j;
            if (shared.positions[q] < item.split * kv_split) continue;
            float* to = in_global(partial_of(c, p, view, shared.row_heads[q], item.split));
            if (group == 0 && g == 0) {
                to[0] = shared.largest[q];
                to[1] = shared.sum[q];
            }
            to += 2 + group * kv_group + g;
            for (int m = 0; m < 2; ++m) {
                to[m * 16] = out[m][j];
                to[m * 16 + 8] = out[m][2 + j];
            }
        }
    });
}

// Keys and values of the tile at `keys`, which the warps that will read these keys ask for.
OJ_DEVICE void prefetch_tile(const KvView& kv, const uint8_t* keys) {
    constexpr int line = 128, threads = block_threads / stage_tiles;
    OJ_UNROLL(1)
    for (int at = line * (thread_index() % threads); at < kv.head_bytes; at += line * threads)
        prefetch_line(keys + at);
}

// `keys` is the warp's tile of the item's first stage, and becomes that of the next item's, if
// there is one.
template <int dim>
OJ_DEVICE void attend_split(const Context& c, const Phase& p, const StepView& view,
                            SplitShared& shared, const SplitItem& item, const SplitItem* next,
                            const uint8_t** keys) {
    SplitOutputs<dim> outputs = {};
    int position = item.split * kv_split, end = position + kv_split;
    if (end > item.last + 1) end = item.last + 1;
    StageKeys first = load_keys<dim>(*keys, 0);
    OJ_UNROLL(1)
    for (; position < end; position += stage_positions) {
        TileValues values;
        load_values<dim>(tile_keys(c.kv, item, position) + c.kv.block_bytes, &values);
        const bool is_last = position + stage_positions >= end;
        const uint8_t* next_keys = *keys;
        if (!is_last || next != nullptr) {
            next_keys = stage_keys(c.kv, is_last ? *next : item,
                                   is_last ? next->split * kv_split : position + stage_positions);
            prefetch_tile(c.kv, next_keys);
        }
        stage_scores<dim>(shared, item, *keys, first);
        *keys = next_keys;
        block_sync();
        OJ_UNROLL(1)
        for (int q = warp_index(); q < item.n_columns * column_rows; q += block_warps)
            query_weights(shared, q, position);
        block_sync();
        OJ_UNROLL(1)
        for (int tile = 0; tile < stage_tiles; ++tile) {
            const int begin = position + tile * kv_page;
            if (begin >= end) break;
            TileValues now = values;
            if (tile + 1 < stage_tiles)
                load_values<dim>(tile_keys(c.kv, item, begin + kv_page) + c.kv.block_bytes,
                                 &values);
            float scales[16];
            value_scales(now, end - begin, scales);
            for_own_columns<dim>(&outputs, item.n_columns, [&](int column, float (&out)[2][4]) {
                add_values(shared, tile, column, now, scales, out);
            });
        }
        if (!is_last) first = load_keys<dim>(next_keys, 0);
        block_sync();
    }
    store_split<dim>(c, p, view, shared, item, &outputs);
    block_sync();  // the next item takes the same memory
}

// ---- f16 pages: float products, a warp an item of one query ----

struct TileState {
    float largest, sum, keep;
};

// Scores of positions lane and lane + 32 become weights, those of invisible positions 0;
// visible > 0.
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
    float* to = partial_of(c, p, view, r * c.dims.n_heads + head, split);
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
