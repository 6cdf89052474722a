// The DeltaNet phases give the CPU kernels' bits over several steps: prompts, drafts, folds of some
// of them, folds without rows, slots that take turns; whatever the number of blocks and the order
// of threads.
#include "cuda/delta_out.cuh"
#include "cuda_phase_harness.h"

namespace oj::cuda {
namespace {

constexpr float eps = 1e-6f;
constexpr int n_slots = 3, n_layers = 2, layer = 1;
const cpu::Kernels& kernels = cpu::select_kernels();

using Floats = std::vector<float>;

// One row as the recurrence takes it.
struct Token {
    Floats raw, mixed, decay, beta;
};

// A conversation's layer on the host, kept as the CPU backend keeps it: a fold comes first, then
// the rows of the step.
struct Reference {
    std::vector<Floats> past;   // raw rows, oldest first
    std::vector<Floats> heads;  // S of each V head in strips of 16 columns
    std::vector<Token> drafts;  // recorded
};

struct Weights {
    Floats a, dt, norm, conv;
};

int strip_at(int dim, int k, int v) {
    return v / 16 * 16 * dim + k * 16 + v % 16;
}

class Layer {
public:
    Layer(const Dims& dims, const Weights& weights) : d_(dims), w_(weights) {}

    // Advances one V head; the outputs of `head`, if asked for.
    void advance(Floats* state, const Token& token, int head, float* out) const {
        int dim = d_.state_dim;
        const float* query = token.mixed.data() + head % d_.n_k_heads * dim;
        cpu::DeltaToken t = {
            query, query + d_.k_channels(), token.mixed.data() + 2 * d_.k_channels() + head * dim,
            out,   token.decay[head],       token.beta[head]};
        for (int column = 0; column < dim; column += cpu::delta_columns)
            kernels.delta(state->data(), dim, column, &t, 1);
    }

    void push(Reference* slot, const Floats& raw) const {
        slot->past.push_back(raw);
        slot->past.erase(slot->past.begin());
    }

    void fold(Reference* slot, int n) const {
        for (int i = 0; i < n; ++i) {
            for (int head = 0; head < d_.n_v_heads; ++head)
                advance(&slot->heads[head], slot->drafts[i], head, nullptr);
            push(slot, slot->drafts[i].raw);
        }
    }

    // Convolution, norms and gates of a row with these raw inputs before it.
    Token mix(const std::vector<Floats>& before, const Floats& raw, const Floats& alpha,
              const Floats& beta) const {
        int channels = d_.conv_channels(), dim = d_.state_dim;
        Token token = {raw, Floats(channels), alpha, beta};
        std::vector<const float*> in;
        for (const Floats& row : before)
            in.push_back(row.data());
        in.push_back(raw.data());
        kernels.conv_silu(in.data(), w_.conv.data(), channels, d_.conv_kernel, channels,
                          token.mixed.data());
        for (int head = 0; head < 2 * d_.n_k_heads; ++head) {
            float scale = head < d_.n_k_heads ? 1.0f / std::sqrt(static_cast<float>(dim)) : 1.0f;
            kernels.l2_norm(token.mixed.data() + head * dim, dim, eps, scale);
        }
        for (int head = 0; head < d_.n_v_heads; ++head) {
            token.decay[head] = exp_f32(w_.a[head] * softplus_f32(alpha[head] + w_.dt[head]));
            token.beta[head] = sigmoid_f32(beta[head]);
        }
        return token;
    }

private:
    const Dims& d_;
    const Weights& w_;
};

// The device beside the reference.
class DeltaTest {
public:
    DeltaTest(int dim, int n_k_heads, int n_v_heads, int taps, int segments, Launch launch)
        : random_(launch.seed), launch_(launch), segments_(segments) {
        Dims& d = c_.dims;
        d.state_dim = dim;
        d.n_k_heads = n_k_heads;
        d.n_v_heads = n_v_heads;
        d.conv_kernel = taps;
        d.rms_eps = eps;
        d.n_delta_layers = n_layers;
        weights_ = {random_.normals(n_v_heads), random_.normals(n_v_heads), random_.normals(dim),
                    random_.normals(size_t(taps) * d.conv_channels())};
        for (float& a : weights_.a)
            a = -std::abs(a);
        p_.delta = {memory_.copy(weights_.a), memory_.copy(weights_.dt),
                    memory_.copy(weights_.norm), memory_.copy(weights_.conv), layer};
        p_.forms = {1, d.v_channels() % 256 == 0, 1};
        c_.scratch.core = memory_.take<float>(int64_t{max_step_rows} * d.v_channels());
        c_.scratch.input = make_input(&memory_, d.v_channels());
        make_states();
    }

    // A run of the next step: folds, then rows.
    void add(int slot, int fold, int n_certain, int n_drafts) {
        Run run = {};
        run.slot = slot;
        run.first_row = n_rows_;
        run.n_rows = n_certain + n_drafts;
        run.n_certain = n_certain;
        run.fold = fold;
        run.record_from = buffer_[slot];
        run.record_to = 1 - buffer_[slot];
        if (run.n_rows > 0) buffer_[slot] = run.record_to;
        runs_.push_back(run);
        n_rows_ += run.n_rows;
    }

    void step(const std::string& name) {
        const Dims& d = c_.dims;
        c_.step.n_rows = n_rows_;
        c_.step.n_runs = static_cast<int>(runs_.size());
        c_.step.runs = memory_.copy(runs_);
        c_.scratch.qkv = random_product(&memory_, &random_, d.conv_channels(), segments_);
        c_.scratch.gate = random_product(&memory_, &random_, d.v_channels(), segments_ - 1);
        c_.scratch.alpha = random_product(&memory_, &random_, d.n_v_heads, 1);
        c_.scratch.beta = random_product(&memory_, &random_, d.n_v_heads, segments_);
        run_phase<phase_delta_core>(c_, p_, launch_);
        run_phase<phase_delta_out>(c_, p_, launch_);
        for (const Run& run : runs_)
            check(run, name);
        runs_.clear();
        n_rows_ = 0;
    }

private:
    void make_states() {
        const Dims& d = c_.dims;
        StatesView& s = c_.states;
        s.conv_floats = int64_t{d.conv_kernel - 1} * d.conv_channels();
        s.head_floats = int64_t{d.state_dim} * d.state_dim;
        s.layer_floats = s.conv_floats + d.n_v_heads * s.head_floats;
        s.slot_floats = n_layers * s.layer_floats + 32;
        s.record_row_floats = (d.conv_channels() + 2 * d.n_v_heads + 3) / 4 * 4;
        s.record_layer_floats = OJ_MAX_DRAFTS * s.record_row_floats;
        s.record_floats = n_layers * s.record_layer_floats + 32;
        s.slots = memory_.take<float>(n_slots * s.slot_floats);
        s.records = memory_.take<float>(2 * n_slots * s.record_floats);
        for (int slot = 0; slot < n_slots; ++slot) {
            float* past = s.conv(slot, layer);
            random_.fill(past, static_cast<size_t>(s.layer_floats));
            Reference& reference = slots_[slot];
            for (int t = 0; t < d.conv_kernel - 1; ++t) {
                const float* row = past + int64_t{t} * d.conv_channels();
                reference.past.emplace_back(row, row + d.conv_channels());
            }
            for (int head = 0; head < d.n_v_heads; ++head)
                reference.heads.push_back(in_strips(s.head(slot, layer, head)));
        }
    }

    Floats in_strips(const float* state) const {
        int dim = c_.dims.state_dim;
        Floats strips(size_t(dim) * dim);
        for (int k = 0; k < dim; ++k) {
            for (int v = 0; v < dim; ++v)
                strips[strip_at(dim, k, v)] = state[k * dim + v];
        }
        return strips;
    }

    void check(const Run& run, const std::string& name) {
        const Dims& d = c_.dims;
        Layer host(d, weights_);
        Reference& slot = slots_[run.slot];
        host.fold(&slot, run.fold);
        if (run.n_rows > 0) slot.drafts.clear();
        std::vector<Floats> before = slot.past, draft_heads;
        for (int i = 0; i < run.n_rows; ++i) {
            int r = run.first_row + i;
            Token token = host.mix(before, summed(c_.scratch.qkv, r), summed(c_.scratch.alpha, r),
                                   summed(c_.scratch.beta, r));
            if (d.conv_kernel > 1) {
                before.push_back(token.raw);
                before.erase(before.begin());
            }
            bool is_draft = i >= run.n_certain;
            if (i == run.n_certain) draft_heads = slot.heads;
            Floats out(d.v_channels());
            for (int head = 0; head < d.n_v_heads; ++head) {
                Floats* state = is_draft ? &draft_heads[head] : &slot.heads[head];
                host.advance(state, token, head, out.data() + head * d.state_dim);
            }
            expect(same_bits(out.data(), c_.scratch.core + int64_t{r} * d.v_channels(), out.size()),
                   name + ": core of row " + std::to_string(i));
            check_gated(r, out, name);
            if (is_draft) {
                check_record(run, i - run.n_certain, token, name);
                slot.drafts.push_back(token);
            } else if (d.conv_kernel > 1) {
                host.push(&slot, token.raw);
            }
        }
        check_state(run.slot, name);
    }

    void check_gated(int r, Floats out, const std::string& name) {
        const Dims& d = c_.dims;
        Floats z = summed(c_.scratch.gate, r);
        for (int head = 0; head < d.n_v_heads; ++head) {
            float* o = out.data() + head * d.state_dim;
            kernels.rms_norm(o, weights_.norm.data(), d.state_dim, eps, o);
            kernels.silu_mul(z.data() + head * d.state_dim, o, d.state_dim, o);
        }
        expect(holds_row(c_.scratch.input, p_.forms, r, out), name + ": gated input");
    }

    void check_record(const Run& run, int row, const Token& token, const std::string& name) {
        const float* at = c_.states.record(run.slot, run.record_to, layer, row);
        bool same = true;
        for (const Floats* part : {&token.raw, &token.decay, &token.beta}) {
            same = same && same_bits(at, part->data(), part->size());
            at += part->size();
        }
        expect(same, name + ": record of a draft");
    }

    void check_state(int slot, const std::string& name) {
        const Dims& d = c_.dims;
        bool same = true;
        for (int t = 0; t < d.conv_kernel - 1; ++t) {
            same = same && same_bits(c_.states.conv(slot, layer) + int64_t{t} * d.conv_channels(),
                                     slots_[slot].past[t].data(), slots_[slot].past[t].size());
        }
        expect(same, name + ": the convolution's past");
        for (int head = 0; head < d.n_v_heads; ++head) {
            Floats strips = in_strips(c_.states.head(slot, layer, head));
            expect(same_bits(strips.data(), slots_[slot].heads[head].data(), strips.size()),
                   name + ": state of head " + std::to_string(head));
        }
    }

    Random random_;
    Memory memory_;
    Launch launch_;
    int segments_;  // of the largest products
    Context c_ = {};
    Phase p_ = {};
    Weights weights_;
    Reference slots_[n_slots];
    int buffer_[n_slots] = {};  // that a slot's last drafts are in
    std::vector<Run> runs_;
    int n_rows_ = 0;
};

void test_steps(int dim, int n_k_heads, int n_v_heads, int taps, int segments, Launch launch) {
    DeltaTest test(dim, n_k_heads, n_v_heads, taps, segments, launch);
    std::string name =
        std::to_string(dim) + " x " + std::to_string(dim) + ", " + std::to_string(taps) + " taps, ";
    test.add(0, 0, 1, 2);
    test.add(1, 0, 2, 0);
    test.step(name + "first step");
    test.add(2, 0, 1, 8);
    test.add(0, 1, 1, 2);  // one of two drafts was right
    test.step(name + "fold of one draft");
    test.add(0, 0, 1, 1);  // none was
    test.add(2, 8, 1, 0);  // all of eight were
    test.step(name + "fold of none and of all drafts");
    test.add(0, 1, 0, 0);
    test.add(1, 0, 0, 0);
    test.step(name + "folds without rows");
    test.add(1, 0, 19, 1);  // a prompt: more than is prepared at a time
    test.step(name + "a prompt");
    test.add(1, 1, 18, 3);
    test.step(name + "a fold before a prompt");
}

}  // namespace
}  // namespace oj::cuda

int main() {
    using namespace oj::cuda;
    for (Launch launch : launches) {
        test_steps(32, 1, 3, 4, 3, launch);
        test_steps(64, 2, 4, 2, 3, launch);
    }
    test_steps(128, 2, 2, 4, 3, launches[1]);
    test_steps(32, 2, 10, 3, 3, launches[0]);  // one block has more items than it looks up together
    return failures == 0 ? 0 : 1;
}
