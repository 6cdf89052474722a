// Gated DeltaNet layers: short convolution, delta rule, gated norm; and the fold of drafts.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/forward.h"

namespace oj::cpu {

namespace {

// The inputs of one V head in a row of q | k | v.
struct HeadInputs {
    const float* query;
    const float* key;
    const float* value;
};

HeadInputs head_inputs(const Hparams& h, const float* mixed, int head) {
    const float* query = mixed + head % h.n_k_heads * h.state_dim;
    return {query, query + h.k_channels(), mixed + 2 * h.k_channels() + head * h.state_dim};
}

void advance(const Machine& m, float* state, const std::vector<DeltaToken>& tokens, int first,
             int n) {
    for (int column = 0; column < m.h.state_dim; column += delta_columns) {
        m.kernels.delta(state, m.h.state_dim, column, tokens.data() + first, n);
    }
}

// past = the last rows of (past, rows).
void push_rows(const StateLayout& layout, float* past, const float* rows, int n) {
    size_t row = layout.channels;
    int keep = std::max(0, layout.past_rows - n);
    std::memmove(past, past + (layout.past_rows - keep) * row, keep * row * sizeof(float));
    int add = layout.past_rows - keep;
    std::memcpy(past + keep * row, rows + (n - add) * row, add * row * sizeof(float));
}

// Row `r` of the batch, channels [first, first + state_dim): convolution, SiLU, norm of q and k.
void mix_channels(const Machine& m, const DeltaWeights& w, const Run& run, int r, int block) {
    const Hparams& h = m.h;
    Scratch& s = m.scratch;
    int channels = h.conv_channels(), taps = h.conv_kernel, first = block * h.state_dim;
    const float* past = m.states.conv(run.slot, w.state_layer);
    const float* in[16];
    for (int t = 0; t < taps; ++t) {
        int back = r - (taps - 1 - t);  // row of this tap
        const float* row =
            back >= run.first_row
                ? s.qkv.data() + static_cast<size_t>(back) * channels
                : past + static_cast<size_t>(back - run.first_row + taps - 1) * channels;
        in[t] = row + first;
    }
    float* out = s.mixed.data() + static_cast<size_t>(r) * channels + first;
    m.kernels.conv_silu(in, w.conv + first, channels, taps, h.state_dim, out);
    float query_scale = 1.0f / std::sqrt(static_cast<float>(h.state_dim));
    if (block < 2 * h.n_k_heads) {
        float scale = block < h.n_k_heads ? query_scale : 1.0f;
        m.kernels.l2_norm(out, h.state_dim, h.rms_eps, scale);
    }
}

// One V head over a run: the recurrence, then its gated norm into scratch.input.
void run_head(Worker& worker, const Machine& m, const DeltaWeights& w, const Run& run, int head) {
    const Hparams& h = m.h;
    Scratch& s = m.scratch;
    int dim = h.state_dim, cols = h.v_channels();
    std::vector<DeltaToken>& tokens = s.tokens[worker.index()];
    tokens.clear();
    for (int i = 0; i < run.n_rows; ++i) {
        int r = run.first_row + i;
        HeadInputs in = head_inputs(h, s.mixed.data() + offset(r, h.conv_channels()), head);
        size_t gate = offset(r, h.n_v_heads) + head;
        tokens.push_back({in.query, in.key, in.value, s.input.row(r, cols) + head * dim,
                          s.alpha[gate], s.beta[gate]});
    }
    float* state = m.states.head(run.slot, w.state_layer, head);
    advance(m, state, tokens, 0, run.n_certain);
    if (run.n_rows > run.n_certain) {
        float* copy = s.draft_state.data() + offset(worker.index(), dim * dim);
        std::memcpy(copy, state, size_t(dim) * dim * sizeof(float));
        advance(m, copy, tokens, run.n_certain, run.n_rows - run.n_certain);
    }
    for (int i = 0; i < run.n_rows; ++i) {
        int r = run.first_row + i;
        float* out = s.input.row(r, cols) + head * dim;
        const float* z = s.gate.data() + offset(r, cols) + head * dim;
        m.kernels.rms_norm(out, w.norm, dim, h.rms_eps, out);
        m.kernels.silu_mul(z, out, dim, out);
    }
}

// The convolution's past moves over the certain rows; drafts are recorded.
void keep_inputs(const Machine& m, const DeltaWeights& w, const Run& run) {
    Scratch& s = m.scratch;
    int channels = m.h.conv_channels(), heads = m.h.n_v_heads;
    push_rows(m.states.layout(), m.states.conv(run.slot, w.state_layer),
              s.qkv.data() + offset(run.first_row, channels), run.n_certain);
    for (int i = run.n_certain; i < run.n_rows; ++i) {
        int r = run.first_row + i;
        RecordRow to = m.states.record(run.slot, w.state_layer, i - run.n_certain);
        std::copy_n(s.qkv.data() + offset(r, channels), channels, to.raw);
        std::copy_n(s.mixed.data() + offset(r, channels), channels, to.mixed);
        std::copy_n(s.alpha.data() + offset(r, heads), heads, to.decay);
        std::copy_n(s.beta.data() + offset(r, heads), heads, to.beta);
    }
}

// Raw alpha and beta of row r become decay and beta.
void make_gates(const Machine& m, const DeltaWeights& w, int r) {
    for (int head = 0; head < m.h.n_v_heads; ++head) {
        float& alpha = m.scratch.alpha[offset(r, m.h.n_v_heads) + head];
        float& beta = m.scratch.beta[offset(r, m.h.n_v_heads) + head];
        alpha = exp_f32(w.a[head] * softplus_f32(alpha + w.dt[head]));
        beta = sigmoid_f32(beta);
    }
}

}  // namespace

void delta_net(Worker& worker, const Machine& m, const LayerWeights& layer, const Batch& batch) {
    const DeltaWeights& w = layer.delta;
    Scratch& s = m.scratch;
    int rows = batch.n_rows(), heads = m.h.n_v_heads, cols = m.h.v_channels();
    norm_rows(worker, m, layer.attn_norm, rows, forms_of({&w.qkv, &w.gate, &w.beta, &w.alpha}));
    multiply(worker, m.kernels, s.input, rows,
             {{&w.qkv, s.qkv.data()},
              {&w.gate, s.gate.data()},
              {&w.beta, s.beta.data()},
              {&w.alpha, s.alpha.data()}});
    worker.barrier();

    int blocks = 2 * m.h.n_k_heads + heads;
    for (const Run& run : batch.runs) {
        worker.share(run.n_rows * (blocks + 1), [&](int item) {
            int r = run.first_row + item / (blocks + 1), block = item % (blocks + 1);
            if (block < blocks) {
                mix_channels(m, w, run, r, block);
            } else {
                make_gates(m, w, r);
            }
        });
    }
    worker.barrier();

    int n_runs = static_cast<int>(batch.runs.size());
    worker.share(n_runs * heads,
                 [&](int item) { run_head(worker, m, w, batch.runs[item / heads], item % heads); });
    worker.share(n_runs, [&](int i) { keep_inputs(m, w, batch.runs[i]); });
    worker.barrier();

    quantize_rows(worker, m, rows, cols, forms_of({&w.out}));
    multiply(worker, m.kernels, s.input, rows, {{&w.out, s.x.data(), true}});
    worker.barrier();
}

void fold_drafts(Worker& worker, const Machine& m, const std::vector<Fold>& folds) {
    const StateLayout& layout = m.states.layout();
    int heads = m.h.n_v_heads, per_fold = layout.n_layers * (heads + 1);
    worker.share(static_cast<int>(folds.size()) * per_fold, [&](int item) {
        Fold fold = folds[item / per_fold];
        int state_layer = item % per_fold / (heads + 1), head = item % (heads + 1);
        if (head == heads) {
            for (int i = 0; i < fold.n; ++i) {
                push_rows(layout, m.states.conv(fold.slot, state_layer),
                          m.states.record(fold.slot, state_layer, i).raw, 1);
            }
            return;
        }
        std::vector<DeltaToken>& tokens = m.scratch.tokens[worker.index()];
        tokens.clear();
        for (int i = 0; i < fold.n; ++i) {
            RecordRow row = m.states.record(fold.slot, state_layer, i);
            HeadInputs in = head_inputs(m.h, row.mixed, head);
            tokens.push_back(
                {in.query, in.key, in.value, nullptr, row.decay[head], row.beta[head]});
        }
        advance(m, m.states.head(fold.slot, state_layer, head), tokens, 0, fold.n);
    });
    worker.share(static_cast<int>(folds.size()), [&](int i) {
        std::copy_n(m.states.record_hidden(folds[i].slot, folds[i].n - 1), m.h.n_embd,
                    m.states.hidden(folds[i].slot));
    });
    worker.barrier();
}

}  // namespace oj::cpu
