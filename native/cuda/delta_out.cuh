// What follows DeltaNet's core: gated norm, and the convolution's past. See engine/numerics.h.
#pragma once

#include "cuda/delta.cuh"

namespace oj::cuda {

// Not inlined: its code is loaded once for all of a lane's columns.
OJ_PHASE float gate_silu(float x) {
    return silu_f32(x);
}

// Columns [first, first + 256) of row r: norm of each head in them, gate; into the input. All loads
// are on their way together.
OJ_DEVICE void gate_piece(const Context& c, const Phase& p, int r, int first) {
    const int cols = c.dims.v_channels(), dim = c.dims.state_dim, lane = lane_index();
    const int column = first + lane * lane_columns;
    const bool valid = column < cols;
    const float* core = in_global(c.scratch.core) + static_cast<int64_t>(r) * cols;
    float v[lane_columns] = {}, weight[lane_columns] = {}, z[segments_at_once][lane_columns] = {};
    float strided[lane_columns];  // as the norms' sums take them
    OJ_UNROLL_ALL
    for (int i = 0; i < lane_columns; ++i) {
        const int at = first + i * warp_lanes + lane;
        strided[i] = at < cols ? core[at] : 0.0f;
    }
    if (valid) {
        load_floats<lane_columns>(core + column, v);
        load_floats<lane_columns>(in_global(p.delta.norm) + (column & (dim - 1)), weight);
    }
    const Product& gate = c.scratch.gate;
    OJ_UNROLL_ALL
    for (int s = 0; s < segments_at_once; ++s) {
        if (valid && s < gate.n_segments)
            load_floats<lane_columns>(in_global(gate.at(s, r)) + column, z[s]);
    }
    float scale = 0.0f, squares = 0.0f;
    OJ_UNROLL_ALL
    for (int i = 0; i < lane_columns; ++i) {
        squares = fmaf(strided[i], strided[i], squares);
        const int end = (i + 1) * warp_lanes;
        if ((end & (dim - 1)) != 0) continue;  // powers of two
        const float total = warp_sum(squares);
        if (lane * lane_columns < end && lane * lane_columns >= end - dim) scale = total;
        squares = 0.0f;
    }
    scale = inverse_sqrt(scale / static_cast<float>(dim) + c.dims.rms_eps);
    float sum[lane_columns] = {};
    OJ_UNROLL_ALL
    for (int s = 0; s < segments_at_once; ++s) {
        for (int i = 0; i < lane_columns; ++i)
            sum[i] += z[s][i];
    }
    if (valid) add_rest<lane_columns>(gate, segments_at_once, r, column, sum);
    OJ_UNROLL_ALL
    for (int i = 0; i < lane_columns; ++i)
        v[i] = gate_silu(sum[i]) * (v[i] * scale * weight[i]);
    write_input(c.scratch.input, p.forms, r, cols, first, v);
}

// A strip of a run's channels: the past moves over what is history now.
OJ_DEVICE void keep_past(const Context& c, const DeltaParams& layer, const Run& run, int first) {
    const int channels = c.dims.conv_channels(), past_rows = c.dims.conv_kernel - 1;
    const int moved = run.fold + run.n_certain, channel = first + lane_index() * lane_columns;
    if (moved == 0 || channel >= channels) return;
    const Product& qkv = c.scratch.qkv;
    float* past = in_global(c.states.conv(run.slot, layer.state_layer)) + channel;
    float part[past_taps][segments_at_once][lane_columns] = {};
    OJ_UNROLL_ALL
    for (int t = 0; t < past_taps; ++t) {
        const int token = t + moved - past_rows, row = token - run.fold;
        Parts from = {past + (t + moved) * channels, 0, t < past_rows ? 1 : 0};
        if (token >= 0)
            from.from =
                c.states.record(run.slot, run.record_from, layer.state_layer, token) + channel;
        if (row >= 0 && t < past_rows) {
            from = parts_of(qkv, run.first_row + row);
            from.from += channel;
        }
        OJ_UNROLL_ALL
        for (int s = 0; s < segments_at_once; ++s) {
            if (s < from.n)
                load_floats<lane_columns>(
                    in_global(from.from) + static_cast<int64_t>(s) * from.step, part[t][s]);
        }
    }
    OJ_UNROLL_ALL
    for (int t = 0; t < past_taps; ++t) {
        if (t >= past_rows) break;
        const int row = t + moved - past_rows - run.fold;
        float (&raw)[lane_columns] = part[t][0];
        for (int i = 0; row >= 0 && i < lane_columns; ++i)
            raw[i] = 0.0f + raw[i] + part[t][1][i] + part[t][2][i];
        if (row >= 0)
            add_rest<lane_columns>(qkv, segments_at_once, run.first_row + row, channel, raw);
        store_floats<lane_columns>(past + t * channels, raw);
    }
}

OJ_PHASE void phase_delta_out(const Context& c, const Grid& grid, const Phase& p) {
    int pieces = pieces_of_row(c.dims.v_channels()), strips = delta_strips(c.dims);
    int gates = c.step.n_rows * pieces, items = delta_out_items(c.dims, c.step);
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        const bool is_gate = item < gates;
        const int index = is_gate ? item : item - gates, each = is_gate ? pieces : strips;
        const int of = quotient(index, each), first = (index - of * each) * piece_columns;
        if (is_gate) {
            gate_piece(c, p, of, first);
        } else {
            keep_past(c, p.delta, in_global(c.step.runs)[of], first);
        }
    }
}

}  // namespace oj::cuda
