// Phases over rows and of the MTP block give the CPU's bits, whatever the number of blocks and the
// order of threads: embeddings of every block type, norms, gated activations, what drafts continue.
#include <algorithm>

#include "cuda/mtp.cuh"
#include "cuda_phase_harness.h"

namespace oj::cuda {
namespace {

constexpr float eps = 1e-6f;
const cpu::Kernels& kernels = cpu::select_kernels();

std::vector<float> normed(const std::vector<float>& x, const std::vector<float>& weight) {
    std::vector<float> out(x.size());
    kernels.rms_norm(x.data(), weight.data(), static_cast<int>(x.size()), eps, out.data());
    return out;
}

std::vector<float> row_of(const float* matrix, int r, int cols) {
    return {matrix + int64_t{r} * cols, matrix + int64_t{r + 1} * cols};
}

// A device with a residual stream of n columns and everything the row phases touch.
struct Rows {
    Random random;
    Memory memory;
    Context c = {};
    Phase p = {};
    std::vector<float> weight, weight2, x;

    Rows(uint64_t seed, int n_rows, int n) : random(seed) {
        c.dims.n_embd = n;
        c.dims.rms_eps = eps;
        c.step.n_rows = n_rows;
        weight = random.normals(n);
        weight2 = random.normals(n);
        p.weight = memory.copy(weight);
        p.weight2 = memory.copy(weight2);
        p.forms = {1, n % 256 == 0, 1};
        c.scratch.out = random_product(&memory, &random, n, random.whole(1, 9));
        c.scratch.input = make_input(&memory, 2 * n);
        c.scratch.hidden = memory.take<float>(int64_t{max_step_rows} * n);
        c.scratch.draft_hidden = memory.take<float>(int64_t{max_step_rows} * n);
        c.scratch.teams = memory.take<TeamMemory>(max_step_rows);
        x = random.normals(size_t{max_step_rows} * n);
        c.scratch.x = memory.copy(x);
    }

    int n() const { return c.dims.n_embd; }

    // x of row r, with `out` added if `adds`.
    std::vector<float> stream(int r, bool adds) const {
        std::vector<float> row = row_of(x.data(), r, n());
        std::vector<float> sum = summed(c.scratch.out, r);
        for (int k = 0; adds && k < n(); ++k)
            row[k] = row[k] + sum[k];
        return row;
    }

    bool stream_is(int r, const std::vector<float>& row) const {
        return same_bits(c.scratch.x + int64_t{r} * n(), row.data(), row.size());
    }
};

constexpr int widths[] = {32, 256, 544, 2304};

void test_norms() {
    for (int n : widths) {
        for (Launch launch : launches) {
            for (int adds = 0; adds < 2; ++adds) {
                Rows rows(launch.seed, 1 + n % 5, n);
                rows.p.adds = adds;
                run_phase<phase_norm_input>(rows.c, rows.p, launch);
                bool same = true;
                for (int r = 0; r < rows.c.step.n_rows; ++r) {
                    std::vector<float> x = rows.stream(r, adds != 0);
                    same = same && rows.stream_is(r, x) &&
                           holds_row(rows.c.scratch.input, rows.p.forms, r, normed(x, rows.weight));
                }
                expect(same, "norm_input of " + std::to_string(n) + " columns");
            }
        }
    }
}

// The blocks that choose a row's token have not met yet.
bool is_open(const TeamMemory& team) {
    return team.arrived == 0 &&
           std::count(team.bins[0], team.bins[0] + kSelectBins, 0u) == kSelectBins;
}

// Rows whose logits nobody wants have a hidden but no input.
void test_head() {
    for (Launch launch : launches) {
        Rows rows(launch.seed, 7, 512);
        std::vector<Row> described(7);
        for (int r = 0; r < 7; ++r)
            described[r] = {0, r, 0, r % 3 == 0 ? -1 : r - 1 - r / 3};
        rows.c.step.rows = rows.memory.copy(described);
        run_phase<phase_head_input>(rows.c, rows.p, launch);
        bool same = true;
        for (int r = 0; r < 7; ++r) {
            std::vector<float> x = rows.stream(r, true), hidden = normed(x, rows.weight);
            same = same && rows.stream_is(r, x) &&
                   same_bits(rows.c.scratch.hidden + r * 512, hidden.data(), 512);
            if (described[r].logits_row < 0) continue;
            same = same &&
                   holds_row(rows.c.scratch.input, rows.p.forms, described[r].logits_row, hidden) &&
                   is_open(rows.c.scratch.teams[described[r].logits_row]);
        }
        expect(same, "head_input");

        Rows drafts(launch.seed, 0, 544);
        drafts.c.draft.n_rows = 3;
        drafts.p.draft_pass = 1;
        run_phase<phase_draft_norm>(drafts.c, drafts.p, launch);
        for (int r = 0; r < 3; ++r) {
            std::vector<float> hidden = normed(drafts.stream(r, true), drafts.weight);
            same = same_bits(drafts.c.scratch.draft_hidden + r * 544, hidden.data(), 544) &&
                   holds_row(drafts.c.scratch.input, drafts.p.forms, r, hidden) &&
                   is_open(drafts.c.scratch.teams[r]);
            expect(same, "draft_norm");
        }
    }
}

void test_activations() {
    for (int n_ff : {64, 768, 1312}) {
        for (Launch launch : launches) {
            Random random(launch.seed);
            Memory memory;
            Context c = {};
            Phase p = {};
            int n_rows = random.whole(1, 9);
            c.dims.n_ff = n_ff;
            c.step.n_rows = n_rows;
            p.forms = {1, n_ff % 256 == 0, 1};
            c.scratch.gate = random_product(&memory, &random, n_ff, random.whole(1, 3), 4.0f);
            c.scratch.up = random_product(&memory, &random, n_ff, random.whole(1, 3));
            c.scratch.input = make_input(&memory, n_ff);
            run_phase<phase_act_input>(c, p, launch);
            bool same = true;
            for (int r = 0; r < n_rows; ++r) {
                std::vector<float> gate = summed(c.scratch.gate, r), up = summed(c.scratch.up, r);
                kernels.silu_mul(gate.data(), up.data(), n_ff, gate.data());
                same = same && holds_row(c.scratch.input, p.forms, r, gate);
            }
            expect(same, "act_input of " + std::to_string(n_ff) + " columns");
        }
    }
}

// ---- embeddings ----

constexpr BlockType block_types[] = {
    BlockType::F32,  BlockType::F16,    BlockType::BF16,  BlockType::Q8_0, BlockType::Q4_0,
    BlockType::Q4_1, BlockType::Q5_0,   BlockType::Q5_1,  BlockType::Q4_K, BlockType::Q5_K,
    BlockType::Q6_K, BlockType::IQ4_NL, BlockType::IQ4_XS};

// Random blocks of n_vocab rows whose halves are finite.
void set_embedding(Memory* memory, Random* random, BlockType type, int n_vocab, Context* c) {
    size_t bytes = row_bytes(type, c->dims.n_embd);
    std::vector<uint8_t> rows(bytes * n_vocab);
    for (size_t i = 0; i < rows.size(); ++i) {
        rows[i] = random->byte();
        if (i % 2 == 1) rows[i] &= 0xbf;
    }
    c->embed = memory->copy(rows);
    c->embed_type = static_cast<int>(type);
    c->embed_row_bytes = static_cast<int64_t>(bytes);
}

std::vector<float> embedding(const Context& c, int token) {
    std::vector<float> row(c.dims.n_embd);
    dequantise_row(static_cast<BlockType>(c.embed_type), c.embed + token * c.embed_row_bytes,
                   c.dims.n_embd, row.data());
    return row;
}

void set_rotation(Memory* memory, Random* random, int rope_dim, Context* c) {
    std::vector<double> frequencies(rope_dim / 2);
    for (double& f : frequencies)
        f = std::abs(random->normal());
    c->dims.rope_dim = rope_dim;
    c->frequencies = memory->copy(frequencies);
    c->scratch.rotation = memory->take<float>(int64_t{max_step_rows} * rope_dim);
}

bool is_rotated(const Context& c, int r, int position) {
    int half = c.dims.rope_dim / 2;
    const float* row = c.scratch.rotation + r * c.dims.rope_dim;
    bool same = true;
    for (int d = 0; d < half; ++d) {
        SinCos turn = rope_rotation(position, c.frequencies[d]);
        same = same && row[d] == turn.cosine && row[half + d] == turn.sine;
    }
    return same;
}

void test_embedding() {
    for (BlockType type : block_types) {
        for (Launch launch : launches) {
            bool wide = block_type_info(type).block_elements == 256;
            int n = wide ? 768 : 544, n_rows = 4, n_vocab = 9;
            Rows rows(launch.seed, n_rows, n);
            set_embedding(&rows.memory, &rows.random, type, n_vocab, &rows.c);
            set_rotation(&rows.memory, &rows.random, 20, &rows.c);
            std::vector<Row> described(n_rows);
            for (Row& row : described)
                row = {rows.random.whole(0, n_vocab - 1), rows.random.whole(0, 260000), 0, -1};
            rows.c.step.rows = rows.memory.copy(described);
            run_phase<phase_embed>(rows.c, rows.p, launch);
            bool same = true;
            for (int r = 0; r < n_rows; ++r) {
                same = same && rows.stream_is(r, embedding(rows.c, described[r].token)) &&
                       is_rotated(rows.c, r, described[r].position);
            }
            expect(same, std::string("embed of ") + block_type_info(type).name);
        }
    }
}

// ---- the MTP block's input ----

struct Mtp : Rows {
    std::vector<Run> runs;
    std::vector<Row> described;

    // Runs of 3, 1 and 2 rows; the first at position 0, the second after a fold, the third neither.
    explicit Mtp(uint64_t seed, int n) : Rows(seed, 6, n) {
        set_embedding(&memory, &random, n % 256 == 0 ? BlockType::Q6_K : BlockType::Q8_0, 9, &c);
        set_rotation(&memory, &random, 8, &c);
        runs.resize(3);
        const int n_rows[] = {3, 1, 2}, position[] = {0, 17, 130}, n_certain[] = {1, 1, 1};
        for (int i = 0, first = 0; i < 3; first += n_rows[i++]) {
            Run& run = runs[i];
            run = {};
            run.slot = 2 - i;
            run.first_row = first;
            run.n_rows = n_rows[i];
            run.n_certain = n_certain[i];
            run.position = position[i];
            run.fold = i == 1 ? 2 : 0;
            run.record_from = i % 2;
            run.n_pages = 3;
            run.n_draft = 3;
            for (int r = 0; r < n_rows[i]; ++r)
                described.push_back({random.whole(0, 8), position[i] + r, i, -1});
        }
        runs[1].n_pages = 1;
        runs[1].position = 62;  // room for two rows after this one
        c.step.n_runs = 3;
        c.step.runs = memory.copy(runs);
        c.step.rows = memory.copy(described);
        random.fill(c.scratch.hidden, size_t{6} * n);
        random.fill(c.scratch.draft_hidden, size_t{6} * n);
        c.dims.n_delta_layers = 1;
        c.states.slot_floats = n + 12;
        c.states.layer_floats = 12;
        c.states.record_layer_floats = 4;
        c.states.record_floats = 4 + int64_t{OJ_MAX_DRAFTS} * n;
        c.states.slots = memory.take<float>(3 * c.states.slot_floats);
        c.states.records = memory.take<float>(6 * c.states.record_floats);
        random.fill(c.states.slots, static_cast<size_t>(3 * c.states.slot_floats));
        random.fill(c.states.records, static_cast<size_t>(6 * c.states.record_floats));
    }

    bool is_joined(int r, int token, const float* before) {
        std::vector<float> joined = normed(embedding(c, token), weight);
        std::vector<float> half(n(), 0.0f);
        if (before != nullptr) half = normed(row_of(before, 0, n()), weight2);
        joined.insert(joined.end(), half.begin(), half.end());
        return holds_row(c.scratch.input, p.forms, r, joined) &&
               stream_is(r, std::vector<float>(n(), 0.0f));
    }
};

void test_store_pass(Launch launch, int n) {
    Mtp m(launch.seed, n);
    run_phase<phase_mtp_join>(m.c, m.p, launch);
    for (int r = 0; r < 6; ++r) {
        const Run& run = m.runs[m.described[r].run];
        const float* before = m.c.scratch.hidden + (r - 1) * n;
        if (r == 0) before = nullptr;
        if (r == 3) before = m.c.states.record_hidden(run.slot, run.record_from, 1, 1, n);
        if (r == 4) before = m.c.states.hidden(run.slot, 1);
        expect(m.is_joined(r, m.described[r].token, before),
               "mtp_join of stored row " + std::to_string(r));
    }
}

// The first run drafts after two accepted drafts, the second has no room for a third row, the third
// chose nothing.
void test_draft_pass(Launch launch, int n) {
    for (int depth = 0; depth < 4; ++depth) {
        Mtp m(launch.seed, n);
        std::vector<oj_seq_result> results(3);
        results[0].n_tokens = 3;
        results[0].tokens[2] = 7;
        results[1].n_tokens = 1;
        results[1].tokens[0] = 5;
        for (int i = 0; i < 2; ++i) {
            for (int d = 0; d < depth; ++d)
                results[i].drafts[d] = (i + d + 3) % 9;
        }
        m.c.scratch.results = m.memory.copy(results);
        m.c.step.drafting = m.memory.copy(std::vector<int32_t>{1, 0, 2});
        m.c.draft = m.c.step;
        m.c.draft.n_rows = 3;
        m.c.draft.rows = m.memory.take<Row>(3);
        m.p.draft_pass = 1;
        m.p.depth = depth;
        run_phase<phase_mtp_join>(m.c, m.p, launch);
        const int first_position[] = {63, 3, -1}, room[] = {1, 3, 0}, before[] = {3, 2, 0};
        for (int r = 0; r < 3; ++r) {
            const Row& row = m.c.draft.rows[r];
            std::string name =
                "mtp_join of draft " + std::to_string(depth) + ", row " + std::to_string(r);
            if (depth >= room[r]) {
                expect(row.position == -1, name + " drafts no more");
                continue;
            }
            const oj_seq_result& result = results[1 - r];
            int token = depth == 0 ? result.tokens[result.n_tokens - 1] : result.drafts[depth - 1];
            const float* hidden =
                depth == 0 ? m.c.scratch.hidden + before[r] * n : m.c.scratch.draft_hidden + r * n;
            expect(row.position == first_position[r] + depth && row.token == token &&
                       is_rotated(m.c, r, row.position) && m.is_joined(r, token, hidden),
                   name);
        }
    }
}

}  // namespace
}  // namespace oj::cuda

int main() {
    using namespace oj::cuda;
    test_norms();
    test_head();
    test_activations();
    test_embedding();
    for (Launch launch : launches) {
        for (int n : {96, 256}) {
            test_store_pass(launch, n);
            test_draft_pass(launch, n);
        }
    }
    return failures == 0 ? 0 : 1;
}
