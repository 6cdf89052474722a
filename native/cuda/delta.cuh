// Gated DeltaNet: short convolution, delta rule and gated norm. See engine/numerics.h.
//
// The timeline of a run's raw convolution inputs: the slot's past, the recorded rows that became
// history (Run.fold), the rows of this step. delta_core only reads past and records; delta_out
// moves the past on, so that no block overwrites what another one still reads.
#pragma once

#include "cuda/vector.cuh"

namespace oj::cuda {

constexpr int delta_chains = 4;   // k % 4: a thread each
constexpr int delta_tokens = 16;  // prepared at a time

// The part of a head's state that a block works on, and how it lies in its threads: thread (chain,
// column) holds S[k][column] of the rows k % 4 == chain.
template <int dim>
struct DeltaShape {
    static constexpr int parts = delta_parts(dim);
    static constexpr int columns = dim / parts;
    static constexpr int terms = dim / delta_chains;
    static constexpr int chain_stride = terms + 4;  // chains in different banks
    static constexpr int head_terms = dim / warp_lanes;

    // A token as the recurrence reads it.
    struct Token {
        float query[delta_chains * chain_stride];
        float key[delta_chains * chain_stride];
        float value[columns];
        float decay, beta, unused[2];
    };
    static_assert(sizeof(Token) * delta_tokens <= phase_shared_bytes);

    OJ_HD static int chain_index(int k) {
        return k % delta_chains * chain_stride + k / delta_chains;
    }
};

// One DeltaNet layer of one run.
struct DeltaRun {
    const Context& c;
    const DeltaParams& layer;
    const Run& run;

    // A row of records, or of the slot's past.
    OJ_HD const float* recorded(int row) const {
        return c.states.record(run.slot, run.record_from, layer.state_layer, row);
    }
    OJ_HD float* to_record(int row) const {
        return c.states.record(run.slot, run.record_to, layer.state_layer, row);
    }
    OJ_HD float* past() const { return c.states.conv(run.slot, layer.state_layer); }
};

// Raw input `row` rows after the run's first one (negative: before it).
OJ_DEVICE float raw_input(const DeltaRun& d, int row, int channel) {
    if (row >= 0) return sum_segments(d.c.scratch.qkv, d.run.first_row + row, channel);
    row += d.run.fold;
    if (row >= 0) return d.recorded(row)[channel];
    row += d.c.dims.conv_kernel - 1;
    return d.past()[static_cast<int64_t>(row) * d.c.dims.conv_channels() + channel];
}

// Convolution and SiLU of a lane's channels first + lane, first + lane + 32, ... of a row. What the
// taps read is loaded together, segment by segment.
template <int n>
OJ_DEVICE void conv_silu(const DeltaRun& d, int row, int first, float (&out)[n]) {
    int taps = d.c.dims.conv_kernel, channel = first + lane_index();
    const Product& qkv = d.c.scratch.qkv;
    float raw[max_taps][n] = {};
    for (int s = 0; s < qkv.n_segments; ++s) {
        OJ_UNROLL_ALL
        for (int t = 0; t < max_taps; ++t) {
            int at = row - t;  // t counts back from this row
            if (t >= taps || at < 0) continue;
            for (int i = 0; i < n; ++i)
                raw[t][i] += qkv.at(s, d.run.first_row + at)[channel + i * warp_lanes];
        }
    }
    OJ_UNROLL_ALL
    for (int t = 0; t < max_taps; ++t) {
        if (t >= taps || row - t >= 0) continue;
        for (int i = 0; i < n; ++i)
            raw[t][i] = raw_input(d, row - t, channel + i * warp_lanes);
    }
    const float* weight = d.layer.conv + channel;
    for (int i = 0; i < n; ++i)
        out[i] = 0.0f;
    OJ_UNROLL_ALL
    for (int t = max_taps - 1; t >= 0; --t) {
        if (t >= taps) continue;
        const float* of_tap =
            weight + static_cast<int64_t>(taps - 1 - t) * d.c.dims.conv_channels();
        for (int i = 0; i < n; ++i) {
            float w = of_tap[i * warp_lanes];
            out[i] = t == taps - 1 ? w * raw[t][i] : fmaf(w, raw[t][i], out[i]);
        }
    }
    for (int i = 0; i < n; ++i)
        out[i] = silu_f32(out[i]);
}

// A query or key head of row `row` by one warp, normalised, into `to` and, if not null, a record.
template <int dim>
OJ_DEVICE void mix_head(const DeltaRun& d, int row, int first, float scale, float* to,
                        float* record) {
    int lane = lane_index();
    using Shape = DeltaShape<dim>;
    float v[Shape::head_terms];
    conv_silu(d, row, first, v);
    float squares = 0.0f;
    for (int i = 0; i < Shape::head_terms; ++i)
        squares = fmaf(v[i], v[i], squares);
    float factor = inverse_sqrt(warp_sum(squares) + d.c.dims.rms_eps) * scale;
    for (int i = 0; i < Shape::head_terms; ++i) {
        int k = i * warp_lanes + lane;
        float value = v[i] * factor;
        to[Shape::chain_index(k)] = value;
        if (record != nullptr) record[first + k] = value;
    }
}

// One of a token's vectors (`job` 0: query, 1: key, 2: values of the part) of row `row` by a warp.
// `head` and `part` 0 of the first V head of a Q and K head write its record.
template <int dim>
OJ_DEVICE void mix_row(const DeltaRun& d, int row, int job, int head, int part,
                       typename DeltaShape<dim>::Token* token) {
    int lane = lane_index();
    using Shape = DeltaShape<dim>;
    const Dims& dims = d.c.dims;
    bool is_draft = row >= d.run.n_certain;
    float* record = nullptr;
    if (is_draft) record = d.to_record(row - d.run.n_certain) + dims.conv_channels();
    if (job < 2) {
        int first = head % dims.n_k_heads * dim + job * dims.k_channels();
        float scale = job == 0 ? 1.0f / sqrtf(static_cast<float>(dim)) : 1.0f;
        bool writes = part == 0 && head < dims.n_k_heads;
        mix_head<dim>(d, row, first, scale, job == 0 ? token->query : token->key,
                      writes ? record : nullptr);
        return;
    }
    int first = 2 * dims.k_channels() + head * dim + part * Shape::columns;
    float v[Shape::columns / warp_lanes];
    conv_silu(d, row, first, v);
    for (int i = 0; i < Shape::columns / warp_lanes; ++i) {
        int column = i * warp_lanes + lane;
        token->value[column] = v[i];
        if (record != nullptr) record[first + column] = v[i];
    }
}

// The same for recorded row `row`, whose query nobody asks for.
template <int dim>
OJ_DEVICE void replay_row(const DeltaRun& d, int row, int job, int head, int part,
                          typename DeltaShape<dim>::Token* token) {
    int lane = lane_index();
    using Shape = DeltaShape<dim>;
    const Dims& dims = d.c.dims;
    const float* mixed = d.recorded(row) + dims.conv_channels();
    if (job == 1) {
        const float* key = mixed + dims.k_channels() + head % dims.n_k_heads * dim;
        for (int k = lane; k < dim; k += warp_lanes)
            token->key[Shape::chain_index(k)] = key[k];
    } else if (job == 2) {
        const float* value = mixed + 2 * dims.k_channels() + head * dim + part * Shape::columns;
        for (int i = lane; i < Shape::columns; i += warp_lanes)
            token->value[i] = value[i];
    }
}

// Decay and beta of a token; `row` is negative for recorded ones.
template <int dim>
OJ_DEVICE void make_gates(const DeltaRun& d, int row, int head, int part,
                          typename DeltaShape<dim>::Token* token) {
    const Dims& dims = d.c.dims;
    if (row < 0) {
        const float* gates = d.recorded(row + d.run.fold) + 2 * dims.conv_channels();
        token->decay = gates[head];
        token->beta = gates[dims.n_v_heads + head];
        return;
    }
    int r = d.run.first_row + row;
    float alpha = sum_segments(d.c.scratch.alpha, r, head);
    token->decay = exp_f32(d.layer.a[head] * softplus_f32(alpha + d.layer.dt[head]));
    token->beta = sigmoid_f32(sum_segments(d.c.scratch.beta, r, head));
    if (part == 0 && row >= d.run.n_certain) {
        float* gates = d.to_record(row - d.run.n_certain) + 2 * dims.conv_channels();
        gates[head] = token->decay;
        gates[dims.n_v_heads + head] = token->beta;
    }
}

// Tokens [first, first + n) of a run, counted from its first recorded row, by a whole block.
template <int dim>
OJ_DEVICE void prepare_tokens(const DeltaRun& d, int first, int n, int head, int part,
                              typename DeltaShape<dim>::Token* tokens) {
    for (int job = warp_index(); job < 3 * n + 1; job += block_warps) {
        if (job == 3 * n) {
            int i = lane_index();
            if (i < n) make_gates<dim>(d, first + i - d.run.fold, head, part, tokens + i);
            continue;
        }
        int i = job / 3, row = first + i - d.run.fold;
        if (row < 0) {
            replay_row<dim>(d, first + i, job % 3, head, part, tokens + i);
        } else {
            mix_row<dim>(d, row, job % 3, head, part, tokens + i);
        }
    }
}

// (m_0 + m_1) + (m_2 + m_3) over the four lanes of a column.
OJ_DEVICE float join_chains(float chain) {
    chain = chain + shuffle_xor(chain, 8);
    return chain + shuffle_xor(chain, 16);
}

// One token through a thread's part of the state; the output of its column.
template <int terms>
OJ_DEVICE float delta_token(float (&state)[terms], const float* key, const float* query,
                            float value, float decay, float beta) {
    float m = 0.0f;
    OJ_UNROLL_ALL
    for (int i = 0; i < terms; i += 4) {
        float k[4];
        load_floats<4>(key + i, k);
        for (int j = 0; j < 4; ++j) {
            state[i + j] = state[i + j] * decay;
            m = fmaf(state[i + j], k[j], m);
        }
    }
    float delta = beta * (value - join_chains(m));
    float out = 0.0f;
    OJ_UNROLL_ALL
    for (int i = 0; i < terms; i += 4) {
        float k[4], q[4];
        load_floats<4>(key + i, k);
        load_floats<4>(query + i, q);
        for (int j = 0; j < 4; ++j) {
            state[i + j] = fmaf(k[j], delta, state[i + j]);
            out = fmaf(state[i + j], q[j], out);
        }
    }
    return join_chains(out);
}

// One part of one V head of a run: recorded rows that are history now, certain rows, drafts.
template <int dim>
OJ_DEVICE void delta_part(const DeltaRun& d, const Grid& grid, int head, int part) {
    using Shape = DeltaShape<dim>;
    const Run& run = d.run;
    auto* tokens = reinterpret_cast<typename Shape::Token*>(grid.shared);
    bool works = warp_index() < Shape::columns / 8;
    int chain = lane_index() / 8, local = warp_index() * 8 + lane_index() % 8;
    int column = part * Shape::columns + local;
    float* head_state = d.c.states.head(run.slot, d.layer.state_layer, head);
    float state[Shape::terms];
    if (works) {
        OJ_UNROLL_ALL
        for (int i = 0; i < Shape::terms; ++i)
            state[i] = head_state[(i * delta_chains + chain) * dim + column];
    }
    int kept = run.fold + run.n_certain, total = run.fold + run.n_rows;
    for (int first = 0; first < total; first += delta_tokens) {
        int n = total - first < delta_tokens ? total - first : delta_tokens;
        prepare_tokens<dim>(d, first, n, head, part, tokens);
        block_sync();
        for (int i = 0; works && i < n; ++i) {
            const typename Shape::Token& token = tokens[i];
            int offset = chain * Shape::chain_stride, row = first + i - run.fold;
            float out = delta_token<Shape::terms>(state, token.key + offset, token.query + offset,
                                                  token.value[local], token.decay, token.beta);
            if (row >= 0 && chain == 0) {
                int64_t r = run.first_row + row;
                d.c.scratch.core[r * d.c.dims.v_channels() + head * dim + column] = out;
            }
            if (first + i + 1 == kept) {
                OJ_UNROLL_ALL
                for (int j = 0; j < Shape::terms; ++j)
                    head_state[(j * delta_chains + chain) * dim + column] = state[j];
            }
        }
        block_sync();
    }
}

template <int dim>
OJ_PHASE void delta_items(const Context& c, const Grid& grid, const Phase& p) {
    constexpr int parts = DeltaShape<dim>::parts;
    const int per_run = c.dims.n_v_heads * parts, items = delta_core_items(c.dims, c.step);
    for (int item = grid.block; item < items; item += grid.n_blocks) {
        DeltaRun d = {c, p.delta, c.step.runs[item / per_run]};
        delta_part<dim>(d, grid, item % per_run / parts, item % parts);
    }
}

// Head sizes 32, 64 and 128; the backend refuses others.
OJ_PHASE void phase_delta_core(const Context& c, const Grid& grid, const Phase& p) {
    if (c.dims.state_dim == 128) {
        delta_items<128>(c, grid, p);
    } else if (c.dims.state_dim == 64) {
        delta_items<64>(c, grid, p);
    } else {
        delta_items<32>(c, grid, p);
    }
}

// Columns [first, first + 256) of row r: norm of each head in them, gate; into the input.
OJ_DEVICE void gate_piece(const Context& c, const Phase& p, int r, int first) {
    int cols = c.dims.v_channels(), dim = c.dims.state_dim;
    int column = first + lane_index() * lane_columns;
    const float* core = c.scratch.core + static_cast<int64_t>(r) * cols;
    float v[lane_columns] = {}, z[lane_columns] = {}, weight[lane_columns] = {};
    if (column < cols) {
        load_floats<lane_columns>(core + column, v);
        load_floats<lane_columns>(p.delta.norm + column % dim, weight);
        sum_segments<lane_columns>(c.scratch.gate, r, column, z);
    }
    float scale = 0.0f;
    for (int head = first; head < first + piece_columns && head < cols; head += dim) {
        float squares = sum_squares(core + head, dim);
        if (column >= head && column < head + dim) scale = squares;
    }
    scale = inverse_sqrt(scale / static_cast<float>(dim) + c.dims.rms_eps);
    for (int i = 0; i < lane_columns; ++i)
        v[i] = silu_f32(z[i]) * (v[i] * scale * weight[i]);
    write_input(c.scratch.input, p.forms, r, cols, first, v);
}

// One channel of a run: the past moves over what is history now; raw inputs of drafts are recorded.
OJ_DEVICE void keep_channel(const DeltaRun& d, int channel) {
    int past_rows = d.c.dims.conv_kernel - 1, moved = d.run.fold + d.run.n_certain;
    float* past = d.past() + channel;
    for (int t = 0; moved > 0 && t < past_rows; ++t) {  // reads are never behind the writes
        int row = t + moved - past_rows - d.run.fold;
        past[static_cast<int64_t>(t) * d.c.dims.conv_channels()] = raw_input(d, row, channel);
    }
    for (int row = d.run.n_certain; row < d.run.n_rows; ++row)
        d.to_record(row - d.run.n_certain)[channel] = raw_input(d, row, channel);
}

OJ_PHASE void phase_delta_out(const Context& c, const Grid& grid, const Phase& p) {
    int pieces = pieces_of_row(c.dims.v_channels());
    int channels = c.dims.conv_channels(), strips = delta_strips(c.dims);
    int gates = c.step.n_rows * pieces, items = delta_out_items(c.dims, c.step);
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        if (item < gates) {
            gate_piece(c, p, item / pieces, item % pieces * piece_columns);
            continue;
        }
        DeltaRun d = {c, p.delta, c.step.runs[(item - gates) / strips]};
        int channel = (item - gates) % strips * warp_lanes + lane_index();
        if (channel < channels) keep_channel(d, channel);
    }
}

}  // namespace oj::cuda
