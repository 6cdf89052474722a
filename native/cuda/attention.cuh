// Gated full attention over paged KV: store first, then read what was stored.
#pragma once

#include "cuda/attention_tile.cuh"

namespace oj::cuda {

// ---- queries, keys and values ----

// What a head is multiplied with: the norm's weights of a lane's columns, the rotation of pair
// `lane`.
struct HeadFactors {
    float weight[lane_columns];
    float cosine, sine;
};

OJ_DEVICE const float* rotation_of(const Context& c, int r) {
    return c.scratch.rotation + static_cast<uint32_t>(r * c.dims.rope_dim);
}

OJ_DEVICE void load_factors(const Context& c, const float* weight, int r, HeadFactors* factors) {
    int lane = lane_index(), half = c.dims.rope_dim / 2, d = lane * lane_columns;
    if (d < c.dims.head_dim) load_floats<lane_columns>(in_global(weight) + d, factors->weight);
    if (lane < half) {
        factors->cosine = in_global(rotation_of(c, r))[lane];
        factors->sine = in_global(rotation_of(c, r))[half + lane];
    }
}

// Norm and partial rotation of one head by one warp through its shared memory; pairs
// (d, d + rope_dim / 2). A lane has eight neighbouring columns.
OJ_DEVICE void norm_and_rotate(const Context& c, HeadFactors& factors, int r,
                               float (&x)[lane_columns], float* head) {
    int lane = lane_index(), d = lane * lane_columns;
    int dim = c.dims.head_dim, half = c.dims.rope_dim / 2;
    if (d < dim) store_floats<lane_columns>(head + d, x);
    warp_sync();
    float squares = 0.0f;
    OJ_UNROLL(1)
    for (int k = lane; k < dim; k += 2 * warp_lanes) {
        const float first = head[k], second = head[k + warp_lanes];
        squares = fmaf(first, first, squares);
        squares = fmaf(second, second, squares);
    }
    squares = warp_sum(squares);
    // Divided by 64, 128 or 256: exact.
    const float term = dim == 256 ? 1.0f / 256.0f : dim == 128 ? 1.0f / 128.0f : 1.0f / 64.0f;
    const float scale = norm_factor(squares * term + c.dims.rms_eps);
    for (int i = 0; i < lane_columns; ++i)
        x[i] = x[i] * scale * factors.weight[i];
    warp_sync();
    if (d < dim) store_floats<lane_columns>(head + d, x);
    warp_sync();
    OJ_UNROLL(1)
    for (int pair = lane; pair < half; pair += warp_lanes) {
        float low = head[pair], high = head[pair + half];
        head[pair] = fmaf(low, factors.cosine, -(high * factors.sine));
        head[pair + half] = fmaf(low, factors.sine, high * factors.cosine);
        if (pair + warp_lanes >= half) break;
        factors.cosine = rotation_of(c, r)[pair + warp_lanes];
        factors.sine = rotation_of(c, r)[pair + warp_lanes + half];
    }
    warp_sync();
    if (d < dim) load_floats<lane_columns>(head + d, x);
}

// Four lanes have a group of kv_group columns.
constexpr int group_lanes = kv_group / lane_columns;

OJ_DEVICE void store_query(const Context& c, int first_row, int r, int head,
                           float (&x)[lane_columns]) {
    int dim = c.dims.head_dim, d = not_hoisted(lane_index() * lane_columns);
    // 1 / sqrt(dim), no code
    float scale = dim == 64    ? 1.0f / sqrtf(64.0f)
                  : dim == 128 ? 1.0f / sqrtf(128.0f)
                               : 1.0f / sqrtf(256.0f);
    const auto at = static_cast<uint32_t>((r * c.dims.n_heads + head) * dim + d);
    for (int i = 0; i < lane_columns; ++i)
        x[i] = x[i] * scale;
    if (c.kv.codec != OJ_KV_Q8_0) {
        if (d < dim) store_floats<lane_columns>(c.scratch.query + at, x);
        return;
    }
    int per_kv = quotient(c.dims.n_heads, c.dims.n_kv_heads), kv_head = quotient(head, per_kv);
    int in_group = static_cast<int>(static_cast<uint32_t>(r - first_row) % group_rows);
    int column = in_group * per_kv + head - kv_head * per_kv;
    int8_t* codes = in_global(c.scratch.query_codes) +
                    query_group_at(c.dims, r - in_group, kv_head, quotient(column, column_rows));
    int largest = largest_magnitude(x);
    for (int width = 1; width < group_lanes; width *= 2) {
        int other = shuffle_xor(largest, width);
        largest = other > largest ? other : largest;
    }
    // The factor in even lanes, the scale in odd ones: one division for both.
    const float magnitude = bits_to_float(static_cast<uint32_t>(largest));
    const bool is_scale = lane_index() % 2 != 0;
    float both = (is_scale ? magnitude : largest_code16) / (is_scale ? largest_code16 : magnitude);
    if (!(magnitude > 1e-30f)) both = 0.0f;
    const float factor = shuffle(both, lane_index() & ~1);
    if (d >= dim) return;
    codes += query_code_at(column & (column_rows - 1), d);
    for (int i = 0; i < lane_columns; i += 4) {  // four columns on is the next lane of an operand
        uint32_t high, low;
        quantize_codes16(x + i, factor, &high, &low);
        *reinterpret_cast<uint32_t*>(codes + 4 * i) = high;
        *reinterpret_cast<uint32_t*>(codes + 4 * i + query_low) = low;
    }
    if (lane_index() % group_lanes == 1) in_global(c.scratch.query_scales)[at / kv_group] = both;
}

// One head of a row into its page.
OJ_DEVICE void store_kv(const Context& c, bool is_key, uint8_t* block, int position,
                        float (&x)[lane_columns]) {
    int dim = c.dims.head_dim, d = not_hoisted(lane_index() * lane_columns);
    if (c.kv.codec != OJ_KV_Q8_0) {
        auto* halves = reinterpret_cast<uint16_t*>(block);
        halves += is_key ? d * kv_page + position : position * dim + d;
        OJ_UNROLL(1)  // each column in turn at the front
        for (int i = 0; d < dim && i < lane_columns; ++i) {
            halves[is_key ? i * kv_page : i] = kv_half(x[0]);
            OJ_UNROLL_ALL
            for (int j = 1; j < lane_columns; ++j)
                x[j - 1] = x[j];
        }
        return;
    }
    float largest = 0.0f;
    for (int i = 0; i < lane_columns; ++i)
        largest = fmaxf(largest, fabsf(x[i]));
    for (int width = 1; width < group_lanes; width *= 2)
        largest = fmaxf(largest, shuffle_xor(largest, width));
    if (d >= dim) return;
    uint16_t scale = kv_scale(largest);
    float factor = kv_factor(scale);
    uint8_t* codes = block + kv_scales_bytes(OJ_KV_Q8_0, dim);
    codes += is_key ? key_code_at(position, d, dim) : value_code_at(position, d);
    OJ_UNROLL(
        1)  // four columns on is the next lane of an operand, of values one column the next row
    for (int i = 0; i < lane_columns; i += 4) {
        uint32_t word = 0;
        for (int j = 0; j < 4; ++j) {
            uint32_t code = static_cast<uint32_t>(kv_code(x[j], factor)) & 255u;
            if (!is_key) codes[(i + j) * 64] = static_cast<uint8_t>(code);
            word |= code << (8 * j);
        }
        if (is_key) *reinterpret_cast<uint32_t*>(codes + 4 * i) = word;
        for (int j = 0; j < 4; ++j)
            x[j] = x[j + 4];
    }
    int group = d / kv_group;
    int at = is_key ? key_scale_at(position, group, dim) : value_scale_at(position, group);
    if (lane_index() % group_lanes == 0) reinterpret_cast<uint16_t*>(block)[at] = scale;
}

// One query head (head < n_queries), or the keys or values of one KV head, of a row by one warp.
OJ_DEVICE void prepare_head(const Context& c, const Phase& p, const StepView& view, int r, int head,
                            int n_queries, float* shared) {
    const Row& row = in_global(view.rows)[r];
    const int position = row.position, run_index = row.run;
    int dim = c.dims.head_dim, d = lane_index() * lane_columns, n_kv = c.dims.n_kv_heads;
    bool is_query = head < n_queries, is_key = !is_query && head - n_queries < n_kv;
    int kv_head = is_query || is_key ? head - n_queries : head - n_queries - n_kv;
    const Product& product = is_query ? c.scratch.qkv : is_key ? c.scratch.key : c.scratch.value;
    HeadFactors factors = {};
    if (is_query || is_key)
        load_factors(c, is_query ? p.attention.q_norm : p.attention.k_norm, r, &factors);
    const int o = (is_query ? 2 * head : kv_head) * dim + (d < dim ? d : 0);
    const Segments segments = segments_of(product, r, o);
    float parts[segments_at_once][lane_columns], x[lane_columns] = {};
    load_segments<lane_columns>(segments, 0, parts);
    // Comes while a query or key is normed. A draft pass's row without a position stores nothing,
    // but that is asked for late: the loads are on their way by then.
    const Run& run = in_global(view.runs)[run_index];
    const int of_run = *(is_query ? &run.first_row : &run.first_page);
    add_segments<lane_columns>(segments, 0, parts, x);
    if (is_query || is_key) norm_and_rotate(c, factors, r, x, shared);
    if (position < 0) return;
    if (is_query) return store_query(c, of_run, r, head, x);
    const int page = in_global(view.pages)[of_run + quotient(position, kv_page)];
    uint8_t* block = is_key ? c.kv.keys(page, p.attention.kv_layer, kv_head)
                            : c.kv.values(page, p.attention.kv_layer, kv_head);
    store_kv(c, is_key, block, position & (kv_page - 1), x);
}

OJ_PHASE void phase_attn_prepare(const Context& c, const Grid& grid, const Phase& p) {
    const StepView& view = view_of(c, p);
    int n_queries = p.kv_only ? 0 : c.dims.n_heads, heads = prepare_heads(c.dims, p.kv_only != 0);
    float* x = reinterpret_cast<float*>(shared_memory()) + warp_index() * max_head_dim;
    OJ_UNROLL(1)
    for (int item = first_item_of_warp(grid); item < view.n_rows * heads; item += warps_of(grid)) {
        int r = quotient(item, heads);
        prepare_head(c, p, view, r, item - r * heads, n_queries, x);
        warp_sync();
    }
}

// ---- splits ----

// Item `index`: one part of a row group's column groups over one split; false if there is none.
// Items at the same time are neighbouring splits, then groups that may read the same pages.
OJ_DEVICE bool find_split(const Context& c, const Phase& p, const StepView& view,
                          const SplitWork& work, int index, SplitItem* item) {
    int per_kv = quotient(c.dims.n_heads, c.dims.n_kv_heads);
    int rest = quotient(index, view.wave_splits);
    item->split = p.wave * view.wave_splits + index - rest * view.wave_splits;
    int groups = quotient(rest, work.parts), part = rest - groups * work.parts;
    item->kv_head = quotient(groups, view.n_groups);
    item->group = view.groups[groups - item->kv_head * view.n_groups];
    const Row& last = view.rows[item->group.first_row + item->group.n_rows - 1];
    item->last = last.position;
    if (item->split * kv_split > item->last) return false;
    item->pages = view.pages + view.runs[last.run].first_page;
    item->kv = c.kv.keys(0, p.attention.kv_layer, item->kv_head);
    int columns = (item->group.n_rows * per_kv + column_rows - 1) / column_rows;
    int parts = (columns + max_item_columns - 1) / max_item_columns;
    if (parts < work.idle_parts) parts = work.idle_parts;
    int per_part = quotient(columns + parts - 1, parts);
    item->first_column = part * per_part;
    item->queries = c.scratch.query_codes + query_group_at(c.dims, item->group.first_row,
                                                           item->kv_head, item->first_column);
    item->n_columns = columns - item->first_column;
    if (item->n_columns > per_part) item->n_columns = per_part;
    return item->n_columns > 0;
}

// The block's items at and behind `first` in shared memory, a lane each; by one warp.
OJ_DEVICE void find_items(const Context& c, const Grid& grid, const Phase& p, const StepView& view,
                          int first, SplitShared& shared) {
    const SplitWork work = split_work(c.dims, view, grid.n_blocks);
    int index = first + lane_index() * grid.n_blocks;
    SplitItem item = {};
    bool found = index < work.items() && find_split(c, p, view, work, index, &item);
    uint32_t all = warp_ballot(found), before = (1u << lane_index()) - 1;
    if (found) shared.items[count_bits(all & before)] = item;
    if (lane_index() > 0) return;
    shared.n_items = count_bits(all);
    shared.more_items = first + warp_lanes * grid.n_blocks < work.items();
}

template <int dim>
OJ_DEVICE void attend_codes(const Context& c, const Grid& grid, const Phase& p,
                            const StepView& view) {
    SplitShared& shared = split_shared();
    bool more = true;
    OJ_UNROLL(1)
    for (int first = grid.block; more; first += warp_lanes * grid.n_blocks) {
        if (warp_index() == 0) find_items(c, grid, p, view, first, shared);
        block_sync();
        more = shared.more_items;
        const uint8_t* keys = nullptr;
        if (shared.n_items > 0) keys = first_keys(c.kv, shared.items[0]);
        OJ_UNROLL(1)
        for (int i = 0; i < shared.n_items; ++i) {
            const SplitItem* next = i + 1 < shared.n_items ? &shared.items[i + 1] : nullptr;
            start_split<dim>(c, view, shared, shared.items[i]);
            block_sync();
            attend_split<dim>(c, p, view, shared, shared.items[i], next, &keys);
        }
        block_sync();  // the next items take the same memory
    }
}

// Head sizes 64, 128 and 256; the backend refuses others.
OJ_PHASE void phase_attn_splits(const Context& c, const Grid& grid, const Phase& p) {
    const StepView& view = view_of(c, p);
    if (c.kv.codec != OJ_KV_Q8_0) return attend_floats(c, grid, p, view);
    if (c.dims.head_dim == 64) return attend_codes<64>(c, grid, p, view);
    if (c.dims.head_dim == 128) return attend_codes<128>(c, grid, p, view);
    attend_codes<256>(c, grid, p, view);
}

// ---- fold ----

// A lane's outputs of a head, over splits.
struct SplitTotal {
    float largest, sum;
    float out[lane_columns];
};

constexpr int splits_at_once = 4;  // whose loads are under way together

// What of a row's head its splits of a wave have left, for one lane.
struct HeadParts {
    const float* first;  // split's
    int splits, stride;  // of the wave; from one to the next
    int d;               // the lane's first column of the head

    // What begins at `offset` of a split, of the last one where there are not so many.
    OJ_HD const float* at(int split, int offset) const {
        const int from = (split < splits ? split : splits - 1) * stride;
        return first + static_cast<uint32_t>(from + offset);
    }
};

// The lane's outputs of `splits_at_once` splits.
OJ_DEVICE void load_splits(const HeadParts& parts, int split,
                           float (&out)[splits_at_once][lane_columns]) {
    OJ_UNROLL_ALL
    for (int i = 0; i < splits_at_once; ++i)
        load_pairs<lane_columns>(parts.at(split + i, 2 + parts.d), out[i]);
}

// Folds the first n of the splits into `total`, which is of the waves before if there are any, a
// batch of as many as the head has lanes at a time, which find their weights together: maxima are a
// scan. The next splits are on their way while others are added, the first ones while `n` is: no
// branch asks for it before.
OJ_DEVICE void fold_splits(const HeadParts& parts, int n, bool continues, SplitTotal* total) {
    const int lanes = quotient(parts.stride - 2, lane_columns);  // of a head: a power of two
    const int lane = lane_index() & (lanes - 1), first_lane = lane_index() - lane;
    int begin = 0;
    OJ_UNROLL(1)
    do {
        const bool fresh = begin == 0 && !continues;
        const Words2 mine = load8(parts.at(begin + lane, 0));
        if (fresh) load_pairs<lane_columns>(parts.at(0, 2 + parts.d), total->out);
        int s = begin + (fresh ? 1 : 0);
        float out[splits_at_once][lane_columns];
        load_splits(parts, s, out);
        const int end = n - begin < lanes ? n : begin + lanes;
        const float score = begin + lane < end ? bits_to_float(mine.x) : -INFINITY;
        float largest = !fresh && total->largest > score ? total->largest : score;
        OJ_UNROLL(1)
        for (int width = 1; width < lanes; width *= 2) {
            float other = shuffle_up(largest, width);
            largest = lane >= width && other > largest ? other : largest;
        }
        float before = shuffle_up(largest, 1);
        if (lane == 0) before = total->largest;
        const float keep = exp_value(before - largest), add = exp_value(score - largest);
        const float sum = (begin + lane < end ? bits_to_float(mine.y) : 0.0f) * add;
        if (fresh) total->sum = shuffle(sum, first_lane);
        OJ_UNROLL(1)
        do {
            OJ_UNROLL_ALL
            for (int i = 0; i < splits_at_once; ++i) {
                const int source = first_lane + s + i - begin;
                const float keep_s = shuffle(keep, source), add_s = shuffle(add, source);
                const float sum_s = shuffle(sum, source);
                const bool is_there = s + i < end;
                total->sum = is_there ? fmaf(total->sum, keep_s, sum_s) : total->sum;
                for (int j = 0; j < lane_columns; ++j) {
                    const float out_j = fmaf(total->out[j], keep_s, out[i][j] * add_s);
                    total->out[j] = is_there ? out_j : total->out[j];
                }
            }
            s += splits_at_once;
            load_splits(parts, s, out);  // a condition would be a second copy of the loop
        } while (s < end);
        total->largest = shuffle(largest, first_lane + end - begin - 1);
        begin += lanes;
    } while (begin < n);
}

// Columns [first, first + 256) of a row's result by a warp, neighbouring ones a lane. A row's input
// is written in the wave of its last split.
OJ_DEVICE void fold_piece(const Context& c, const Phase& p, const StepView& view, int r,
                          int first) {
    const int position = in_global(view.rows)[r].position;
    int dim = c.dims.head_dim, cols = c.dims.q_rows(), stride = dim + 2;
    int column = first + lane_index() * lane_columns;
    bool valid = column < cols;
    int head = valid ? quotient(column, dim) : 0, d = valid ? column - head * dim : 0;
    const Segments gates = segments_of(c.scratch.qkv, r, (2 * head + 1) * dim + d);
    float gate_parts[segments_at_once][lane_columns];
    load_segments<lane_columns>(gates, 0, gate_parts);
    const int row_head = r * c.dims.n_heads + head, splits = view.wave_splits;
    float* totals = in_global(c.scratch.totals) + static_cast<uint32_t>(row_head * stride);
    const HeadParts parts = {
        in_global(c.scratch.partials) + static_cast<int64_t>(row_head) * (splits * stride), splits,
        stride, d};
    SplitTotal total = {-INFINITY, 0.0f, {}};
    if (p.wave > 0) {
        total.largest = totals[0], total.sum = totals[1];
        load_pairs<lane_columns>(totals + 2 + d, total.out);
    }
    // Splits from this wave's first one on; a draft pass's row may have no position.
    const int n = position < 0 ? 0 : quotient(position, kv_split) + 1 - p.wave * splits;
    fold_splits(parts, n < splits ? n : splits, p.wave > 0, &total);
    if (n <= 0) return;
    if (n > splits) {
        warp_sync();  // the head's lanes have read what they continue
        if (valid && d == 0) totals[0] = total.largest, totals[1] = total.sum;
        for (int i = 0; valid && i < lane_columns; ++i)
            totals[2 + d + i] = total.out[i];
        return;
    }
    LaneColumns gate = {};
    add_segments<lane_columns>(gates, 0, gate_parts, gate.v);
    OJ_UNROLL(1)  // each two columns in turn at the front
    for (int i = 0; i < lane_columns; i += 2) {
        float results[2];
        OJ_UNROLL_ALL
        for (int k = 0; k < 2; ++k)
            results[k] = total.out[k] / total.sum * sigmoid_f32(gate.v[k]);
        OJ_UNROLL_ALL
        for (int k = 0; k + 2 < lane_columns; ++k)
            gate.v[k] = gate.v[k + 2], total.out[k] = total.out[k + 2];
        gate.v[lane_columns - 2] = results[0], gate.v[lane_columns - 1] = results[1];
    }
    write_input(c.scratch.input, p.forms, r, cols, first, gate);
}

OJ_PHASE void phase_attn_fold(const Context& c, const Grid& grid, const Phase& p) {
    const StepView& view = view_of(c, p);
    int pieces = pieces_of_row(c.dims.q_rows()), items = view.n_rows * pieces;
    OJ_UNROLL(1)
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        int r = quotient(item, pieces);
        fold_piece(c, p, view, r, (item - r * pieces) * piece_columns);
    }
}

}  // namespace oj::cuda
