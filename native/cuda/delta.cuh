// Gated DeltaNet: short convolution, delta rule and gated norm. See engine/numerics.h.
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
constexpr int loaded_parts = 3;   // segments that are loaded together
constexpr int quad = 4;           // neighbouring channels of a load
constexpr int sector_floats = 8;  // 32 bytes, the least that memory brings
constexpr int past_taps = max_taps - 1;

// What a block works on in turn: one part of one V head of a run.
struct alignas(16) DeltaItem {
    int32_t slot, first_row, n_rows, n_certain;
    int32_t fold, record_from, record_to, head;
    int32_t part, k_head;

    OJ_HD int tokens() const { return fold + n_rows; }
    OJ_HD bool writes_keys() const { return part == 0 && head == k_head; }
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
    static constexpr int quads = channels / quad;

    // How many of `rows` rows' quads a thread loads.
    OJ_HD static constexpr int loads(int rows) {
        return (rows * quads + block_threads - 1) / block_threads;
    }

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
    OJ_HD static int layer_channel(const Dims& d, const DeltaItem& item, int channel) {
        if (channel >= 2 * dim)
            return 2 * d.k_channels() + item.head * dim + item.part * columns + channel - 2 * dim;
        return channel / dim * d.k_channels() + item.k_head * dim + channel % dim;
    }
};

// What a thread has loaded of its chunk's inputs before the block works on them: quads of rows, in
// turn. Of a row of this step a part is a segment; of a recorded row parts are the raw and the
// mixed values.
template <int dim>
struct DeltaInputs {
    using Shape = DeltaShape<dim>;
    float past[Shape::loads(past_taps)][quad];
    float rows[Shape::loads(delta_tokens)][loaded_parts][quad];
    float weights[Shape::loads(max_taps)][quad];
    float gate[loaded_parts], gate_scale, gate_bias;
};

// A thread's load-th quad of a chunk: a row, and the first of four channels of the part.
struct Quad {
    int row, channel;
};
template <int dim>
OJ_DEVICE Quad thread_quad(int load) {
    const int at = not_hoisted(thread_index()) + load * block_threads;  // few registers
    return {at / DeltaShape<dim>::quads, at % DeltaShape<dim>::quads * quad};
}

// One DeltaNet layer for a block.
template <int dim>
struct DeltaBlock {
    const Context& c;
    const DeltaParams& layer;
    typename DeltaShape<dim>::Shared& shared;

    // A row of the draft records of the step before.
    OJ_HD const float* recorded(const DeltaItem& item, int row) const {
        return c.states.record(item.slot, item.record_from, layer.state_layer, row);
    }
};

// Where a row of this step is recorded as a draft.
template <int dim>
OJ_DEVICE float* draft_record(const DeltaBlock<dim>& b, const DeltaItem& item, int row) {
    return in_global(
        b.c.states.record(item.slot, item.record_to, b.layer.state_layer, row - item.n_certain));
}

template <int dim>
OJ_DEVICE bool has_state() {
    return warp_index() < DeltaShape<dim>::columns / 8;
}

// A thread's first number of the state; the others lie delta_chains rows apart.
template <int dim>
OJ_DEVICE float* thread_state(const DeltaBlock<dim>& b, const DeltaItem& item) {
    const int chain = lane_index() / 8, local = warp_index() * 8 + lane_index() % 8;
    return in_global(b.c.states.head(item.slot, b.layer.state_layer, item.head)) + chain * dim +
           item.part * DeltaShape<dim>::columns + local;
}

// Up to loaded_parts floats, or quads of them, that lie `step` apart.
struct Parts {
    const float* from;
    int step, n;
};
OJ_DEVICE Parts parts_of(const Product& product, int r) {
    return {product.at(0, r), max_step_rows * product.rows, product.n_segments};
}

template <int dim>
OJ_DEVICE void load_rows(const DeltaBlock<dim>& b, const DeltaChunk& chunk, DeltaInputs<dim>& in) {
    using Shape = DeltaShape<dim>;
    const Dims& d = b.c.dims;
    const Product& qkv = b.c.scratch.qkv;
    const DeltaItem item = b.shared.items[chunk.item];
    const Parts segments = parts_of(qkv, item.first_row + chunk.first - item.fold);
    const Parts mixed = {b.recorded(item, chunk.first), d.conv_channels(), 2};
    const int64_t record_floats = b.c.states.record_row_floats;
    OJ_UNROLL_ALL
    for (int load = 0; load < Shape::loads(delta_tokens); ++load) {
        const Quad at = thread_quad<dim>(load);
        const bool replays = chunk.first + at.row < item.fold;
        const Parts row = replays ? mixed : segments;
        const float* from = in_global(row.from + at.row * (replays ? record_floats : qkv.rows) +
                                      Shape::layer_channel(d, item, at.channel));
        OJ_UNROLL_ALL
        for (int s = 0; s < loaded_parts; ++s) {
            if (at.row < chunk.n && s < row.n) {
                load_floats<quad>(from + static_cast<int64_t>(s) * row.step, in.rows[load][s]);
            } else {
                for (int i = 0; i < quad; ++i)
                    in.rows[load][s][i] = 0.0f;
            }
        }
    }
}

// The convolution's past and weights, with the first chunk of an item.
template <int dim>
OJ_DEVICE void load_taps(const DeltaBlock<dim>& b, const DeltaItem& item, DeltaInputs<dim>& in) {
    using Shape = DeltaShape<dim>;
    const Dims& d = b.c.dims;
    const int taps = d.conv_kernel, channels = d.conv_channels();
    const float* past = in_global(b.c.states.conv(item.slot, b.layer.state_layer));
    OJ_UNROLL_ALL
    for (int load = 0; load < Shape::loads(past_taps); ++load) {
        const Quad at = thread_quad<dim>(load);
        const int row = taps - max_taps + at.row;
        if (row < 0 || at.row >= past_taps) continue;
        load_floats<quad>(past + row * channels + Shape::layer_channel(d, item, at.channel),
                          in.past[load]);
    }
    OJ_UNROLL_ALL
    for (int load = 0; load < Shape::loads(max_taps); ++load) {
        const Quad at = thread_quad<dim>(load);
        if (at.row >= taps) continue;
        load_floats<quad>(in_global(b.layer.conv) + (taps - 1 - at.row) * channels +
                              Shape::layer_channel(d, item, at.channel),
                          in.weights[load]);
    }
}

// What a lane of warp 0 needs for its token's decay, of warp 1 for its beta.
template <int dim>
OJ_DEVICE void load_gates(const DeltaBlock<dim>& b, const DeltaChunk& chunk, DeltaInputs<dim>& in) {
    const Dims& d = b.c.dims;
    const DeltaItem item = b.shared.items[chunk.item];
    const int warp = warp_index(), token = chunk.first + lane_index();
    if (warp >= 2 || lane_index() >= chunk.n) return;
    Parts parts = {b.recorded(item, token) + 2 * d.conv_channels() + warp * d.n_v_heads, 0, 1};
    if (token >= item.fold) {
        parts = parts_of(warp == 0 ? b.c.scratch.alpha : b.c.scratch.beta,
                         item.first_row + token - item.fold);
    }
    const float* from = in_global(parts.from + item.head);
    OJ_UNROLL_ALL
    for (int s = 0; s < loaded_parts; ++s)
        in.gate[s] = s < parts.n ? from[static_cast<int64_t>(s) * parts.step] : 0.0f;
    in.gate_scale = in_global(b.layer.a)[item.head];
    in.gate_bias = in_global(b.layer.dt)[item.head];
}

// Raw values of a chunk into shared memory and, of drafts, into records.
template <int dim>
OJ_DEVICE void share_raw(const DeltaBlock<dim>& b, const DeltaChunk& chunk,
                         const DeltaInputs<dim>& in) {
    using Shape = DeltaShape<dim>;
    const DeltaItem item = b.shared.items[chunk.item];
    const Product& qkv = b.c.scratch.qkv;
    OJ_UNROLL_ALL
    for (int load = 0; load < Shape::loads(past_taps); ++load) {
        const Quad at = thread_quad<dim>(load);
        if (at.row < past_taps)
            store_floats<quad>(&b.shared.raw[at.row][at.channel], in.past[load]);
    }
    OJ_UNROLL_ALL
    for (int load = 0; load < Shape::loads(max_taps); ++load) {
        const Quad at = thread_quad<dim>(load);
        if (chunk.first == 0 && at.row < max_taps)
            store_floats<quad>(&b.shared.weights[at.row][at.channel], in.weights[load]);
    }
    OJ_UNROLL_ALL
    for (int load = 0; load < Shape::loads(delta_tokens); ++load) {
        const Quad at = thread_quad<dim>(load);
        const int row = chunk.first + at.row - item.fold;
        if (at.row >= chunk.n) continue;
        const float (&part)[loaded_parts][quad] = in.rows[load];
        float raw[quad];
        // What is not there is 0, which changes no sum that began with 0.
        for (int i = 0; i < quad; ++i)
            raw[i] = row < 0 ? part[0][i] : 0.0f + part[0][i] + part[1][i] + part[2][i];
        const int of_layer = Shape::layer_channel(b.c.dims, item, at.channel);
        OJ_UNROLL(1)
        for (int s = loaded_parts; row >= 0 && s < qkv.n_segments; ++s) {
            float more[quad];
            load_floats<quad>(in_global(qkv.at(s, item.first_row + row)) + of_layer, more);
            for (int i = 0; i < quad; ++i)
                raw[i] += more[i];
        }
        store_floats<quad>(&b.shared.raw[past_taps + at.row][at.channel], raw);
        if (row >= item.n_certain && (at.channel >= 2 * dim || item.writes_keys()))
            store_floats<quad>(draft_record(b, item, row) + of_layer, raw);
    }
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

// A token's query (`which` 0) or key, normalised, and a strip of its values, by one warp.
template <int dim>
OJ_DEVICE void mix_token(const DeltaBlock<dim>& b, const DeltaItem& item, int i, int row,
                         int which) {
    using Shape = DeltaShape<dim>;
    const int lane = lane_index();
    float* to = b.shared.tokens[i].vectors;
    float* record = nullptr;
    if (row >= item.n_certain) record = draft_record(b, item, row) + b.c.dims.conv_channels();
    float v[Shape::head_terms], squares = 0.0f;
    OJ_UNROLL_ALL
    for (int j = 0; j < Shape::head_terms; ++j) {
        v[j] = conv_silu(b, i, which * dim + j * warp_lanes + lane);
        squares = fmaf(v[j], v[j], squares);
    }
    float scale = which == 0 ? 1.0f / sqrtf(static_cast<float>(dim)) : 1.0f;
    float factor = inverse_sqrt(warp_sum(squares) + b.c.dims.rms_eps) * scale;
    OJ_UNROLL_ALL
    for (int j = 0; j < Shape::head_terms; ++j) {
        const int channel = which * dim + j * warp_lanes + lane;
        float value = v[j] * factor;
        to[Shape::vector_index(channel)] = value;
        if (record != nullptr && item.writes_keys())
            record[Shape::layer_channel(b.c.dims, item, channel)] = value;
    }
    if (which >= Shape::strips) return;
    const int channel = 2 * dim + which * warp_lanes + lane;
    float value = conv_silu(b, i, channel);
    to[Shape::vector_index(channel)] = value;
    if (record != nullptr) record[Shape::layer_channel(b.c.dims, item, channel)] = value;
}

// Decay (warp 0) or beta (warp 1) of a lane's token.
template <int dim>
OJ_DEVICE void make_gate(const DeltaBlock<dim>& b, const DeltaChunk& chunk,
                         const DeltaInputs<dim>& in) {
    const DeltaItem item = b.shared.items[chunk.item];
    const int lane = lane_index(), row = chunk.first + lane - item.fold;
    const bool decays = warp_index() == 0;
    float gate = in.gate[0];
    if (row >= 0) {
        const Product& gates = decays ? b.c.scratch.alpha : b.c.scratch.beta;
        gate = 0.0f + in.gate[0] + in.gate[1] + in.gate[2];
        OJ_UNROLL(1)
        for (int s = loaded_parts; s < gates.n_segments; ++s)
            gate += in_global(gates.at(s, item.first_row + row))[item.head];
        gate =
            decays ? exp_f32(in.gate_scale * softplus_f32(gate + in.gate_bias)) : sigmoid_f32(gate);
    }
    (decays ? b.shared.tokens[lane].decay : b.shared.tokens[lane].beta) = gate;
    if (item.part == 0 && row >= item.n_certain) {
        float* gates = draft_record(b, item, row) + 2 * b.c.dims.conv_channels();
        gates[(decays ? 0 : b.c.dims.n_v_heads) + item.head] = gate;
    }
}

// The tokens of a chunk, from what share_raw() left and, of recorded rows, from the records.
template <int dim>
OJ_DEVICE void mix_tokens(const DeltaBlock<dim>& b, const DeltaChunk& chunk, DeltaInputs<dim>& in) {
    using Shape = DeltaShape<dim>;
    const DeltaItem item = b.shared.items[chunk.item];
    OJ_UNROLL_ALL
    for (int load = 0; load < Shape::loads(delta_tokens); ++load) {
        const Quad at = thread_quad<dim>(load);
        if (at.row >= chunk.n || chunk.first + at.row >= item.fold) continue;
        for (int i = 0; i < quad; ++i) {
            const int to = Shape::vector_index(at.channel + i);
            b.shared.tokens[at.row].vectors[to] = in.rows[load][1][i];
        }
    }
    OJ_UNROLL(1)
    for (int i = warp_index() / 2; i < chunk.n; i += block_warps / 2) {
        const int row = chunk.first + i - item.fold;
        if (row >= 0) mix_token(b, item, i, row, warp_index() % 2);
    }
    if (warp_index() < 2 && lane_index() < chunk.n) make_gate(b, chunk, in);
    if (chunk.n < delta_tokens) return;
    OJ_UNROLL_ALL
    for (int load = 0; load < Shape::loads(past_taps); ++load) {  // of the next chunk
        const Quad at = thread_quad<dim>(load);
        if (at.row < past_taps)
            load_floats<quad>(&b.shared.raw[delta_tokens + at.row][at.channel], in.past[load]);
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
    if (!has_state<dim>()) return;
    const float* from = thread_state(b, item);
    OJ_UNROLL_ALL
    for (int k = 0; k < DeltaShape<dim>::terms; ++k)
        state[k] = from[k * delta_chains * dim];
}

// Asks for an item's part of the state, sector by sector, so that it comes from the L2 cache when
// it is loaded.
template <int dim>
OJ_DEVICE void prefetch_state(const DeltaBlock<dim>& b, const DeltaItem& item) {
    constexpr int sectors = DeltaShape<dim>::columns / sector_floats;  // of a row
    const float* state = in_global(b.c.states.head(item.slot, b.layer.state_layer, item.head));
    state += item.part * DeltaShape<dim>::columns;
    OJ_UNROLL_ALL
    for (int i = 0; i < dim * sectors; i += block_threads) {
        const int at = i + not_hoisted(thread_index());
        if (at < dim * sectors)
            prefetch_line(state + at / sectors * dim + at % sectors * sector_floats);
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
    float* head_state = thread_state(b, item);
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
    DeltaInputs<dim> in = {};
    float state[Shape::terms] = {};
    DeltaChunk now = {}, next = first_chunk(b.shared, 0, n_items);
    for (;;) {
        const DeltaItem& next_item = b.shared.items[next.item < n_items ? next.item : 0];
        if (next.item < n_items) {
            load_rows(b, next, in);
            load_gates(b, next, in);
            if (next.first == 0) load_taps(b, next_item, in);
            if (next.first == 0) prefetch_state(b, next_item);
        }
        if (now.n > 0 && has_state<dim>()) run_tokens(b, now, state);
        if (next.item == n_items) return;
        if (next.first == 0) load_state(b, next_item, state);
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
        int n = (items - first + grid.n_blocks - 1) / grid.n_blocks;
        if (n > delta_batch) n = delta_batch;
        if (thread_index() < n) {
            const int item = first + thread_index() * grid.n_blocks;
            const Run& run = in_global(c.step.runs)[item / per_run];
            const int head = item % per_run / Shape::parts;
            shared.items[thread_index()] = {run.slot,
                                            run.first_row,
                                            run.n_rows,
                                            run.n_certain,
                                            run.fold,
                                            run.record_from,
                                            run.record_to,
                                            head,
                                            item % Shape::parts,
                                            head % c.dims.n_k_heads};
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

// Columns [first, first + 256) of row r: norm of each head in them, gate; into the input. All loads
// are on their way together.
OJ_DEVICE void gate_piece(const Context& c, const Phase& p, int r, int first) {
    const int cols = c.dims.v_channels(), dim = c.dims.state_dim, lane = lane_index();
    const int column = first + lane * lane_columns;
    const bool valid = column < cols;
    const float* core = in_global(c.scratch.core) + static_cast<int64_t>(r) * cols;
    float v[lane_columns] = {}, weight[lane_columns] = {}, z[loaded_parts][lane_columns] = {};
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
    for (int s = 0; s < loaded_parts; ++s) {
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
    for (int s = 0; s < loaded_parts; ++s) {
        for (int i = 0; i < lane_columns; ++i)
            sum[i] += z[s][i];
    }
    OJ_UNROLL(1)
    for (int s = loaded_parts; valid && s < gate.n_segments; ++s) {
        load_floats<lane_columns>(in_global(gate.at(s, r)) + column, z[0]);
        for (int i = 0; i < lane_columns; ++i)
            sum[i] += z[0][i];
    }
    OJ_UNROLL_ALL
    for (int i = 0; i < lane_columns; ++i)
        v[i] = silu_f32(sum[i]) * (v[i] * scale * weight[i]);
    write_input(c.scratch.input, p.forms, r, cols, first, v);
}

// A strip of a run's channels: the past moves over what is history now.
OJ_DEVICE void keep_past(const Context& c, const DeltaParams& layer, const Run& run, int first) {
    const int channels = c.dims.conv_channels(), past_rows = c.dims.conv_kernel - 1;
    const int moved = run.fold + run.n_certain, mine = first + lane_index();
    const Product& qkv = c.scratch.qkv;
    float* past = in_global(c.states.conv(run.slot, layer.state_layer)) + mine;
    if (moved == 0) return;
    float raw[past_taps][loaded_parts][lane_columns] = {};
    OJ_UNROLL_ALL
    for (int t = 0; t < past_taps; ++t) {
        const int token = t + moved - past_rows, row = token - run.fold;
        Parts from = {past + static_cast<int64_t>(t + moved) * channels, 0, 1};
        if (row >= 0) {
            from = parts_of(qkv, run.first_row + row);
            from.from += mine;
        } else if (token >= 0) {
            from.from = c.states.record(run.slot, run.record_from, layer.state_layer, token) + mine;
        }
        OJ_UNROLL_ALL
        for (int s = 0; s < loaded_parts; ++s) {
            const float* part = in_global(from.from + static_cast<int64_t>(s) * from.step);
            const int left = t < past_rows && s < from.n ? channels - mine : 0;
            OJ_UNROLL_ALL
            for (int i = 0; i < lane_columns; ++i) {
                if (i * warp_lanes < left) raw[t][s][i] = part[i * warp_lanes];
            }
        }
    }
    OJ_UNROLL_ALL
    for (int t = 0; t < past_taps; ++t) {
        if (t >= past_rows) break;
        const int row = t + moved - past_rows - run.fold;
        float sum[lane_columns];
        for (int i = 0; i < lane_columns; ++i)
            sum[i] = row < 0 ? raw[t][0][i] : 0.0f + raw[t][0][i] + raw[t][1][i] + raw[t][2][i];
        OJ_UNROLL(1)
        for (int s = loaded_parts; row >= 0 && s < qkv.n_segments; ++s) {
            const float* part = in_global(qkv.at(s, run.first_row + row)) + mine;
            for (int i = 0; i < lane_columns; ++i)
                sum[i] += i * warp_lanes < channels - mine ? part[i * warp_lanes] : 0.0f;
        }
        float* to = past + static_cast<int64_t>(t) * channels;
        for (int i = 0; i < lane_columns; ++i) {
            if (i * warp_lanes < channels - mine) to[i * warp_lanes] = sum[i];
        }
    }
}

OJ_PHASE void phase_delta_out(const Context& c, const Grid& grid, const Phase& p) {
    int pieces = pieces_of_row(c.dims.v_channels()), strips = delta_strips(c.dims);
    int gates = c.step.n_rows * pieces, items = delta_out_items(c.dims, c.step);
    for (int item = first_item_of_warp(grid); item < items; item += warps_of(grid)) {
        if (item < gates) {
            gate_piece(c, p, item / pieces, item % pieces * piece_columns);
        } else {
            const Run& run = in_global(c.step.runs)[(item - gates) / strips];
            keep_past(c, p.delta, run, (item - gates) % strips * piece_columns);
        }
    }
}

}  // namespace oj::cuda
