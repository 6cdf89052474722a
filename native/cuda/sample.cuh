// Choosing tokens, a team of neighbouring blocks a row: engine/sampling.h with its loops over ids
// shared among the team, each block taking a part of the vocabulary. Every sum here is an integer
// and everything else a maximum, so the bits are those of the plain loops. No list of a filtered
// set's members is made: `least` and the cutoff say which ids are in it.
#pragma once

#include "cuda/phase.h"
#include "cuda/wait.cuh"
#include "cuda/work.h"

namespace oj::cuda {

constexpr int most_extra = 2 * OJ_MAX_DRAFTS + 1;  // tokens of this step that penalties count

// A block's part in choosing a row's token.
struct Team {
    TeamMemory* memory;
    uint32_t* fault;
    int n_blocks, rank;
    int begin, end;  // of the vocabulary
    int meetings;    // so far
    int rounds;      // of selections
};

// Shared memory of one block.
struct SampleShared {
    Team team;
    float least;  // ids of scores above it may be chosen
    uint64_t bins[kSelectBins];
    int64_t sums[block_warps];
    float values[block_warps];
    int32_t ids[block_warps];
    int64_t before;  // of a selection: held by smaller keys
    uint32_t bin;
    int32_t n_extra;
    int32_t extra[most_extra];
};
static_assert(sizeof(SampleShared) <= phase_shared_bytes, "a block's shared memory");

// ------------------------------------------------------------- the team

// The blocks of a team share the vocabulary; `row` says whose token they choose.
OJ_DEVICE void join_team(const Context& c, int row, int rank, int n_blocks, SampleShared& s) {
    block_sync();
    if (thread_index() == 0) {
        int n = c.dims.n_vocab;
        int each = ((n + n_blocks - 1) / n_blocks + warp_lanes - 1) / warp_lanes * warp_lanes;
        int begin = rank * each < n ? rank * each : n;
        int end = begin + each < n ? begin + each : n;
        s.team = {c.scratch.teams + row, c.fault, n_blocks, rank, begin, end, 0, 0};
    }
    block_sync();
}

// All threads of all blocks of the team: what they wrote before is seen behind it.
OJ_DEVICE void team_sync(SampleShared& s) {
    block_sync();
    if (thread_index() == 0) {
        Team& team = s.team;
        ++team.meetings;
        if (team.n_blocks > 1) {
            uint32_t* arrived = &team.memory->arrived;
            add_release(arrived, 1);
            // After a fault the step is given up behind this phase.
            wait_for_arrivals(arrived, static_cast<uint32_t>(team.meetings * team.n_blocks),
                              team.fault);
        }
    }
    block_sync();
}

// Each block gives its part, the same in all its threads; lane i gets block i's, and `none` where
// there is no block.
OJ_DEVICE TeamPart exchange(const TeamPart& mine, const TeamPart& none, SampleShared& s) {
    TeamPart* parts = s.team.memory->parts[s.team.meetings % 2];
    if (thread_index() == 0) parts[s.team.rank] = mine;
    team_sync(s);
    return lane_index() < s.team.n_blocks ? parts[lane_index()] : none;
}

struct Candidate {
    float value;
    int32_t id;
};

constexpr Candidate no_candidate = {-INFINITY, kEveryId};

OJ_DEVICE Candidate better(Candidate a, Candidate b) {
    return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

OJ_DEVICE Candidate warp_best(Candidate mine) {
    for (int width = warp_lanes / 2; width > 0; width /= 2) {
        Candidate other = {shuffle_xor(mine.value, width), shuffle_xor(mine.id, width)};
        mine = better(mine, other);
    }
    return mine;
}

// The largest value, lowest id first; every thread of the team gets it.
OJ_DEVICE Candidate team_best(Candidate mine, SampleShared& s) {
    mine = warp_best(mine);
    block_sync();
    if (lane_index() == 0) {
        s.values[warp_index()] = mine.value;
        s.ids[warp_index()] = mine.id;
    }
    block_sync();
    for (int w = 0; w < block_warps; ++w)
        mine = better(mine, Candidate{s.values[w], s.ids[w]});
    if (s.team.n_blocks == 1) return mine;
    TeamPart part = exchange({0, mine.value, mine.id}, {0, no_candidate.value, no_candidate.id}, s);
    return warp_best({part.value, part.id});
}

OJ_DEVICE int64_t block_sum(int64_t mine, SampleShared& s) {
    mine = warp_sum(mine);
    block_sync();
    if (lane_index() == 0) s.sums[warp_index()] = mine;
    block_sync();
    int64_t sum = 0;
    for (int w = 0; w < block_warps; ++w)
        sum += s.sums[w];
    return sum;
}

OJ_DEVICE int64_t team_sum(int64_t mine, SampleShared& s) {
    int64_t sum = block_sum(mine, s);
    if (s.team.n_blocks == 1) return sum;
    return warp_sum(exchange({sum, 0, 0}, {0, 0, 0}, s).sum);
}

// What the warps of the team before this one counted, and in *total what all did.
OJ_DEVICE int64_t counted_before(int64_t count, int64_t* total, SampleShared& s) {
    int64_t of_block = block_sum(lane_index() == 0 ? count : 0, s);
    TeamPart part = exchange({of_block, 0, 0}, {0, 0, 0}, s);
    *total = warp_sum(part.sum);
    int64_t before = warp_sum(lane_index() < s.team.rank ? part.sum : 0);
    for (int w = 0; w < warp_index(); ++w)
        before += s.sums[w];
    return before;
}

// The sums over the team of s.bins[0..n_bins), in place.
OJ_DEVICE void add_bins(uint32_t n_bins, SampleShared& s) {
    Team& team = s.team;
    const int round = team.rounds;
    block_sync();
    if (team.n_blocks == 1) return;
    uint64_t* bins = team.memory->bins[round % 3];
    uint64_t* next = team.memory->bins[(round + 1) % 3];
    for (uint32_t b = thread_index(); b < kSelectBins; b += block_threads) {
        if (b < n_bins && s.bins[b] != 0) atomic_add(&bins[b], s.bins[b]);
        if (team.rank == 0) next[b] = 0;  // its readers have met since
    }
    if (thread_index() == 0) team.rounds = round + 1;
    team_sync(s);
    for (uint32_t b = thread_index(); b < n_bins; b += block_threads)
        s.bins[b] = bins[b];
    block_sync();
}

// The thread that writes what the team has found.
OJ_DEVICE bool is_speaker(const SampleShared& s) {
    return s.team.rank == 0 && thread_index() == 0;
}

// Calls f(id) for this thread's ids of the block's part of the vocabulary.
template <class F>
OJ_DEVICE void for_ids(const SampleShared& s, F f) {
    const int end = s.team.end;
    OJ_UNROLL(4)
    for (int32_t id = s.team.begin + thread_index(); id < end; id += block_threads)
        f(id);
}

// Calls f(id, value) for this thread's ids of the block's part of the vocabulary, and some behind
// it with -INFINITY; `together` values are on their way at a time.
template <int together, class F>
OJ_DEVICE void for_values(const float* from, const SampleShared& s, F f) {
    const float* values = in_global(from);
    const int end = s.team.end;
    OJ_UNROLL(1)
    for (int first = s.team.begin + thread_index(); first < end;
         first += together * block_threads) {
        float v[together];
        OJ_UNROLL_ALL
        for (int i = 0; i < together; ++i) {
            const int id = first + i * block_threads;
            v[i] = id < end ? values[id] : -INFINITY;
        }
        OJ_UNROLL_ALL
        for (int i = 0; i < together; ++i)
            f(first + i * block_threads, v[i]);
    }
}

OJ_DEVICE void copy_part(const float* from, float* to, const SampleShared& s) {
    for_values<8>(from, s, [&](int32_t id, float value) {
        if (id < s.team.end) in_global(to)[id] = value;
    });
}

// ------------------------------------------------------------- logits -> scores

OJ_DEVICE bool is_own(const SampleShared& s, int32_t id) {
    return id >= s.team.begin && id < s.team.end;
}

OJ_DEVICE void penalize(const StepView& step, const Run& run, float* scores,
                        const SampleShared& s) {
    const int32_t* ids = step.penalty_ids + run.first_penalty;
    const int32_t* counts = step.penalty_counts + run.first_penalty;
    for (int k = thread_index(); k < run.n_penalty; k += block_threads) {
        if (!is_own(s, ids[k])) continue;
        int32_t count = counts[k];
        for (int e = 0; e < s.n_extra; ++e)
            count += s.extra[e] == ids[k];
        scores[ids[k]] = penalized(scores[ids[k]], run.sampling, count);
    }
    int e = thread_index();
    if (e >= s.n_extra || !is_own(s, s.extra[e])) return;
    int32_t id = s.extra[e], count = 0;
    for (int k = 0; k < e; ++k)
        if (s.extra[k] == id) return;
    for (int k = 0; k < run.n_penalty; ++k)
        if (ids[k] == id) return;
    for (int k = e; k < s.n_extra; ++k)
        count += s.extra[k] == id;
    scores[id] = penalized(scores[id], run.sampling, count);
}

// Bias, penalties and mask, in place, of the block's part.
OJ_DEVICE void adjust_scores(const StepView& step, const Run& run, const uint32_t* mask,
                             float* scores, SampleShared& s) {
    block_sync();
    if (thread_index() == 0) {
        for (int k = 0; k < run.sampling.n_bias; ++k) {
            int at = run.first_bias + k;
            if (is_own(s, step.bias_ids[at])) scores[step.bias_ids[at]] += step.bias_values[at];
        }
    }
    block_sync();
    if (has_penalties(run.sampling)) penalize(step, run, scores, s);
    block_sync();
    if (mask == nullptr) return;
    for_ids(s, [&](int32_t i) {
        if (!(mask[i >> 5] >> (i & 31) & 1u)) scores[i] = -INFINITY;
    });
    block_sync();
}

// ------------------------------------------------------------- filters

OJ_DEVICE Candidate best_score(const float* scores, SampleShared& s) {
    Candidate mine = no_candidate;
    for_values<16>(scores, s, [&](int32_t id, float score) {
        if (score > mine.value) mine = {score, id};
    });
    mine = team_best(mine, s);
    return mine.id == kEveryId ? Candidate{mine.value, 0} : mine;
}

OJ_DEVICE bool is_member(const Distribution& d, int32_t id, const SampleShared& s) {
    float ranked = d.ranked(id);
    return d.scores[id] > s.least &&
           !(ranked < d.cutoff.score || (ranked == d.cutoff.score && id > d.cutoff.id));
}

// Of d's members, at one of its temperatures.
OJ_DEVICE int64_t members_mass(const Distribution& d, float temperature, SampleShared& s) {
    int64_t mass = 0;
    for_ids(s, [&](int32_t id) {
        if (is_member(d, id, s)) mass += token_mass((d.scores[id] - d.max) / temperature);
    });
    return team_sum(mass, s);
}

// The first bin at which the sum, from `before` on, reaches the target: s.bin and s.before (of the
// bins below it); n_bins if none does. By the first warp; each lane has n_bins / 32 bins.
OJ_DEVICE void find_bin(uint32_t n_bins, int64_t before, int64_t target, SampleShared& s) {
    if (warp_index() != 0) return;
    int lane = lane_index();
    uint32_t each = n_bins / warp_lanes, first = lane * each;
    int64_t own = 0;
    for (uint32_t b = first; b < first + each; ++b)
        own += static_cast<int64_t>(s.bins[b]);
    int64_t sum = own;
    for (int width = 1; width < warp_lanes; width *= 2) {
        int64_t below = shuffle_up(sum, width);
        if (lane >= width) sum += below;
    }
    uint32_t reached = warp_ballot(before + sum >= target);
    if (reached == 0) {
        if (lane == 0) s.bin = n_bins;
        return;
    }
    if ((reached & (0u - reached)) != 1u << lane) return;
    before += sum - own;
    uint32_t b = first;
    while (b + 1 < first + each && before + static_cast<int64_t>(s.bins[b]) < target)
        before += static_cast<int64_t>(s.bins[b++]);
    s.bin = b;
    s.before = before;
}

// The need-th member (from 1, the last if there are fewer) whose key is `key`, in ascending ids.
OJ_DEVICE int32_t nth_equal(const Distribution& d, uint32_t key, int64_t need, SampleShared& s) {
    int each = (s.team.end - s.team.begin + block_warps - 1) / block_warps;
    int begin = s.team.begin + warp_index() * each;
    int end = begin + each < s.team.end ? begin + each : s.team.end;
    auto matches = [&](int32_t id) {
        return id < end && is_member(d, id, s) && order_key(d.ranked(id)) == key;
    };
    int64_t count = 0, total;
    for (int first = begin; first < end; first += warp_lanes)
        count += count_bits(warp_ballot(matches(first + lane_index())));
    int64_t before = counted_before(count, &total, s);
    if (need > total) need = total;
    Candidate mine = no_candidate;
    if (before < need && need <= before + count) {
        for (int first = begin; first < end; first += warp_lanes) {
            bool match = matches(first + lane_index());
            uint32_t found = warp_ballot(match);
            int64_t rank = before + 1 + count_bits(found & ((1u << lane_index()) - 1u));
            if (match && rank == need) mine = {0.0f, first + lane_index()};
            before += count_bits(found);
        }
    }
    return team_best(mine, s).id;
}

// Keeps the shortest prefix of d's set that holds `target` (tokens, or mass), by radix selection.
OJ_DEVICE void keep_prefix(Distribution* d, bool by_mass, int64_t target, SampleShared& s) {
    int64_t before = 0;
    uint32_t prefix = 0;
    for (int shift = 20; shift >= 0; shift -= 10) {
        int width = shift == 20 ? 11 : 10;
        uint32_t n_bins = 1u << width;
        block_sync();
        for (uint32_t b = thread_index(); b < n_bins; b += block_threads)
            s.bins[b] = 0;
        block_sync();
        for_ids(s, [&](int32_t id) {
            float ranked = d->ranked(id);
            uint32_t key = order_key(ranked) >> shift;
            if (!is_member(*d, id, s) || key >> width != prefix) return;
            uint64_t add = static_cast<uint64_t>(by_mass ? token_mass(ranked) : 1);
            atomic_add(&s.bins[key & (n_bins - 1)], add);
        });
        add_bins(n_bins, s);
        find_bin(n_bins, before, target, s);
        block_sync();
        if (s.bin == n_bins) return;  // the whole set holds less
        before = s.before;
        prefix = prefix << width | s.bin;
    }
    float ranked = bits_to_float(prefix | (prefix != 0 ? 0x80000000u : 0u));
    int64_t each = by_mass ? token_mass(ranked) : 1;
    int64_t need = each > 0 ? (target - before + each - 1) / each : INT64_MAX;
    int32_t last = nth_equal(*d, prefix, need, s);
    if (last == kEveryId) return;  // only after a fault
    d->cutoff = Cutoff{d->ranked(last), last};
}

// As oj::make_distribution.
OJ_DEVICE Distribution filtered(const float* scores, float max, const oj_sampling& sampling,
                                SampleShared& s) {
    float filter_temperature = sampling.temperature_last ? 1.0f : sampling.temperature;
    Distribution d{scores,  max, sampling.temperature, filter_temperature, {-INFINITY, -1}, 0,
                   nullptr, 0};
    float hottest = fmaxf(sampling.temperature, filter_temperature);
    block_sync();
    if (thread_index() == 0) s.least = fmaf(kLeastScore - 0.5f, hottest, max);
    block_sync();
    if (sampling.top_k > 0) keep_prefix(&d, false, sampling.top_k, s);
    if (sampling.top_p < 1.0f) {
        double part = static_cast<double>(sampling.top_p) *
                      static_cast<double>(members_mass(d, filter_temperature, s));
        int64_t target = static_cast<int64_t>(part);
        keep_prefix(&d, true, target > 0 ? target : 1, s);
    }
    if (sampling.min_p > 0.0f) {
        float least_ranked = log_f32(sampling.min_p);
        if (least_ranked > d.cutoff.score) d.cutoff = Cutoff{least_ranked, kEveryId};
    }
    d.mass = members_mass(d, sampling.temperature, s);
    return d;
}

// ------------------------------------------------------------- choices

OJ_DEVICE int32_t choose_member(const Distribution& d, Noise noise, SampleShared& s) {
    Candidate mine = no_candidate;
    for_ids(s, [&](int32_t id) {
        float scaled = d.scaled(id);
        if (!is_member(d, id, s) || scaled + kMaxGumbel < mine.value) return;
        float candidate = scaled + noise.at(id);
        if (candidate > mine.value) mine = {candidate, id};
    });
    mine = team_best(mine, s);
    return mine.id == kEveryId ? 0 : mine.id;
}

OJ_DEVICE int32_t choose_rest(const Distribution& p, const Distribution* q, int32_t draft,
                              Noise noise, SampleShared& s) {
    Candidate mine = no_candidate;
    for_ids(s, [&](int32_t id) {
        if (!is_member(p, id, s)) return;
        double rest = p.probability(id) - draft_probability(q, draft, id);
        if (!(rest > 0.0)) return;
        float candidate = log_f32(static_cast<float>(rest)) + noise.at(id);
        if (candidate > mine.value) mine = {candidate, id};
    });
    mine = team_best(mine, s);
    return mine.id == kEveryId ? choose_member(p, noise, s) : mine.id;
}

// ------------------------------------------------------------- log-probabilities

OJ_DEVICE void report_logprob(const float* scores, float max, int32_t token, int32_t n_top,
                              oj_logprob* out, SampleShared& s) {
    int64_t mass = 0;
    for_values<8>(scores, s, [&](int32_t, float score) { mass += token_mass(score - max); });
    mass = team_sum(mass, s);
    float log_sum = log_f32(static_cast<float>(mass)) - kLogMassUnit;
    bool is_first = is_speaker(s);
    if (is_first) out->logprob = scores[token] - max - log_sum;
    Candidate last = {INFINITY, -1};
    int n = 0;
    for (; n < n_top; ++n) {  // the best one behind the last
        Candidate mine = no_candidate;
        for_ids(s, [&](int32_t i) {
            bool is_behind = scores[i] < last.value || (scores[i] == last.value && i > last.id);
            if (is_behind && scores[i] > mine.value) mine = {scores[i], i};
        });
        last = team_best(mine, s);
        if (last.id == kEveryId) break;
        if (is_first) {
            out->top_ids[n] = last.id;
            out->top_logprobs[n] = last.value - max - log_sum;
        }
    }
    if (is_first) out->n_top = n;
}

// ------------------------------------------------------------- phases

// The token that a sampled row chooses or accepts, by the rule of oj::choose_row.
OJ_DEVICE int32_t chosen_token(const Context& c, const Run& run, int r, Candidate likeliest,
                               const float* scores, SampleShared& s) {
    const oj_sampling& sampling = run.sampling;
    if (sampling.temperature == 0.0f) return likeliest.id;
    int32_t position = run.position + run.n_certain + r;
    Distribution p = filtered(scores, likeliest.value, sampling, s);
    if (is_coupled(sampling))
        return choose_member(p, Noise(sampling.seed, position, Purpose::choice), s);
    if (r == run.n_sampled - 1)
        return choose_member(p, Noise(sampling.seed, position, Purpose::bonus), s);
    bool is_drawn = run.draft_source == OJ_DRAFT_MTP;
    const Distribution* q = is_drawn ? c.scratch.drawn + run.slot * OJ_MAX_DRAFTS + r : nullptr;
    int32_t draft = c.step.rows[run.first_row + run.n_certain + r].token;
    double u = uniform(sampling.seed, static_cast<uint32_t>(position), Purpose::accept);
    if (accept_draft(p, q, draft, u)) return draft;
    return choose_rest(p, q, draft, Noise(sampling.seed, position, Purpose::residual), s);
}

// What the sampled row `r` of a run is chosen by: its logits, or what bias, penalties and mask
// make of a copy.
OJ_DEVICE const float* adjusted_scores(const Context& c, const Run& run, int r, int item,
                                       const float* logits, SampleShared& s) {
    const int mask = run.first_mask < 0 ? -1 : c.step.mask_rows[run.first_mask + r];
    if (mask < 0 && run.sampling.n_bias == 0 && !has_penalties(run.sampling)) return logits;
    float* scores = c.scratch.scores + static_cast<int64_t>(item) * c.dims.n_vocab;
    copy_part(logits, scores, s);
    if (thread_index() < r)
        s.extra[thread_index()] = c.step.rows[run.first_row + run.n_certain + thread_index()].token;
    if (thread_index() == 0) s.n_extra = r;
    adjust_scores(c.step, run, mask < 0 ? nullptr : c.step.mask_bits + mask, scores, s);
    return scores;
}

// Every sampled row, as if the drafts before it were accepted.
OJ_PHASE void phase_choose(const Context& c, const Grid& grid, const Phase&) {
    SampleShared& s = *reinterpret_cast<SampleShared*>(grid.shared);
    const int n = c.step.n_sampled, together = team_blocks(n, grid.n_blocks);
    for (int item = grid.block / together; item < n; item += grid.n_blocks / together) {
        int row = c.step.sampled[item];
        const Run& run = c.step.runs[c.step.rows[row].run];
        int r = row - (run.first_row + run.n_rows - run.n_sampled);
        int at = c.step.rows[row].logits_row;
        const float* logits = c.scratch.logits.at(0, at);
        join_team(c, at, grid.block % together, together, s);
        const float* scores = adjusted_scores(c, run, r, item, logits, s);
        Candidate likeliest = best_score(scores, s);
        int32_t token = chosen_token(c, run, r, likeliest, scores, s);
        const float* reported = run.sampling.adjusted_logprobs != 0 ? scores : logits;
        float max = reported == scores ? likeliest.value : best_score(logits, s).value;
        report_logprob(reported, max, token, run.sampling.top_logprobs, &c.scratch.logprobs[at], s);
        if (is_speaker(s)) c.scratch.chosen[at] = token;
    }
}

// The accepted drafts of a run and one chosen token.
OJ_DEVICE void collect_result(const Context& c, const Run& run, oj_seq_result* result) {
    result->n_tokens = 0;
    result->n_drafts = 0;
    int first = run.first_row + run.n_rows - run.n_sampled;
    for (int r = 0; r < run.n_sampled; ++r) {
        int at = c.step.rows[first + r].logits_row;
        int32_t token = c.scratch.chosen[at];
        result->logprobs[r] = c.scratch.logprobs[at];
        result->tokens[result->n_tokens++] = token;
        if (r < run.n_sampled - 1 && token != c.step.rows[first + r + 1].token) return;
    }
}

// Results; hidden rows that later steps need: of the last certain row (of a fold alone: the last
// row folded) into the slot, of drafts into the record.
OJ_PHASE void phase_verify(const Context& c, const Grid& grid, const Phase&) {
    int n = c.dims.n_embd, n_delta = c.dims.n_delta_layers;
    for (int i = grid.block; i < c.step.n_runs; i += grid.n_blocks) {
        const Run& run = c.step.runs[i];
        if (thread_index() == 0) collect_result(c, run, &c.scratch.results[i]);
        const float* last = nullptr;
        if (run.n_rows > 0) {
            last = c.scratch.hidden + static_cast<int64_t>(run.first_row + run.n_certain - 1) * n;
        } else if (run.fold > 0) {
            last = c.states.record_hidden(run.slot, run.record_from, n_delta, run.fold - 1, n);
        }
        float* to = c.states.hidden(run.slot, n_delta);
        for (int k = thread_index(); last != nullptr && k < n; k += block_threads)
            to[k] = last[k];
        for (int r = run.n_certain; r < run.n_rows; ++r) {
            const float* from = c.scratch.hidden + static_cast<int64_t>(run.first_row + r) * n;
            float* record =
                c.states.record_hidden(run.slot, run.record_to, n_delta, r - run.n_certain, n);
            for (int k = thread_index(); k < n; k += block_threads)
                record[k] = from[k];
        }
    }
}

// Draft logits over the whole vocabulary: ids that the draft head leaves out are never drafted.
OJ_DEVICE void spread_draft_logits(const Context& c, int i, float* scores, SampleShared& s) {
    const float* logits = c.scratch.draft_logits.at(0, i);
    if (c.draft_ids == nullptr) return copy_part(logits, scores, s);
    for_ids(s, [&](int32_t id) { scores[id] = -INFINITY; });
    team_sync(s);  // ids of the head's rows are anybody's
    const int each = s.team.n_blocks * block_threads;
    OJ_UNROLL(4)
    for (int k = s.team.rank * block_threads + thread_index(); k < c.n_draft_ids; k += each)
        scores[c.draft_ids[k]] = logits[k];
    team_sync(s);
}

// The draft of run step.drafting[i] behind its tokens and drafts so far, as oj::draft_token.
OJ_DEVICE int32_t draw_draft(const Context& c, int i, int depth, int32_t position, float* scores,
                             SampleShared& s) {
    const Run& run = c.step.runs[c.step.drafting[i]];
    const oj_seq_result& result = c.scratch.results[c.step.drafting[i]];
    const oj_sampling& sampling = run.sampling;
    int n_extra = result.n_tokens + depth;
    if (thread_index() < n_extra) {
        int k = thread_index();
        s.extra[k] = k < result.n_tokens ? result.tokens[k] : result.drafts[k - result.n_tokens];
    }
    if (thread_index() == 0) s.n_extra = n_extra;
    adjust_scores(c.step, run, nullptr, scores, s);
    Candidate likeliest = best_score(scores, s);
    if (sampling.temperature == 0.0f) return likeliest.id;
    Distribution d = filtered(scores, likeliest.value, sampling, s);
    Purpose purpose = Purpose::choice;
    if (!is_coupled(sampling)) {
        purpose = Purpose::draft;
        if (is_speaker(s)) c.scratch.drawn[run.slot * OJ_MAX_DRAFTS + depth] = d;
    }
    return choose_member(d, Noise(sampling.seed, position, purpose), s);
}

OJ_PHASE void phase_draft_choose(const Context& c, const Grid& grid, const Phase& p) {
    SampleShared& s = *reinterpret_cast<SampleShared*>(grid.shared);
    int64_t n_vocab = c.dims.n_vocab;
    const int n = c.step.n_drafting, together = team_blocks(n, grid.n_blocks);
    for (int i = grid.block / together; i < n; i += grid.n_blocks / together) {
        int32_t position = c.draft.rows[i].position;
        if (position < 0) continue;
        int index = c.step.drafting[i];
        const Run& run = c.step.runs[index];
        float* scores = c.scratch.scores + i * n_vocab;
        if (!is_coupled(run.sampling)) {
            int64_t drawn = static_cast<int64_t>(run.slot) * OJ_MAX_DRAFTS + p.depth;
            scores = c.scratch.drawn_scores + drawn * n_vocab;
        }
        join_team(c, i, grid.block % together, together, s);
        spread_draft_logits(c, i, scores, s);
        block_sync();
        if (c.step.keep_logits != 0) {
            int64_t kept = static_cast<int64_t>(index) * OJ_MAX_DRAFTS + p.depth;
            copy_part(scores, c.scratch.kept_drafts + kept * n_vocab, s);
        }
        int32_t token = draw_draft(c, i, p.depth, position + 1, scores, s);
        if (is_speaker(s)) {
            c.scratch.results[index].drafts[p.depth] = token;
            c.scratch.results[index].n_drafts = p.depth + 1;
        }
    }
}

}  // namespace oj::cuda
