// The device's choice of tokens gives the bits of engine/sampling.h: under every sampling option,
// both verification rules, drawn and certain drafts, whatever the order of blocks and threads.
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cuda/sample.cuh"
#include "cuda_launch.h"
#include "expect.h"

namespace oj::cuda {
namespace {

using test::expect;
using test::failures;

using Random = std::mt19937_64;

float real(Random& random, float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
}
int whole(Random& random, int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
}
bool coin(Random& random, double chance = 0.5) {
    return std::bernoulli_distribution(chance)(random);
}

oj_sampling random_sampling(Random& random) {
    oj_sampling s = {};
    s.temperature = coin(random, 0.2) ? 0.0f : real(random, 0.05f, 3.0f);
    s.top_k = coin(random) ? whole(random, 1, 60) : 0;
    s.top_p = coin(random) ? real(random, 0.01f, 0.999f) : 1.0f;
    s.min_p = coin(random, 0.3) ? real(random, 0.001f, 0.4f) : 0.0f;
    s.presence = coin(random, 0.3) ? 0.7f : 0.0f;
    s.frequency = coin(random, 0.3) ? 0.2f : 0.0f;
    s.repetition = coin(random, 0.3) ? 1.2f : 1.0f;
    s.top_logprobs = coin(random) ? whole(random, 1, OJ_MAX_TOP) : 0;
    s.seed = random();
    s.coupled = coin(random);
    s.temperature_last = coin(random, 0.3);
    s.adjusted_logprobs = coin(random);
    return s;
}

// Coarse values, so that there are ties; sometimes a flat row, so that filters see many of them.
std::vector<float> random_logits(Random& random, int n) {
    std::vector<float> logits(n);
    float step = coin(random) ? 0.25f : 0.0f, width = coin(random, 0.2) ? 0.0f : 6.0f;
    for (float& x : logits) {
        x = std::normal_distribution<float>(0.0f, 1.0f)(random) * width;
        if (step > 0.0f) x = std::round(x / step) * step;
    }
    return logits;
}

// One conversation's part of a step, as the engine describes it.
struct Seq {
    oj_sampling sampling;
    int position, n_certain, n_sampled, n_draft;
    bool is_lookup;
    std::vector<int32_t> tokens;  // certain rows and drafts
    std::vector<int32_t> penalty_ids, penalty_counts, bias_ids;
    std::vector<float> bias_values;
    std::vector<std::vector<uint32_t>> masks;  // of sampled rows; an empty one: no mask
};

struct Case {
    int n_vocab, n_blocks;
    std::vector<Seq> seqs;
    std::vector<std::vector<float>> logits;  // of sampled rows, all sequences
    std::vector<int32_t> draft_ids;          // empty: all
    std::vector<std::vector<float>> draft_logits;
};

Seq random_seq(Random& random, int n_vocab) {
    Seq seq = {};
    seq.sampling = random_sampling(random);
    seq.position = whole(random, 0, 5000);
    seq.n_certain = whole(random, 1, 3);
    seq.n_sampled = coin(random, 0.15) ? 0 : 1 + whole(random, 0, 3);
    seq.n_draft = seq.n_sampled > 0 ? whole(random, 0, 2) : 0;
    seq.is_lookup = coin(random);
    for (int i = 0; i < seq.n_certain + std::max(0, seq.n_sampled - 1); ++i)
        seq.tokens.push_back(whole(random, 0, n_vocab - 1));
    for (int id = whole(random, 0, 9); id < n_vocab && coin(random, 0.95); id += 37) {
        seq.penalty_ids.push_back(id);
        seq.penalty_counts.push_back(whole(random, 1, 4));
    }
    for (int i = 0; i < whole(random, 0, 3); ++i) {  // an id may come twice
        seq.bias_ids.push_back(whole(random, 0, 3));
        seq.bias_values.push_back(real(random, -4.0f, 4.0f));
    }
    for (int r = 0; r < seq.n_sampled && coin(random, 0.3); ++r) {
        std::vector<uint32_t> mask((n_vocab + 31) / 32, coin(random) ? 0u : 0xaaaa5555u);
        mask[0] |= 2;
        seq.masks.resize(seq.n_sampled);
        seq.masks[r] = mask;
    }
    return seq;
}

Case random_case(Random& random) {
    Case c = {};
    c.n_vocab = whole(random, 260, 900);
    c.n_blocks = whole(random, 1, 12);
    int n_seqs = whole(random, 1, 3);
    for (int i = 0; i < n_seqs; ++i)
        c.seqs.push_back(random_seq(random, c.n_vocab));
    for (const Seq& seq : c.seqs) {
        for (int r = 0; r < seq.n_sampled; ++r)
            c.logits.push_back(random_logits(random, c.n_vocab));
    }
    if (coin(random)) {
        for (int id = 0; id < c.n_vocab; id += whole(random, 1, 5))
            c.draft_ids.push_back(id);
    }
    int n_head = c.draft_ids.empty() ? c.n_vocab : static_cast<int>(c.draft_ids.size());
    for (int i = 0; i < n_seqs * OJ_MAX_DRAFTS; ++i)
        c.draft_logits.push_back(random_logits(random, n_head));
    // Some drafts are what the row would say, so that some are accepted.
    size_t at = 0;
    for (Seq& seq : c.seqs) {
        for (int r = 0; r < seq.n_sampled; ++r, ++at) {
            const std::vector<float>& row = c.logits[at];
            auto best = std::max_element(row.begin(), row.end()) - row.begin();
            if (r + 1 < seq.n_sampled && coin(random, 0.7))
                seq.tokens[seq.n_certain + r] = static_cast<int32_t>(best);
        }
    }
    return c;
}

// Buffers of plain-loop sampling; distributions that drafts were drawn from before this step.
struct Plain {
    explicit Plain(int n) : n_vocab(n), scores(n), ids(n), bins(kSelectBins) {}
    SampleWorkspace work() { return {scores.data(), ids.data(), bins.data()}; }

    int n_vocab;
    std::vector<float> scores;
    std::vector<int32_t> ids;
    std::vector<uint64_t> bins;
};

struct Drawn {
    std::vector<float> scores;
    Distribution d[OJ_MAX_DRAFTS];
};

oj_sampling with_bias(const Seq& seq) {
    oj_sampling s = seq.sampling;
    s.n_bias = static_cast<int32_t>(seq.bias_ids.size());
    s.bias_ids = seq.bias_ids.data();
    s.bias_values = seq.bias_values.data();
    return s;
}

Penalties penalties_of(const Seq& seq, const int32_t* extra, int n_extra) {
    return {seq.penalty_ids.data(), seq.penalty_counts.data(),
            static_cast<int32_t>(seq.penalty_ids.size()), extra, n_extra};
}

// Distributions of drafts of a step before, over other logits.
void draw_before(Random& random, const Case& c, int i, Plain& plain, Drawn& drawn) {
    const Seq& seq = c.seqs[i];
    drawn.scores.resize(static_cast<size_t>(OJ_MAX_DRAFTS) * c.n_vocab);
    oj_sampling sampling = with_bias(seq);
    if (is_coupled(sampling)) return;
    for (int r = 0; r < OJ_MAX_DRAFTS; ++r) {
        std::vector<float> logits = random_logits(random, c.n_vocab);
        SampleWorkspace work = plain.work();
        work.scores = drawn.scores.data() + static_cast<size_t>(r) * c.n_vocab;
        draft_token(logits.data(), c.n_vocab, sampling, penalties_of(seq, nullptr, 0),
                    seq.position + r, work, &drawn.d[r]);
    }
}

oj_seq_result plain_result(const Case& c, int i, const float* logits, Plain& plain, Drawn& drawn) {
    const Seq& seq = c.seqs[i];
    oj_sampling sampling = with_bias(seq);
    oj_seq_result result = {};
    if (seq.n_sampled == 0) return result;
    std::vector<const uint32_t*> masks;
    for (const std::vector<uint32_t>& mask : seq.masks)
        masks.push_back(mask.empty() ? nullptr : mask.data());
    SampledRows rows = {};
    rows.logits = logits;
    rows.stride = c.n_vocab;
    rows.n_rows = seq.n_sampled;
    rows.n_vocab = c.n_vocab;
    rows.position = seq.position + seq.n_certain;
    rows.drafts = seq.tokens.data() + seq.n_certain;
    rows.sampling = &sampling;
    rows.penalties = penalties_of(seq, nullptr, 0);
    rows.masks = masks.empty() ? nullptr : masks.data();
    rows.q = seq.is_lookup || is_coupled(sampling) ? nullptr : drawn.d;
    verify(rows, plain.work(), &result);

    int position = seq.position + seq.n_certain + result.n_tokens - 1;
    for (int depth = 0; depth < seq.n_draft; ++depth) {
        const std::vector<float>& head = c.draft_logits[i * OJ_MAX_DRAFTS + depth];
        std::vector<float> spread(c.n_vocab, -INFINITY);
        for (size_t k = 0; k < head.size(); ++k)
            spread[c.draft_ids.empty() ? k : c.draft_ids[k]] = head[k];
        int32_t extra[most_extra];
        std::copy_n(result.tokens, result.n_tokens, extra);
        std::copy_n(result.drafts, depth, extra + result.n_tokens);
        SampleWorkspace work = plain.work();
        Distribution* q = nullptr;
        if (!is_coupled(sampling)) {
            work.scores = drawn.scores.data() + static_cast<size_t>(depth) * c.n_vocab;
            q = &drawn.d[depth];
        }
        result.drafts[depth] = draft_token(spread.data(), c.n_vocab, sampling,
                                           penalties_of(seq, extra, result.n_tokens + depth),
                                           position + depth + 1, work, q);
        result.n_drafts = depth + 1;
    }
    return result;
}

// The same through the phases, on buffers that start as rubbish.
struct Device {
    Device(const Case& c, const std::vector<Drawn>& drawn);
    void run(const Case& c, uint64_t seed);

    SharedVector<Row> rows, draft_rows;
    SharedVector<Run> runs;
    SharedVector<int32_t> drafting, sampled, penalty_ids, penalty_counts, bias_ids, mask_rows,
        draft_ids;
    SharedVector<float> bias_values;
    SharedVector<uint32_t> mask_bits;
    SharedVector<float> logits, scores, drawn_scores, draft_logits, kept;
    SharedVector<float> hidden, slots, records;
    SharedVector<int32_t> chosen;
    SharedVector<TeamMemory> teams;
    SharedVector<uint32_t> fault;
    SharedVector<oj_logprob> logprobs;
    SharedVector<Distribution> distributions;
    SharedVector<oj_seq_result> results;
    Context context = {};
};

constexpr int n_embd = 8;

Device::Device(const Case& c, const std::vector<Drawn>& drawn) {
    int n_logits = 0;
    for (size_t i = 0; i < c.seqs.size(); ++i) {
        const Seq& seq = c.seqs[i];
        Run run = {};
        run.slot = static_cast<int>(i);
        run.first_row = static_cast<int>(rows.size());
        run.n_rows = static_cast<int>(seq.tokens.size());
        run.n_certain = seq.n_certain;
        run.position = seq.position;
        run.n_sampled = seq.n_sampled;
        run.draft_source = seq.is_lookup ? OJ_DRAFT_LOOKUP : OJ_DRAFT_MTP;
        run.n_draft = seq.n_draft;
        run.first_penalty = static_cast<int>(penalty_ids.size());
        run.n_penalty = static_cast<int>(seq.penalty_ids.size());
        run.first_bias = static_cast<int>(bias_ids.size());
        run.sampling = with_bias(seq);
        run.sampling.bias_ids = nullptr;
        run.sampling.bias_values = nullptr;
        run.first_mask = seq.masks.empty() ? -1 : static_cast<int>(mask_rows.size());
        for (const std::vector<uint32_t>& mask : seq.masks) {
            mask_rows.push_back(mask.empty() ? -1 : static_cast<int>(mask_bits.size()));
            mask_bits.insert(mask_bits.end(), mask.begin(), mask.end());
        }
        for (int r = 0; r < run.n_rows; ++r) {
            bool is_sampled = r >= run.n_rows - run.n_sampled;
            if (is_sampled) sampled.push_back(static_cast<int>(rows.size()));
            rows.push_back({seq.tokens[r], seq.position + r, static_cast<int>(i),
                            is_sampled ? n_logits++ : -1});
        }
        penalty_ids.insert(penalty_ids.end(), seq.penalty_ids.begin(), seq.penalty_ids.end());
        penalty_counts.insert(penalty_counts.end(), seq.penalty_counts.begin(),
                              seq.penalty_counts.end());
        bias_ids.insert(bias_ids.end(), seq.bias_ids.begin(), seq.bias_ids.end());
        bias_values.insert(bias_values.end(), seq.bias_values.begin(), seq.bias_values.end());
        if (seq.n_draft > 0) drafting.push_back(static_cast<int>(i));
        runs.push_back(run);
    }
    size_t n_seqs = c.seqs.size(), vocab = c.n_vocab;
    for (const std::vector<float>& row : c.logits)
        logits.insert(logits.end(), row.begin(), row.end());
    scores.assign(std::max<size_t>(n_logits, n_seqs) * vocab, -7.0f);
    teams.resize(std::max<size_t>(n_logits, n_seqs));
    fault.assign(1, 0);
    chosen.assign(n_logits, -7);
    logprobs.resize(n_logits);
    drawn_scores.assign(n_seqs * OJ_MAX_DRAFTS * vocab, -7.0f);
    distributions.resize(n_seqs * OJ_MAX_DRAFTS);
    kept.assign(n_seqs * OJ_MAX_DRAFTS * vocab, -7.0f);
    for (size_t i = 0; i < n_seqs; ++i) {
        std::copy(drawn[i].scores.begin(), drawn[i].scores.end(),
                  drawn_scores.begin() + i * OJ_MAX_DRAFTS * vocab);
        for (int r = 0; r < OJ_MAX_DRAFTS; ++r) {
            Distribution& d = distributions[i * OJ_MAX_DRAFTS + r];
            d = drawn[i].d[r];
            d.scores = drawn_scores.data() + (i * OJ_MAX_DRAFTS + r) * vocab;
        }
    }
    results.resize(n_seqs);
    std::memset(results.data(), 0x5a, n_seqs * sizeof(oj_seq_result));
    hidden.assign(rows.size() * n_embd, 1.0f);
    slots.assign(n_seqs * n_embd, -7.0f);
    records.assign(n_seqs * 2 * OJ_MAX_DRAFTS * n_embd, -7.0f);
    draft_rows.resize(drafting.size());
    draft_logits.resize(max_step_rows * vocab);

    Context& x = context;
    x.dims.n_vocab = c.n_vocab;
    x.dims.n_embd = n_embd;
    x.step.n_rows = static_cast<int>(rows.size());
    x.step.n_runs = static_cast<int>(n_seqs);
    x.step.n_logits = n_logits;
    x.step.n_sampled = n_logits;
    x.step.sampled = sampled.data();
    x.step.keep_logits = 1;
    x.step.n_drafting = static_cast<int>(drafting.size());
    x.step.rows = rows.data();
    x.step.runs = runs.data();
    x.step.drafting = drafting.data();
    x.step.penalty_ids = penalty_ids.data();
    x.step.penalty_counts = penalty_counts.data();
    x.step.bias_ids = bias_ids.data();
    x.step.bias_values = bias_values.data();
    x.step.mask_rows = mask_rows.data();
    x.step.mask_bits = mask_bits.data();
    x.draft.rows = draft_rows.data();
    x.scratch.hidden = hidden.data();
    x.scratch.logits = {logits.data(), c.n_vocab, 1};
    x.scratch.scores = scores.data();
    x.scratch.teams = teams.data();
    x.fault = fault.data();
    x.scratch.chosen = chosen.data();
    x.scratch.logprobs = logprobs.data();
    x.scratch.drawn_scores = drawn_scores.data();
    x.scratch.drawn = distributions.data();
    x.scratch.kept_drafts = kept.data();
    x.scratch.results = results.data();
    x.states.slots = slots.data();
    x.states.slot_floats = n_embd;
    x.states.records = records.data();
    x.states.record_floats = OJ_MAX_DRAFTS * n_embd;
    draft_ids.assign(c.draft_ids.begin(), c.draft_ids.end());
    x.draft_ids = draft_ids.empty() ? nullptr : draft_ids.data();
    x.n_draft_ids = static_cast<int>(c.draft_ids.size());
}

// As phases before choosing leave them: what is not theirs to set is rubbish.
void open_teams(SharedVector<TeamMemory>& teams) {
    for (TeamMemory& team : teams) {
        std::memset(static_cast<void*>(&team), 0xff, sizeof team);
        team.arrived = 0;
        std::fill_n(team.bins[0], kSelectBins, 0);
    }
}

void Device::run(const Case& c, uint64_t seed) {
    Phase phase = {};
    open_teams(teams);
    run_phase<phase_choose>(context, phase, {c.n_blocks, seed});
    run_phase<phase_verify>(context, phase, {c.n_blocks, seed + 1});
    for (int depth = 0; depth < OJ_MAX_DRAFTS; ++depth) {
        phase.depth = depth;
        bool is_any = false;
        int n_head = c.draft_ids.empty() ? c.n_vocab : static_cast<int>(c.draft_ids.size());
        context.scratch.draft_logits = {draft_logits.data(), n_head, 1};
        for (size_t k = 0; k < drafting.size(); ++k) {
            const Seq& seq = c.seqs[drafting[k]];
            int position = seq.position + seq.n_certain + results[drafting[k]].n_tokens - 1;
            draft_rows[k].position = depth < seq.n_draft ? position + depth : -1;
            is_any |= depth < seq.n_draft;
            const std::vector<float>& head = c.draft_logits[drafting[k] * OJ_MAX_DRAFTS + depth];
            std::copy(head.begin(), head.end(), draft_logits.begin() + k * n_head);
        }
        open_teams(teams);
        if (is_any)
            launch(c.n_blocks, phase_shared_bytes, seed + 2 + depth,
                   PhaseKernel<phase_draft_choose>{context, phase});
    }
}

void compare(const oj_seq_result& plain, const oj_seq_result& device, const std::string& name) {
    expect(plain.n_tokens == device.n_tokens, name + ": n_tokens");
    expect(plain.n_drafts == device.n_drafts, name + ": n_drafts");
    for (int i = 0; i < std::min(plain.n_tokens, device.n_tokens); ++i) {
        const oj_logprob &a = plain.logprobs[i], &b = device.logprobs[i];
        expect(plain.tokens[i] == device.tokens[i], name + ": token " + std::to_string(i));
        expect(float_to_bits(a.logprob) == float_to_bits(b.logprob), name + ": logprob");
        expect(a.n_top == b.n_top, name + ": n_top");
        for (int k = 0; k < std::min(a.n_top, b.n_top); ++k) {
            expect(a.top_ids[k] == b.top_ids[k], name + ": alternative " + std::to_string(k));
            expect(float_to_bits(a.top_logprobs[k]) == float_to_bits(b.top_logprobs[k]),
                   name + ": its log-probability");
        }
    }
    for (int i = 0; i < std::min(plain.n_drafts, device.n_drafts); ++i)
        expect(plain.drafts[i] == device.drafts[i], name + ": draft " + std::to_string(i));
}

// Counts drafts that were accepted, so that the test cannot pass without any.
int check(uint64_t seed) {
    Random random(seed);
    Case c = random_case(random);
    Plain plain(c.n_vocab);
    std::vector<Drawn> drawn(c.seqs.size());
    for (size_t i = 0; i < c.seqs.size(); ++i)
        draw_before(random, c, static_cast<int>(i), plain, drawn[i]);
    Device device(c, drawn);
    device.run(c, seed);
    int at = 0, accepted = 0;
    for (size_t i = 0; i < c.seqs.size(); ++i) {
        std::vector<float> rows;
        for (int r = 0; r < c.seqs[i].n_sampled; ++r, ++at)
            rows.insert(rows.end(), c.logits[at].begin(), c.logits[at].end());
        oj_seq_result wanted = plain_result(c, static_cast<int>(i), rows.data(), plain, drawn[i]);
        compare(wanted, device.results[i],
                "case " + std::to_string(seed) + ", sequence " + std::to_string(i));
        accepted += std::max(0, wanted.n_tokens - 1);
        expect(device.slots[i * n_embd] == 1.0f, "the hidden of the last certain row is kept");
    }
    return accepted;
}

}  // namespace
}  // namespace oj::cuda

int main() {
    int accepted = 0;
    for (uint64_t seed = 1; seed <= 150; ++seed)
        accepted += oj::cuda::check(seed);
    oj::cuda::expect(accepted > 50, "drafts are accepted: " + std::to_string(accepted));
    if (oj::cuda::failures == 0) std::printf("ok, %d drafts accepted\n", accepted);
    return oj::cuda::failures == 0 ? 0 : 1;
}
