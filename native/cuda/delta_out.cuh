// What follows DeltaNet's core: gated norm, and the convolution's past. See engine/numerics.h.
#pragma once

#include "cuda/delta.cuh"

namespace oj::cuda {

// 1 / dim of head sizes 32, 64 and 128, exact: no division.
OJ_DEVICE float one_head_term(int dim) {
    return dim == 128 ? 1.0f / 128.0f : dim == 64 ? 1.0f / 64.0f : 1.0f / 32.0f;
}

// Columns [first, first + 256) of row r: norm of each head in them, gate; into the input. All loads
// are on their way together. What lanes behind the row's end have does not matter.
OJ_DEVICE void gate_piece(const Context& c, const Phase& p, int r, int first) {
    const int cols = c.dims.v_channels(), dim = c.dims.state_dim, lane = lane_index();
    const int own = lane * lane_columns, column = first + own < cols ? first + own : 0;
    const float* core = in_global(c.scratch.core) + static_cast<uint32_t>(r * cols);
    const float* strided = core + first + lane;
    float squared[lane_columns];  // as the norms' sums take them
    OJ_UNROLL_ALL
    for (int i = 0; i < lane_columns; ++i)
        squared[i] = first + i * warp_lanes < cols ? strided[i * warp_lanes] : 0.0f;
    LaneColumns x, gate = {};
    float weight[lane_columns], z[segments_at_once][lane_columns];
    load_floats<lane_columns>(core + column, x.v);
    load_floats<lane_columns>(in_global(p.delta.norm) + (column & (dim - 1)), weight);
    const Segments gates = segments_of(c.scratch.gate, r, column);
    load_segments<lane_columns>(gates, 0, z);
    float scale = 0.0f, squares = 0.0f;
    OJ_UNROLL(1)  // the next one in turn at the front
    for (int end = warp_lanes; end <= piece_columns; end += warp_lanes) {
        squares = fmaf(squared[0], squared[0], squares);
        OJ_UNROLL_ALL
        for (int i = 1; i < lane_columns; ++i)
            squared[i - 1] = squared[i];
        if ((end & (dim - 1)) != 0) continue;  // powers of two
        const float total = warp_sum(squares);
        if (own < end && own >= end - dim) scale = total;
        squares = 0.0f;
    }
    scale = norm_factor(scale * one_head_term(dim) + c.dims.rms_eps);
    add_segments<lane_columns>(gates, 0, z, gate.v);
    silu_columns(gate);
    OJ_UNROLL_ALL
    for (int i = 0; i < lane_columns; ++i)
        x.v[i] = gate.v[i] * (x.v[i] * scale * weight[i]);
    write_input(c.scratch.input, p.forms, r, cols, first, x);
}

// A strip of a run's channels: the past moves over what is history now. Eight lanes have a row.
OJ_DEVICE void keep_past(const Context& c, const DeltaParams& layer, const Run& run, int first) {
    const int channels = c.dims.conv_channels(), past_rows = c.dims.conv_kernel - 1;
    const int slot = run.slot, first_row = run.first_row, n_certain = run.n_certain;
    const int fold = run.fold, record_from = run.record_from, moved = fold + n_certain;
    int row = lane_index() / past_lanes;  // of the past
    int channel = first + lane_index() % past_lanes * lane_columns;
    const bool works = row < past_rows && channel < channels;
    if (!works) row = 0, channel = 0;
    float* past = in_global(c.states.conv(slot, layer.state_layer)) + channel;
    const int token = row + moved - past_rows, of_step = token - fold;
    const float* record = c.states.record(slot, record_from, layer.state_layer, 0);
    const Segments qkv = segments_of(c.scratch.qkv, first_row + of_step, channel);
    // A sum of segments begins with 0; -0 leaves what it is added to as it is.
    Segments from = {past, static_cast<uint32_t>((row + moved) * channels), 0, 1};
    float raw[lane_columns], parts[segments_at_once][lane_columns];
    if (token >= 0) {
        from.data = in_global(record) + channel;
        from.first = static_cast<uint32_t>(token * c.states.record_row_floats);
    }
    if (of_step >= 0) from = qkv;
    load_segments<lane_columns>(from, 0, parts);
    for (int i = 0; i < lane_columns; ++i)
        raw[i] = of_step >= 0 ? 0.0f : -0.0f;
    add_segments<lane_columns>(from, 0, parts, raw);
    warp_sync();  // all lanes have read
    if (works && moved > 0) store_floats<lane_columns>(past + row * channels, raw);
}

OJ_PHASE void phase_delta_out(const Context& c, const Grid& grid, const Phase& p) {
    int pieces = pieces_of_row(c.dims.v_channels()), strips = delta_strips(c.dims);
    int gates = c.step.n_rows * pieces, items = delta_out_items(c.dims, c.step);
    OJ_UNROLL(1)
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        const bool is_gate = item < gates;
        const int index = is_gate ? item : item - gates, each = is_gate ? pieces : strips;
        const int of = quotient(index, each), part = index - of * each;
        if (is_gate) {
            gate_piece(c, p, of, part * piece_columns);
        } else {
            keep_past(c, p.delta, in_global(c.step.runs)[of], part * strip_channels);
        }
    }
}

}  // namespace oj::cuda
