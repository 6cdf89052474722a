// Gated DeltaNet: short convolution and delta rule. See engine/numerics.h.
//
// The timeline of a run's raw convolution inputs: the slot's past, the recorded rows that became
// history (Run.fold), the rows of this step. delta_core only reads past and records of the step
// before; delta_out moves the past on, so that no block overwrites what another one still reads.
#pragma once

#include "cuda/ptx.h"
#include "cuda/vector.cuh"

namespace oj::cuda {

constexpr int delta_chains = 4;   // k % 4: a thread each
constexpr int delta_tokens = 5;   // of a run, between two meetings of the block
constexpr int delta_batch = 16;   // items that a block looks up together
constexpr int sector_floats = 8;  // 32 bytes, the least that memory brings
constexpr int past_taps = max_taps - 1;

// What a block works on in turn: one part of one V head of a run.
struct alignas(16) DeltaItem {
    float* state;           // from its first column on
    const float* past;      // of the convolution
    const float* recorded;  // rows of the step before
    float* drafts;          // where this step's are recorded
    int32_t first_row, n_rows, n_certain, fold;
    int32_t head, part, writes_keys;
    int32_t to_layer[3];  // added to a query's, key's, value's channel of the part: the layer's

    OJ_HD int tokens() const { return fold + n_rows; }
};

// Tokens [first, first + n) of an item, counted from its run's first recorded row.
struct DeltaChunk {
    int item, first, n;
};

// The part of a head's state that a block works on, and how it lies in its threads: thread (chain,
// column) holds S[k][column] of the rows k % 4 == chain.
template <int dim>
struct DeltaShape {
    static constexpr int parts = delta_parts(dim);
    static constexpr int columns = dim / parts;
    static constexpr int terms = dim / delta_chains;
    static constexpr int chain_stride = terms + 4;  // chains in different banks
    static constexpr int vector_stride = delta_chains * chain_stride;
    static constexpr int head_terms = dim / warp_lanes;
    static constexpr int strips = columns / warp_lanes;
    static constexpr int channels = 2 * dim + columns;  // of the convolution: query, key, values
    static constexpr int row_threads = channels / lane_columns;  // that load a row together
    static_assert(block_threads / row_threads >= delta_tokens);

    // A token as the recurrence reads it.
    struct Token {
        float vectors[2 * vector_stride + columns];  // query and key by chains, values
        float decay, beta, unused[2];
    };

    struct Shared {
        DeltaItem items[delta_batch];
        Token tokens[delta_tokens];
        float raw[past_taps + delta_tokens][channels];
        float weights[max_taps][channels];  // by rows before the token
    };
    static_assert(sizeof(Shared) <= phase_shared_bytes);

    OJ_HD static int chain_index(int k) {
        return k % delta_chains * chain_stride + k / delta_chains;
    }
    // Where a channel of the part lies in Token.vectors.
    OJ_HD static int vector_index(int channel) {
        if (channel >= 2 * dim) return 2 * vector_stride + channel - 2 * dim;
        return channel / dim * vector_stride + chain_index(channel % dim);
    }
    // Which of the layer's channels it is.
    OJ_HD static int layer_channel(const DeltaItem& item, int channel) {
        return channel + item.to_layer[channel / dim];
    }
};

// What a thread has loaded of its chunk's inputs before the block works on them: eight channels of
// a row of each kind. Of a row of this step a part is a segment; a recorded row is one.
struct DeltaInputs {
    float rows[segments_at_once][lane_columns];
    float past[lane_columns], weights[lane_columns];
    float gate[segments_at_once], gate_scale, gate_bias;
};

// The row that a thread loads and shares, and the first of its channels of the part.
struct Place {
    int row, channel;
};
template <int dim>
OJ_DEVICE Place thread_place() {
    constexpr int threads = DeltaShape<dim>::row_threads;
    const int thread = not_hoisted(thread_index());  // nor kept in registers
    return {thread / threads, thread % threads * lane_columns};
}

// One DeltaNet layer for a block.
template <int dim>
struct DeltaBlock {
    const Context& c;
    const DeltaParams& layer;
    typename DeltaShape<dim>::Shared& shared;
};

// A row of the draft records of the step before, of this step.
template <int dim>
OJ_DEVICE const float* recorded_row(const DeltaBlock<dim>& b, const DeltaItem& item, int token) {
    return in_global(item.recorded + token * b.c.states.record_row_floats);
}
template <int dim>
OJ_DEVICE float* draft_record(const DeltaBlock<dim>& b, const DeltaItem& item, int row) {
    return in_global(item.drafts + (row - item.n_certain) * b.c.states.record_row_floats);
}

template <int dim>
OJ_DEVICE bool has_state() {
    return warp_index() < DeltaShape<dim>::columns / 8;
}

// A thread's first number of the state; the others lie delta_chains rows apart.
template <int dim>
OJ_DEVICE float* thread_state(const DeltaItem& item) {
    const int chain = lane_index() / 8, local = warp_index() * 8 + lane_index() % 8;
    return in_global(item.state) + chain * dim + local;
}

// Up to segments_at_once pieces that lie `step` apart.
struct Parts {
    const float* from;
    int step, n;
};
OJ_DEVICE Parts parts_of(const Product& product, int r) {
    return {product.at(0, r), max_step_rows * product.rows, product.n_segments};
}

// Rows of a chunk; with the first chunk of an item the convolution's past and weights.
template <int dim>
OJ_DEVICE void load_rows(const DeltaBlock<dim>& b, const DeltaChunk& chunk, DeltaInputs& in) {
    const Dims& d = b.c.dims;
    const DeltaItem& item = b.shared.items[chunk.item];
    const int taps = d.conv_kernel, channels = d.conv_channels();
    const Place at = thread_place<dim>();
    const int of_layer = DeltaShape<dim>::layer_channel(item, at.channel);
    if (at.row < chunk.n) {
        const int token = chunk.first + at.row;
        Parts row = {recorded_row(b, item, token), 0, 1};
        if (token >= item.fold) row = parts_of(b.c.scratch.qkv, item.first_row + token - item.fold);
        const float* from = in_global(row.from + of_layer);
        OJ_UNROLL_ALL
        for (int s = 0; s < segments_at_once; ++s) {
            for (int i = 0; i < lane_columns; ++i)
                in.rows[s][i] = 0.0f;
            if (s < row.n)
                load_floats<lane_columns>(from + static_cast<int64_t>(s) * row.step, in.rows[s]);
        }
    }
    if (chunk.first > 0 || at.row >= max_taps) return;
    const float* past = in_global(item.past) + of_layer;
    const float* weights = in_global(b.layer.conv) + of_layer;
    const int past_row = taps - max_taps + at.row;
    if (past_row >= 0 && at.row < past_taps)
        load_floats<lane_columns>(past + past_row * channels, in.past);
    if (at.row < taps)
        load_floats<lane_columns>(weights + (taps - 1 - at.row) * channels, in.weights);
}

// What a lane of warp 0 needs for its token's decay, of warp 1 for its beta.
template <int dim>
OJ_DEVICE void load_gates(const DeltaBlock<dim>& b, const DeltaChunk& chunk, DeltaInputs& in) {
    const Dims& d = b.c.dims;
    const DeltaItem item = b.shared.items[chunk.item];
    const int warp = warp_index(), token = chunk.first + lane_index();
    if (warp >= 2 || lane_index() >= chunk.n) return;
    Parts parts = {recorded_row(b, item, token) + d.conv_channels() + warp * d.n_v_heads, 0, 1};
    if (token >= item.fold) {
        parts = parts_of(warp == 0 ? b.c.scratch.alpha : b.c.scratch.beta,
                         item.first_row + token - item.fold);
    }
    const float* from = in_global(parts.from + item.head);
    OJ_UNROLL_ALL
    for (int s = 0; s < segments_at_once; ++s)
        in.gate[s] = s < parts.n ? from[static_cast<int64_t>(s) * parts.step] : 0.0f;
    in.gate_scale = in_global(b.layer.a)[item.head];
    in.gate_bias = in_global(b.layer.dt)[item.head];
}

// Raw values of a chunk into shared memory and, of drafts, into records.
template <int dim>
OJ_DEVICE void share_raw(const DeltaBlock<dim>& b, const DeltaChunk& chunk, const DeltaInputs& in) {
    const DeltaItem& item = b.shared.items[chunk.item];
    const Place at = thread_place<dim>();
    if (at.row < past_taps) store_floats<lane_columns>(&b.shared.raw[at.row][at.channel], in.past);
    if (at.row < max_taps && chunk.first == 0)
        store_floats<lane_columns>(&b.shared.weights[at.row][at.channel], in.weights);
    if (at.row >= chunk.n) return;
    const int row = chunk.first + at.row - item.fold;
    const int of_layer = DeltaShape<dim>::layer_channel(item, at.channel);
    float raw[lane_columns];
    // What is not there is 0, which changes no sum that began with 0; a recorded row is such a sum.
    for (int i = 0; i < lane_columns; ++i)
        raw[i] = 0.0f + in.rows[0][i] + in.rows[1][i] + in.rows[2][i];
    if (row >= 0)
        add_rest<lane_columns>(b.c.scratch.qkv, segments_at_once, item.first_row + row, of_layer,
                               raw);
    store_floats<lane_columns>(&b.shared.raw[past_taps + at.row][at.channel], raw);
    if (row >= item.n_certain && (at.channel >= 2 * dim || item.writes_keys != 0))
        store_floats<lane_columns>(draft_record(b, item, row) + of_layer, raw);
}

// Convolution and SiLU of a channel of a chunk's token.
template <int dim>
OJ_DEVICE float conv_silu(const DeltaBlock<dim>& b, int token, int channel) {
    const int taps = b.c.dims.conv_kernel;
    float out = 0.0f;
    OJ_UNROLL_ALL
    for (int t = max_taps - 1; t >= 0; --t) {  // rows before the token
        if (t >= taps) continue;
        float weight = b.shared.weights[t][channel];
        float raw = b.shared.raw[token + past_taps - t][channel];
        out = t == taps - 1 ? weight * raw : fmaf(weight, raw, out);
    }
    return silu_f32(out);
}

// A token's query (`which` 0) or key, normalised, and a strip of its values, by one warp. Loops are
// not unrolled: the code of a phase is not in the instruction cache when a step comes to it.
template <int dim>
OJ_DEVICE void mix_token(const DeltaBlock<dim>& b, int i, int which) {
    using Shape = DeltaShape<dim>;
    float* to = b.shared.tokens[i].vectors;
    float squares = 0.0f;
    int channel = which * dim + lane_index();
    OJ_UNROLL(1)
    for (int j = 0; j < Shape::head_terms + 1; ++j, channel += warp_lanes) {
        const bool of_head = j < Shape::head_terms;
        if (!of_head && which >= Shape::strips) break;
        if (!of_head) channel = 2 * dim + which * warp_lanes + lane_index();
        const float v = conv_silu(b, i, channel);
        to[Shape::vector_index(channel)] = v;
        if (of_head) squares = fmaf(v, v, squares);
    }
    const float scale = which == 0 ? 1.0f / sqrtf(static_cast<float>(dim)) : 1.0f;
    const float factor = inverse_sqrt(warp_sum(squares) + b.c.dims.rms_eps) * scale;
    channel = which * dim + lane_index();
    OJ_UNROLL(1)
    for (int j = 0; j < Shape::head_terms; ++j, channel += warp_lanes) {
        float& v = to[Shape::vector_index(channel)];
        v = v * factor;
    }
}

// Decay (warp 0) or beta (warp 1) of a lane's token.
template <int dim>
OJ_DEVICE void make_gate(const DeltaBlock<dim>& b, const DeltaChunk& chunk, const DeltaInputs& in) {
    const DeltaItem item = b.shared.items[chunk.item];
    const int lane = lane_index(), row = chunk.first + lane - item.fold;
    const bool decays = warp_index() == 0;
    float gate = in.gate[0];
    if (row >= 0) {
        const Product& gates = decays ? b.c.scratch.alpha : b.c.scratch.beta;
        gate = 0.0f + in.gate[0] + in.gate[1] + in.gate[2];
        add_rest<1>(gates, segments_at_once, item.first_row + row, item.head, &gate);
        gate =
            decays ? exp_f32(in.gate_scale * softplus_f32(gate + in.gate_bias)) : sigmoid_f32(gate);
    }
    (decays ? b.shared.tokens[lane].decay : b.shared.tokens[lane].beta) = gate;
    if (item.part == 0 && row >= item.n_certain) {
        float* gates = draft_record(b, item, row) + b.c.dims.conv_channels();
        gates[(decays ? 0 : b.c.dims.n_v_heads) + item.head] = gate;
    }
}

// The tokens of a chunk, from what share_raw() left.
template <int dim>
OJ_DEVICE void mix_tokens(const DeltaBlock<dim>& b, const DeltaChunk& chunk, DeltaInputs& in) {
    const Place at = thread_place<dim>();
    OJ_UNROLL(1)
    for (int i = warp_index() / 2; i < chunk.n; i += block_warps / 2)
        mix_token(b, i, warp_index() % 2);
    if (warp_index() < 2 && lane_index() < chunk.n) make_gate(b, chunk, in);
    if (at.row < past_taps && chunk.n == delta_tokens)  // of the next chunk
        load_floats<lane_columns>(&b.shared.raw[delta_tokens + at.row][at.channel], in.past);
}

// (m_0 + m_1) + (m_2 + m_3) over the four lanes of a column.
OJ_DEVICE float join_chains(float chain) {
    chain = chain + shuffle_xor(chain, 8);
    return chain + shuffle_xor(chain, 16);
}

// One token through a thread's part of the state; the output of its column.
template <int terms>
OJ_DEVICE float delta_token(float (&state)[terms], const float* query, const float* key,
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

template <int dim>
OJ_DEVICE void load_state(const DeltaItem& item, float (&state)[DeltaShape<dim>::terms]) {
    if (!has_state<dim>()) return;
    const float* from = thread_state<dim>(item);
    OJ_UNROLL_ALL
    for (int k = 0; k < DeltaShape<dim>::terms; ++k)
        state[k] = from[k * delta_chains * dim];
}

// Asks for an item's part of the state, sector by sector, so that it comes from the L2 cache when
// it is loaded.
template <int dim>
OJ_DEVICE void prefetch_state(const DeltaItem& item) {
    constexpr int sectors = DeltaShape<dim>::columns / sector_floats;  // of a row
    constexpr int rows = block_threads / sectors;
    const int row = thread_index() / sectors;
    const float* from =
        in_global(item.state) + row * dim + thread_index() % sectors * sector_floats;
    OJ_UNROLL_ALL
    for (int k = 0; k < dim; k += rows) {
        if (k + row < dim) prefetch_line(from + k * dim);
    }
}

// Recorded rows that are history now, certain rows, drafts: the state behind the last certain one
// is kept.
template <int dim>
OJ_DEVICE void run_tokens(const DeltaBlock<dim>& b, const DeltaChunk& chunk,
                          float (&state)[DeltaShape<dim>::terms]) {
    using Shape = DeltaShape<dim>;
    const DeltaItem item = b.shared.items[chunk.item];
    const int chain = lane_index() / 8, local = warp_index() * 8 + lane_index() % 8;
    const int kept = item.fold + item.n_certain, columns = b.c.dims.v_channels();
    float* head_state = thread_state<dim>(item);
    float* core =
        in_global(b.c.scratch.core) + item.head * dim + item.part * Shape::columns + local;
    OJ_UNROLL(1)
    for (int i = 0; i < chunk.n; ++i) {
        const typename Shape::Token& token = b.shared.tokens[i];
        const float* query = token.vectors + chain * Shape::chain_stride;
        const int row = chunk.first + i - item.fold;
        float out = delta_token<Shape::terms>(state, query, query + Shape::vector_stride,
                                              token.vectors[2 * Shape::vector_stride + local],
                                              token.decay, token.beta);
        if (row >= 0 && chain == 0)
            core[static_cast<int64_t>(item.first_row + row) * columns] = out;
        if (chunk.first + i + 1 != kept) continue;
        OJ_UNROLL_ALL
        for (int k = 0; k < Shape::terms; ++k)
            head_state[k * delta_chains * dim] = state[k];
    }
}

// The first chunk of the items from `item` on; behind the last one, if there is none.
template <class Shared>
OJ_DEVICE DeltaChunk first_chunk(const Shared& shared, int item, int n_items) {
    while (item < n_items && shared.items[item].tokens() == 0)
        ++item;
    int tokens = item < n_items ? shared.items[item].tokens() : 0;
    return {item, 0, tokens < delta_tokens ? tokens : delta_tokens};
}
template <class Shared>
OJ_DEVICE DeltaChunk next_chunk(const Shared& shared, const DeltaChunk& now, int n_items) {
    int first = now.first + now.n, left = shared.items[now.item].tokens() - first;
    if (left == 0) return first_chunk(shared, now.item + 1, n_items);
    return {now.item, first, left < delta_tokens ? left : delta_tokens};
}

// Items in turn. What a chunk needs is on its way while the block works on the one before.
template <int dim>
OJ_DEVICE void work_on_items(const DeltaBlock<dim>& b, int n_items) {
    using Shape = DeltaShape<dim>;
    DeltaInputs in = {};
    float state[Shape::terms];
    DeltaChunk now = {}, next = first_chunk(b.shared, 0, n_items);
    for (;;) {
        const DeltaItem& next_item = b.shared.items[next.item < n_items ? next.item : 0];
        if (next.item < n_items) {
            load_rows(b, next, in);
            load_gates(b, next, in);
            if (next.first == 0) prefetch_state<dim>(next_item);
        }
        if (now.n > 0 && has_state<dim>()) run_tokens(b, now, state);
        if (next.item == n_items) return;
        if (next.first == 0) load_state<dim>(next_item, state);
        now = next;
        share_raw(b, now, in);
        block_sync();
        mix_tokens(b, now, in);
        block_sync();
        next = next_chunk(b.shared, now, n_items);
    }
}

template <int dim>
OJ_PHASE void delta_items(const Context& c, const Grid& grid, const Phase& p) {
    using Shape = DeltaShape<dim>;
    const int per_run = c.dims.n_v_heads * Shape::parts, items = delta_core_items(c.dims, c.step);
    auto& shared = *in_shared(reinterpret_cast<typename Shape::Shared*>(grid.shared));
    const DeltaBlock<dim> block = {c, p.delta, shared};
    OJ_UNROLL(1)
    for (int first = grid.block; first < items; first += delta_batch * grid.n_blocks) {
        int n = 0;  // of this batch; divisions would be more code
        OJ_UNROLL(1)
        while (n < delta_batch && first + n * grid.n_blocks < items)
            ++n;
        if (thread_index() < n) {
            int of_run = first + thread_index() * grid.n_blocks;
            const Run* at = in_global(c.step.runs);
            OJ_UNROLL(1)
            for (; of_run >= per_run; of_run -= per_run)
                ++at;
            const Run& run = *at;
            const int head = of_run / Shape::parts, part = of_run % Shape::parts;
            int k_head = head;
            OJ_UNROLL(1)
            while (k_head >= c.dims.n_k_heads)
                k_head -= c.dims.n_k_heads;
            const int keys = c.dims.k_channels(), of_key = k_head * dim;
            const int of_values = 2 * keys + head * dim + part * Shape::columns;
            const int layer = p.delta.state_layer;
            shared.items[thread_index()] = {
                c.states.head(run.slot, layer, head) + part * Shape::columns,
                c.states.conv(run.slot, layer),
                c.states.record(run.slot, run.record_from, layer, 0),
                c.states.record(run.slot, run.record_to, layer, 0),
                run.first_row,
                run.n_rows,
                run.n_certain,
                run.fold,
                head,
                part,
                part == 0 && head == k_head,
                {of_key, keys + of_key - dim, of_values - 2 * dim}};
        }
        block_sync();
        work_on_items(block, n);
        block_sync();  // the next batch takes the same memory
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

}  // namespace oj::cuda
