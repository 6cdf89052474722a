// Gated full attention over paged KV: store first, then read what was stored.
#pragma once

#include "cuda/attention_tile.cuh"

namespace oj::cuda {

// ---- queries, keys and values ----

// Norm and partial rotation of one head by one warp, in place in shared memory; pairs
// (d, d + rope_dim / 2).
OJ_DEVICE void norm_and_rotate(const Context& c, const float* weight, int r, float* head) {
    int lane = lane_index();
    int dim = c.dims.head_dim, half = c.dims.rope_dim / 2;
    float squares = sum_squares(head, dim);
    float scale = inverse_sqrt(squares / static_cast<float>(dim) + c.dims.rms_eps);
    for (int d = lane; d < dim; d += warp_lanes)
        head[d] = head[d] * scale * weight[d];
    warp_sync();
    const float* cosines = c.scratch.rotation + static_cast<int64_t>(r) * c.dims.rope_dim;
    const float* sines = cosines + half;
    for (int d = lane; d < half; d += warp_lanes) {
        float low = head[d], high = head[d + half];
        head[d] = fmaf(low, cosines[d], -(high * sines[d]));
        head[d + half] = fmaf(low, sines[d], high * cosines[d]);
    }
    warp_sync();
}

OJ_DEVICE void store_query(const Context& c, const Run& run, int r, int head, const float* query) {
    int lane = lane_index();
    int dim = c.dims.head_dim;
    float scale = 1.0f / sqrtf(static_cast<float>(dim));
    int64_t at = (static_cast<int64_t>(r) * c.dims.n_heads + head) * dim;
    if (c.kv.codec != OJ_KV_Q8_0) {
        for (int d = lane; d < dim; d += warp_lanes)
            c.scratch.query[at + d] = query[d] * scale;
        return;
    }
    int per_kv = c.dims.n_heads / c.dims.n_kv_heads, in_group = (r - run.first_row) % group_rows;
    int column = in_group * per_kv + head % per_kv;
    int8_t* codes = c.scratch.query_codes +
                    query_group_at(c.dims, r - in_group, head / per_kv, column / column_rows);
    for (int d = lane; d < dim; d += warp_lanes) {
        float x = query[d] * scale;
        int magnitude = warp_max(static_cast<int>(float_to_bits(x) & 0x7fffffffu));
        float largest = bits_to_float(static_cast<uint32_t>(magnitude));
        int code = quantize_code(x, quantize16_factor(largest));
        codes[query_code_at(column % column_rows, d, 0)] = static_cast<int8_t>(code16_high(code));
        codes[query_code_at(column % column_rows, d, 1)] = static_cast<int8_t>(code16_low(code));
        if (lane == 0) c.scratch.query_scales[(at + d) / kv_group] = quantize16_scale(largest);
    }
}

// One head of a row into its page.
OJ_DEVICE void store_kv(const Context& c, bool is_key, uint8_t* block, int position,
                        const float* x) {
    int lane = lane_index();
    int dim = c.dims.head_dim;
    uint8_t* codes = block + kv_scales_bytes(c.kv.codec, dim);
    for (int d = lane; d < dim; d += warp_lanes) {
        if (c.kv.codec != OJ_KV_Q8_0) {
            int at = is_key ? d * kv_page + position : position * dim + d;
            reinterpret_cast<uint16_t*>(codes)[at] = kv_half(x[d]);
            continue;
        }
        float largest = fabsf(x[d]);
        for (int width = warp_lanes / 2; width > 0; width /= 2)
            largest = fmaxf(largest, shuffle_xor(largest, width));
        uint16_t scale = kv_scale(largest);
        int at = is_key ? key_code_at(position, d, dim) : value_code_at(position, d);
        reinterpret_cast<int8_t*>(codes)[at] = static_cast<int8_t>(kv_code(x[d], kv_factor(scale)));
        if (lane == 0)
            reinterpret_cast<uint16_t*>(block)[kv_scale_at(position, d / kv_group)] = scale;
    }
}

OJ_DEVICE void load_head(const Product& product, int r, int first, int dim, float* head) {
    int d = lane_index() * lane_columns;
    if (d < dim) {
        float v[lane_columns];
        sum_segments<lane_columns>(product, r, first + d, v);
        store_floats<lane_columns>(head + d, v);
    }
    warp_sync();
}

// One query head (head < n_queries), or the keys or values of one KV head, of a row by one warp.
OJ_DEVICE void prepare_head(const Context& c, const Phase& p, const StepView& view, int r, int head,
                            int n_queries, float* x) {
    const Row& row = view.rows[r];
    const Run& run = view.runs[row.run];
    int dim = c.dims.head_dim;
    if (head < n_queries) {
        load_head(c.scratch.qkv, r, 2 * head * dim, dim, x);
        norm_and_rotate(c, p.attention.q_norm, r, x);
        store_query(c, run, r, head, x);
        return;
    }
    head -= n_queries;
    bool is_key = head < c.dims.n_kv_heads;
    if (!is_key) head -= c.dims.n_kv_heads;
    load_head(is_key ? c.scratch.key : c.scratch.value, r, head * dim, dim, x);
    if (is_key) norm_and_rotate(c, p.attention.k_norm, r, x);
    int page = view.pages[run.first_page + row.position / kv_page];
    uint8_t* block = is_key ? c.kv.keys(page, p.attention.kv_layer, head)
                            : c.kv.values(page, p.attention.kv_layer, head);
    store_kv(c, is_key, block, row.position % kv_page, x);
}

OJ_PHASE void phase_attn_prepare(const Context& c, const Grid& grid, const Phase& p) {
    const StepView& view = view_of(c, p);
    int n_queries = p.kv_only ? 0 : c.dims.n_heads, heads = prepare_heads(c.dims, p.kv_only != 0);
    float* x = reinterpret_cast<float*>(grid.shared) + warp_index() * max_head_dim;
    for (int item = first_item_of_warp(grid); item < view.n_rows * heads; item += warps_of(grid)) {
        int r = item / heads;
        if (view.rows[r].position < 0) continue;
        prepare_head(c, p, view, r, item % heads, n_queries, x);
        warp_sync();
    }
}

// ---- splits ----

// One part of a row group's column groups over one split; false if there is none.
OJ_DEVICE bool find_split(const Context& c, const Phase& p, const StepView& view, int index,
                          int part, int idle_parts, SplitItem* item) {
    int kv_heads = c.dims.n_kv_heads, per_kv = c.dims.n_heads / kv_heads;
    item->split = p.wave * view.wave_splits + index % view.wave_splits;
    item->kv_head = index / view.wave_splits % kv_heads;
    item->group = view.groups[index / view.wave_splits / kv_heads];
    int last = view.rows[item->group.first_row + item->group.n_rows - 1].position;
    if (item->split * kv_split > last) return false;
    int columns = (item->group.n_rows * per_kv + column_rows - 1) / column_rows;
    int parts = (columns + max_item_columns - 1) / max_item_columns;
    if (parts < idle_parts) parts = idle_parts;
    int per_part = (columns + parts - 1) / parts;
    item->first_column = part * per_part;
    item->n_columns = columns - item->first_column;
    if (item->n_columns > per_part) item->n_columns = per_part;
    return item->n_columns > 0;
}

OJ_PHASE void phase_attn_splits(const Context& c, const Grid& grid, const Phase& p) {
    const StepView& view = view_of(c, p);
    if (c.kv.codec != OJ_KV_Q8_0) return attend_floats(c, grid, p, view);
    const SplitWork work = split_work(c.dims, view, grid.n_blocks);
    for (int i = grid.block; i < work.items(); i += grid.n_blocks) {
        SplitItem item;
        if (find_split(c, p, view, i % work.splits, i / work.splits, work.idle_parts, &item))
            attend_split(c, grid, p, view, item);
    }
}

// ---- fold ----

// A lane's output of a head, over splits.
struct SplitTotal {
    float largest, sum, out;
};

// Folds splits [first, end) of one head into `total`, 32 at a time: maxima are a scan, so that the
// weights of all are known before the two chains of sums.
OJ_DEVICE void fold_splits(const float* parts, int stride, int first, int n, int d,
                           SplitTotal* total) {
    int lane = lane_index();
    for (int begin = 0; begin < n; begin += warp_lanes) {
        int count = n - begin < warp_lanes ? n - begin : warp_lanes;
        const float* from = parts + static_cast<int64_t>(begin) * stride;
        float out[warp_lanes];
        OJ_UNROLL_ALL
        for (int s = 0; s < warp_lanes; ++s)
            out[s] = s < count ? from[s * stride + 2 + d] : 0.0f;
        float mine = lane < count ? from[lane * stride] : -INFINITY;
        float sum = lane < count ? from[lane * stride + 1] : 0.0f;
        bool fresh = first + begin == 0;
        float largest = !fresh && total->largest > mine ? total->largest : mine;
        for (int width = 1; width < warp_lanes; width *= 2) {
            float other = shuffle_up(largest, width);
            largest = other > largest ? other : largest;
        }
        float before = shuffle_up(largest, 1);
        if (lane == 0) before = total->largest;
        float keep = exp_f32(before - largest), add = exp_f32(mine - largest);
        sum = sum * add;
        OJ_UNROLL_ALL
        for (int s = 0; s < warp_lanes; ++s) {
            if (s >= count) break;
            float keep_s = shuffle(keep, s), add_s = shuffle(add, s), sum_s = shuffle(sum, s);
            if (s == 0 && fresh) {
                total->sum = shuffle(sum, 0);
                total->out = out[0];
            } else {
                total->sum = fmaf(total->sum, keep_s, sum_s);
                total->out = fmaf(total->out, keep_s, out[s] * add_s);
            }
        }
        total->largest = shuffle(largest, count - 1);
    }
}

// Columns [first, first + 256) of a row's result by a block, 32 a warp.
OJ_DEVICE void fold_piece(const Context& c, const Grid& grid, const Phase& p, const StepView& view,
                          int r, int first) {
    int dim = c.dims.head_dim, cols = c.dims.q_rows(), stride = dim + 2;
    int column = first + thread_index();
    bool valid = column < cols;  // the same in a whole warp
    int head = valid ? column / dim : 0, d = valid ? column % dim : 0;
    int64_t row_head = static_cast<int64_t>(r) * c.dims.n_heads + head;
    float* totals = c.scratch.totals + row_head * stride;
    int begin = p.wave * view.wave_splits, n = view.rows[r].position / kv_split + 1 - begin;
    bool is_last = n <= view.wave_splits;
    if (!is_last) n = view.wave_splits;
    SplitTotal total = {-INFINITY, 0.0f, 0.0f};
    if (begin > 0) total = {totals[0], totals[1], totals[2 + d]};
    const float* parts = c.scratch.partials + row_head * view.wave_splits * stride;
    if (valid) fold_splits(parts, stride, begin, n, d, &total);
    if (!is_last) {
        block_sync();  // the warps of a head have read what they continue
        if (valid) totals[2 + d] = total.out;
        if (valid && d == 0) {
            totals[0] = total.largest;
            totals[1] = total.sum;
        }
        return;
    }
    float* results = reinterpret_cast<float*>(grid.shared);
    if (valid) {
        float gate = sum_segments(c.scratch.qkv, r, (2 * head + 1) * dim + d);
        results[thread_index()] = total.out / total.sum * sigmoid_f32(gate);
    }
    block_sync();
    if (warp_index() == 0) {
        float v[lane_columns];
        load_floats<lane_columns>(results + lane_index() * lane_columns, v);
        write_input(c.scratch.input, p.forms, r, cols, first, v);
    }
    block_sync();  // the next piece takes the same memory
}

// A row's input is written in the wave of its last split.
OJ_PHASE void phase_attn_fold(const Context& c, const Grid& grid, const Phase& p) {
    const StepView& view = view_of(c, p);
    int pieces = pieces_of_row(c.dims.q_rows());
    for (int item = grid.block; item < view.n_rows * pieces; item += grid.n_blocks) {
        int r = item / pieces;
        int position = view.rows[r].position;
        if (position < 0 || position / kv_split < p.wave * view.wave_splits) continue;
        fold_piece(c, grid, p, view, r, item % pieces * piece_columns);
    }
}

}  // namespace oj::cuda
