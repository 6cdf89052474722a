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
constexpr int delta_tokens = 6;   // of a run that a block works on together; pairs of them
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

// Tokens [first, first + n) of an item, counted from its run's first recorded row; which of the two
// places for tokens they are in.
struct DeltaChunk {
    int item, first, n, place;
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
    static_assert(block_threads / row_threads >= delta_tokens && delta_tokens % 2 == 0);
    static_assert(2 * dim <= block_threads && columns * delta_tokens / 2 <= block_threads);

    // A token as the recurrence reads it; its vectors are raw before.
    struct Token {
        float vectors[2 * vector_stride + columns];  // query and key by chains, values
        float decay, beta, unused[2];
    };

    struct Shared {
        DeltaItem items[delta_batch];
        Token tokens[2][delta_tokens];   // of a chunk and of the next one
        float past[past_taps][columns];  // raw values before the next one
    };
    static_assert(sizeof(Shared) <= phase_shared_bytes);
    static constexpr int token_floats = sizeof(Token) / sizeof(float);

    // Unsigned arithmetic is less code.
    OJ_HD static uint32_t chain_index(uint32_t k) {
        return k % delta_chains * chain_stride + k / delta_chains;
    }
    // Where a channel of the part lies in Token.vectors.
    OJ_HD static uint32_t vector_index(uint32_t channel) {
        if (channel >= 2 * dim) return 2 * vector_stride + channel - 2 * dim;
        return channel / dim * vector_stride + chain_index(channel % dim);
    }
    // Which of the layer's channels it is.
    OJ_HD static int layer_channel(const DeltaItem& item, uint32_t channel) {
        return static_cast<int>(channel) + item.to_layer[channel / dim];
    }
};

// What a thread has loaded of its chunk's inputs before the block works on them: eight channels of
// a row. Of a row of this step a part is a segment; a recorded row is one.
struct DeltaInputs {
    float rows[segments_at_once][lane_columns];
    float gate[segments_at_once], gate_scale, gate_bias;
};

// A channel on its way through the convolution.
struct ConvLane {
    float weights[max_taps];  // by rows before the token
    float before[past_taps];  // raw values before the next token
};
// What a thread mixes of an item's tokens: a channel of query or key, one of the values.
struct ConvLanes {
    ConvLane vector, value;
};

// The row that a thread loads and shares, and the first of its channels of the part.
struct Place {
    int row, channel;
};
template <int dim>
OJ_DEVICE Place thread_place() {
    constexpr int threads = DeltaShape<dim>::row_threads;
    const auto thread =
        static_cast<uint32_t>(not_hoisted(thread_index()));  // nor kept in registers
    return {static_cast<int>(thread / threads), static_cast<int>(thread % threads * lane_columns)};
}

// One DeltaNet layer for a block.
template <int dim>
struct DeltaBlock {
    const Context& c;
    const DeltaParams& layer;
    typename DeltaShape<dim>::Shared& shared;
    int warp;  // uniform_warp_index()
};

template <int dim>
OJ_DEVICE auto* tokens_of(const DeltaBlock<dim>& b, const DeltaChunk& chunk) {
    return b.shared.tokens[chunk.place];
}

// A row of the draft records of the step before, of this step.
template <int dim>
OJ_DEVICE uint32_t record_floats(const DeltaBlock<dim>& b) {
    return static_cast<uint32_t>(b.c.states.record_row_floats);
}
template <int dim>
OJ_DEVICE const float* recorded_row(const DeltaBlock<dim>& b, const DeltaItem& item, int token) {
    return in_global(item.recorded) + static_cast<uint32_t>(token) * record_floats(b);
}
template <int dim>
OJ_DEVICE float* draft_record(const DeltaBlock<dim>& b, const DeltaItem& item, int row) {
    return in_global(item.drafts) + static_cast<uint32_t>(row - item.n_certain) * record_floats(b);
}

template <int dim>
OJ_DEVICE bool has_state(const DeltaBlock<dim>& b) {
    return b.warp < DeltaShape<dim>::columns / 8;
}

// A thread's first number of the state; the others lie delta_chains rows apart.
template <int dim>
OJ_DEVICE float* thread_state(const DeltaItem& item) {
    const int chain = lane_index() / 8, local = warp_index() * 8 + lane_index() % 8;
    return in_global(item.state) + chain * dim + local;
}

// Rows of a chunk.
template <int dim>
OJ_DEVICE void load_rows(const DeltaBlock<dim>& b, const DeltaChunk& chunk, DeltaInputs& in) {
    const DeltaItem& item = b.shared.items[chunk.item];
    const Place at = thread_place<dim>();
    const int of_layer = DeltaShape<dim>::layer_channel(item, at.channel);
    if (at.row < chunk.n) {
        const int token = chunk.first + at.row;
        Segments from = {recorded_row(b, item, token), static_cast<uint32_t>(of_layer), 0, 1};
        if (token >= item.fold)
            from = segments_of(b.c.scratch.qkv, item.first_row + token - item.fold, of_layer);
        OJ_UNROLL_ALL
        for (int s = 0; s < segments_at_once; ++s) {
            for (int i = 0; i < lane_columns; ++i)
                in.rows[s][i] = 0.0f;
            if (s < from.n) load_segment<lane_columns>(from, s, in.rows[s]);
        }
    }
}

// The two tokens of a chunk and the channel of values that a thread mixes.
template <int dim>
OJ_DEVICE Place value_place() {
    constexpr int columns = DeltaShape<dim>::columns;
    return {thread_index() / columns * 2, 2 * dim + thread_index() % columns};
}

// An item's weights and past of the channels that a thread mixes.
template <int dim>
OJ_DEVICE void load_conv(const DeltaBlock<dim>& b, const DeltaItem& item, ConvLanes& lanes) {
    const int taps = b.c.dims.conv_kernel, channels = b.c.dims.conv_channels();
    const float* weights = in_global(b.layer.conv);
    const float* past = in_global(item.past);
    auto load = [&](int channel, ConvLane& lane) {
        int at = (taps - 1) * channels + DeltaShape<dim>::layer_channel(item, channel);
        OJ_UNROLL_ALL
        for (int t = 0; t < max_taps; ++t, at -= channels) {
            if (t >= taps) break;
            lane.weights[t] = weights[at];
            if (t > 0) lane.before[past_taps - t] = past[at];
        }
    };
    load(thread_index() % (2 * dim), lanes.vector);
    load(value_place<dim>().channel, lanes.value);
}

// The last two warps have the fewest values to mix: a lane makes its token's decay (0), beta (1).
template <int dim>
OJ_DEVICE int gate_of_warp(const DeltaBlock<dim>& b) {
    return b.warp - (block_warps - 2);
}

// What a lane needs for its token's gate.
template <int dim>
OJ_DEVICE void load_gates(const DeltaBlock<dim>& b, const DeltaChunk& chunk, DeltaInputs& in) {
    const Dims& d = b.c.dims;
    const DeltaItem item = b.shared.items[chunk.item];
    const int which = gate_of_warp(b), token = chunk.first + lane_index();
    if (which < 0 || lane_index() >= chunk.n) return;
    Segments from = {recorded_row(b, item, token),
                     static_cast<uint32_t>(d.conv_channels() + which * d.n_v_heads + item.head), 0,
                     1};
    if (token >= item.fold) {
        from = segments_of(which == 0 ? b.c.scratch.alpha : b.c.scratch.beta,
                           item.first_row + token - item.fold, item.head);
    }
    OJ_UNROLL_ALL
    for (int s = 0; s < segments_at_once; ++s) {
        in.gate[s] = 0.0f;
        if (s < from.n) load_segment<1>(from, s, &in.gate[s]);
    }
    in.gate_scale = in_global(b.layer.a)[item.head];
    in.gate_bias = in_global(b.layer.dt)[item.head];
}

// Raw values of a chunk into shared memory and, of drafts, into records.
template <int dim>
OJ_DEVICE void share_raw(const DeltaBlock<dim>& b, const DeltaChunk& chunk, const DeltaInputs& in,
                         const ConvLanes& lanes) {
    const DeltaItem& item = b.shared.items[chunk.item];
    const Place at = thread_place<dim>(), value = value_place<dim>();
    for (int t = 0; chunk.first == 0 && value.row == 0 && t < past_taps; ++t)
        b.shared.past[t][value.channel - 2 * dim] = lanes.value.before[t];
    if (at.row >= chunk.n) return;
    const int row = chunk.first + at.row - item.fold;
    const int of_layer = DeltaShape<dim>::layer_channel(item, at.channel);
    float raw[lane_columns];
    // What is not there is 0, which changes no sum that began with 0; a recorded row is such a sum.
    for (int i = 0; i < lane_columns; ++i)
        raw[i] = 0.0f + in.rows[0][i] + in.rows[1][i] + in.rows[2][i];
    float* to = tokens_of(b, chunk)[at.row].vectors + DeltaShape<dim>::vector_index(at.channel);
    const bool is_value = at.channel >= 2 * dim;
    const int stride = is_value ? 1 : DeltaShape<dim>::chain_stride, four_on = is_value ? 4 : 1;
    OJ_UNROLL_ALL
    for (int i = 0; i < lane_columns; ++i)
        to[i % delta_chains * stride + i / delta_chains * four_on] = raw[i];
    if (row >= item.n_certain && (is_value || item.writes_keys != 0))
        store_floats<lane_columns>(draft_record(b, item, row) + of_layer, raw);
}

// Convolution and SiLU of the channel's next two tokens, whose raw values these are.
OJ_DEVICE void mix_pair(ConvLane& lane, int taps, float (&values)[2]) {
    const float raw[past_taps + 2] = {lane.before[0], lane.before[1], lane.before[2], values[0],
                                      values[1]};
    float sums[2] = {};
    OJ_UNROLL_ALL
    for (int t = max_taps - 1; t >= 0; --t) {  // begins anew with the oldest row
        OJ_UNROLL_ALL
        for (int i = 0; i < 2; ++i) {
            const float value = raw[i + past_taps - t];
            sums[i] =
                t >= taps - 1 ? lane.weights[t] * value : fmaf(lane.weights[t], value, sums[i]);
        }
    }
    const FloatPair mixed = silu_pair({sums[0], sums[1]});
    values[0] = mixed.a, values[1] = mixed.b;
    for (int t = 0; t < past_taps; ++t)
        lane.before[t] = raw[t + 2];
}

// What a thread has mixed while others still read the raw values.
struct MixedPair {
    float values[2];
    float before[past_taps];  // behind them
};

// A thread's values before its pair of tokens, which are raw.
template <int dim>
OJ_DEVICE void find_before(const DeltaBlock<dim>& b, const DeltaChunk& chunk, ConvLane& lane) {
    const Place at = value_place<dim>();
    const float* raw = tokens_of(b, chunk)->vectors + DeltaShape<dim>::vector_index(at.channel);
    for (int t = 0; t < past_taps; ++t) {
        const int i = at.row - past_taps + t;
        lane.before[t] = i < 0 ? b.shared.past[past_taps + i][at.channel - 2 * dim]
                               : raw[i * DeltaShape<dim>::token_floats];
    }
}

// Convolution and SiLU of a chunk's tokens: a thread has a channel of query or key, pair by pair in
// place, and then a pair of values. One copy of the code, and small: it is not in the instruction
// cache when a step comes to it.
template <int dim>
OJ_DEVICE void convolve(const DeltaBlock<dim>& b, const DeltaChunk& chunk, ConvLanes& lanes,
                        MixedPair& pair) {
    using Shape = DeltaShape<dim>;
    const int taps = b.c.dims.conv_kernel, n = chunk.n;
    const Place last = value_place<dim>();
    bool is_value = 2 * dim < block_threads && thread_index() >= 2 * dim;
    int channel = is_value ? last.channel : thread_index(), i = is_value ? last.row : 0;
    ConvLane lane = is_value ? lanes.value : lanes.vector;
    if (is_value && i < n) find_before(b, chunk, lane);
    OJ_UNROLL(1)
    while (i < n) {
        float* at = tokens_of(b, chunk)[i].vectors + Shape::vector_index(channel);
        pair.values[0] = at[0], pair.values[1] = at[Shape::token_floats];
        mix_pair(lane, taps, pair.values);
        if (is_value) break;
        at[0] = pair.values[0];
        if (i + 1 < n) at[Shape::token_floats] = pair.values[1];
        i += 2;
        if (i < n) continue;
        for (int t = 0; t < past_taps; ++t)
            lanes.vector.before[t] = lane.before[t];  // of the next chunk
        is_value = true, lane = lanes.value;
        i = last.row, channel = last.channel;
        if (i < n) find_before(b, chunk, lane);
    }
    for (int t = 0; t < past_taps; ++t)
        pair.before[t] = lane.before[t];
}

// The norm of a token's query (`which` 0) or key by one warp.
template <int dim>
OJ_DEVICE void norm_vector(const DeltaBlock<dim>& b, const DeltaChunk& chunk, int i, int which) {
    using Shape = DeltaShape<dim>;
    float* at = tokens_of(b, chunk)[i].vectors + Shape::vector_index(which * dim + lane_index());
    float v[Shape::head_terms], squares = 0.0f;
    OJ_UNROLL_ALL
    for (int j = 0; j < Shape::head_terms; ++j) {
        v[j] = at[Shape::chain_index(j * warp_lanes)];
        squares = fmaf(v[j], v[j], squares);
    }
    const float scale = which == 0 ? 1.0f / sqrtf(static_cast<float>(dim)) : 1.0f;
    const float factor = norm_factor(warp_sum(squares) + b.c.dims.rms_eps) * scale;
    OJ_UNROLL_ALL
    for (int j = 0; j < Shape::head_terms; ++j)
        at[Shape::chain_index(j * warp_lanes)] = v[j] * factor;
}

// What is left of mixing a chunk's tokens once no thread reads raw values any more.
template <int dim>
OJ_DEVICE void finish_tokens(const DeltaBlock<dim>& b, const DeltaChunk& chunk, bool goes_on,
                             const MixedPair& pair) {
    using Shape = DeltaShape<dim>;
    const Place last = value_place<dim>();
    if (last.row < chunk.n) {
        float* at = tokens_of(b, chunk)[last.row].vectors + Shape::vector_index(last.channel);
        at[0] = pair.values[0];
        if (last.row + 1 < chunk.n) at[Shape::token_floats] = pair.values[1];
    }
    for (int t = 0; goes_on && last.row + 2 == delta_tokens && t < past_taps; ++t)
        b.shared.past[t][last.channel - 2 * dim] = pair.before[t];
    OJ_UNROLL(1)
    for (int i = b.warp / 2; i < chunk.n; i += block_warps / 2)
        norm_vector(b, chunk, i, b.warp % 2);
}

// Decay or beta of a lane's token.
template <int dim>
OJ_DEVICE void make_gate(const DeltaBlock<dim>& b, const DeltaChunk& chunk, const DeltaInputs& in) {
    const DeltaItem item = b.shared.items[chunk.item];
    const int lane = lane_index(), row = chunk.first + lane - item.fold;
    const bool decays = gate_of_warp(b) == 0;
    float gate = in.gate[0];
    if (row >= 0) {
        gate = 0.0f + in.gate[0] + in.gate[1] + in.gate[2];
        // exp(scale * softplus(gate + bias)), or sigmoid(gate)
        const float x = decays ? gate + in.gate_bias : -gate, e = exp_value(x);
        if (decays) {
            gate = exp_value(in.gate_scale * (x > 20.0f ? x : log1p_f32(e)));
        } else {
            gate = 1.0f / (1.0f + e);
        }
    }
    auto& token = tokens_of(b, chunk)[lane];
    (decays ? token.decay : token.beta) = gate;
    if (item.part == 0 && row >= item.n_certain) {
        float* gates = draft_record(b, item, row) + b.c.dims.conv_channels();
        gates[(decays ? 0 : b.c.dims.n_v_heads) + item.head] = gate;
    }
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
OJ_DEVICE void load_state(const DeltaBlock<dim>& b, const DeltaItem& item,
                          float (&state)[DeltaShape<dim>::terms]) {
    if (!has_state(b)) return;
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
        const typename Shape::Token& token = tokens_of(b, chunk)[i];
        const float* query = token.vectors + chain * Shape::chain_stride;
        const int row = chunk.first + i - item.fold;
        float out = delta_token<Shape::terms>(state, query, query + Shape::vector_stride,
                                              token.vectors[2 * Shape::vector_stride + local],
                                              token.decay, token.beta);
        if (row >= 0 && chain == 0)
            core[static_cast<uint32_t>((item.first_row + row) * columns)] = out;
        if (chunk.first + i + 1 != kept) continue;
        OJ_UNROLL_ALL
        for (int k = 0; k < Shape::terms; ++k)
            head_state[k * delta_chains * dim] = state[k];
    }
}

// The chunk behind `now`: of n = 0 tokens behind the last item. Before the first one is item -1.
template <class Shared>
OJ_DEVICE DeltaChunk next_chunk(const Shared& shared, const DeltaChunk& now, int n_items) {
    DeltaChunk next = {now.item, now.first + now.n, 0, 1 - now.place};
    OJ_UNROLL(1)
    while (next.item < n_items) {
        const int left = next.item < 0 ? 0 : shared.items[next.item].tokens() - next.first;
        next.n = left < delta_tokens ? left : delta_tokens;
        if (next.n > 0) break;
        ++next.item;
        next.first = 0;
    }
    return next;
}

// Items in turn. Between two meetings a warp runs a chunk and mixes the next one, half of the warps
// the other way round: some wait for their chains of sums while the others compute. Rows of the
// chunk behind are on their way.
template <int dim>
OJ_DEVICE void work_on_items(const DeltaBlock<dim>& b, int n_items) {
    DeltaInputs in = {};
    ConvLanes lanes = {};
    MixedPair pair = {};
    float state[DeltaShape<dim>::terms];
    DeltaChunk now = {-1, 0, 0, 0}, next = now, coming = now;
    for (;;) {
        const int runs = now.n == 0 || b.warp < block_warps / 2 ? 0 : 1;  // in this turn
        OJ_UNROLL(1)
        for (int turn = 0; turn < 2; ++turn) {
            if (turn == runs) {
                if (now.n > 0 && has_state(b)) run_tokens(b, now, state);
                if (next.n > 0 && next.first == 0) load_state(b, b.shared.items[next.item], state);
            } else if (next.n > 0) {
                convolve(b, next, lanes, pair);
                if (gate_of_warp(b) >= 0 && lane_index() < next.n) make_gate(b, next, in);
            }
        }
        if (next.item == n_items) return;
        now = next, next = coming;
        coming = next_chunk(b.shared, coming, n_items);
        if (next.n > 0) {
            load_gates(b, next, in);
            if (next.first == 0) load_conv(b, b.shared.items[next.item], lanes);
        }
        if (coming.n > 0 && coming.first == 0) prefetch_state<dim>(b.shared.items[coming.item]);
        block_sync();
        finish_tokens(b, now, next.first > 0, pair);
        if (next.n > 0) share_raw(b, next, in, lanes);
        if (coming.n > 0) load_rows(b, coming, in);
        block_sync();
    }
}

template <int dim>
OJ_PHASE void delta_items(const Context& c, const Grid& grid, const Phase& p) {
    using Shape = DeltaShape<dim>;
    const int per_run = c.dims.n_v_heads * Shape::parts, items = delta_core_items(c.dims, c.step);
    auto& shared = *in_shared(reinterpret_cast<typename Shape::Shared*>(grid.shared));
    const DeltaBlock<dim> block = {c, p.delta, shared, uniform_warp_index()};
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
            const int head = quotient(of_run, Shape::parts), part = of_run - head * Shape::parts;
            int k_head = head;
            OJ_UNROLL(1)
            while (k_head >= c.dims.n_k_heads)
                k_head -= c.dims.n_k_heads;
            const int keys = c.dims.k_channels(), of_key = k_head * dim;
            const int of_values = 2 * keys + head * dim + part * Shape::columns;
            const int layer = p.delta.state_layer;
            // Inside a slot 32 bits are enough, and less code.
            float* past = c.states.conv(run.slot, layer);
            const auto to_state =
                static_cast<uint32_t>(c.states.conv_floats) +
                static_cast<uint32_t>(head) * static_cast<uint32_t>(c.states.head_floats) +
                static_cast<uint32_t>(part * Shape::columns);
            float* records = c.states.record(run.slot, 0, layer, 0);
            const int64_t buffer = c.states.record_floats;
            shared.items[thread_index()] = {past + to_state,
                                            past,
                                            records + (run.record_from != 0 ? buffer : 0),
                                            records + (run.record_to != 0 ? buffer : 0),
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
