// Choosing tokens: the code that every backend instantiates on its logits.
//
// A token is t = argmax over the filtered set of log p_i + G(seed, position, i), ties to the lowest
// id; `position` is always the absolute position of the token being chosen. Two rules verify
// drafts:
//   coupled    (temperature 0, or a named seed) drafts use the same G; accepted if and only if
//   equal
//              to t, so drafts change nothing but speed;
//   rejection  accept with min(1, p/q), else draw from the normalised (p - q)+.
//
// No floating-point sum runs over the vocabulary: probability mass is counted in integers (2^30 for
// the likeliest token; one that rounds to 0 is never drawn), and everything else is a maximum. So a
// device may split the loops over ids among its threads in any way and still get the same bits as
// the plain loops here.
#pragma once

#include "engine/random.h"
#include "openjet.h"

namespace oj {

constexpr int kSelectBins = 2048;
constexpr int32_t kEveryId = 0x7fffffff;
constexpr int kLanes = 16;                   // loops of this length become vector instructions
constexpr float kMassUnit = 1073741824.0f;   // 2^30
constexpr float kLogMassUnit = 20.7944154f;  // 30 ln 2
constexpr float kLeastScore = -21.5f;        // e^-21.5 is less than half of 2^-30

// Scratch of one row; the arrays belong to the caller.
struct SampleWorkspace {
    float* scores;   // [n_vocab]
    int32_t* ids;    // [n_vocab]
    uint64_t* bins;  // [kSelectBins]
};

// Generated tokens that penalties count: the history, and the tokens after it in this step.
struct Penalties {
    const int32_t* ids;  // distinct
    const int32_t* counts;
    int32_t n;
    const int32_t* extra;  // need not be distinct
    int32_t n_extra;
};

// The filtered set is a prefix of the order (score descending, id ascending); this is its last
// member (or a bound just behind it).
struct Cutoff {
    float score;
    int32_t id;
};

// A filtered distribution over token ids. It stays valid as long as `scores` do; the list of its
// members only until the workspace is used again.
struct Distribution {
    const float* scores;  // [n_vocab] logits after bias, penalties and mask
    float max;
    float temperature;         // > 0
    float filter_temperature;  // what top-p and min-p see; 1 when temperature comes last
    Cutoff cutoff;             // in scores that the filters see
    int64_t mass;              // of the filtered set
    int32_t* ids;              // its members, ascending
    int32_t n_ids;

    OJ_HD float scaled(int32_t id) const { return (scores[id] - max) / temperature; }
    OJ_HD float ranked(int32_t id) const { return (scores[id] - max) / filter_temperature; }
    OJ_HD double probability(int32_t id) const;
};

// The probability mass of a scaled score (<= 0) in units of 2^-30 of the likeliest token's.
OJ_HD int32_t token_mass(float scaled) {
    const float mass = scaled > kLeastScore ? exp_f32(scaled) * kMassUnit : 0.0f;
    return static_cast<int32_t>(mass + 0.5f);
}

OJ_HD double Distribution::probability(int32_t id) const {
    const float s = ranked(id);
    if (s < cutoff.score || (s == cutoff.score && id > cutoff.id)) return 0.0;
    return static_cast<double>(token_mass(scaled(id))) / static_cast<double>(mass);
}

// ------------------------------------------------------------- logits -> scores

OJ_HD float penalized(float score, const oj_sampling& sampling, int32_t count) {
    if (count <= 0) return score;
    score = score > 0.0f ? score / sampling.repetition : score * sampling.repetition;
    return fmaf(-sampling.frequency, static_cast<float>(count), score) - sampling.presence;
}

OJ_HD bool has_penalties(const oj_sampling& sampling) {
    return sampling.presence != 0.0f || sampling.frequency != 0.0f || sampling.repetition != 1.0f;
}

OJ_HD void apply_penalties(const oj_sampling& sampling, const Penalties& penalties, float* scores) {
    for (int32_t k = 0; k < penalties.n; ++k) {
        const int32_t id = penalties.ids[k];
        int32_t count = penalties.counts[k];
        for (int32_t e = 0; e < penalties.n_extra; ++e)
            count += penalties.extra[e] == id;
        scores[id] = penalized(scores[id], sampling, count);
    }
    for (int32_t e = 0; e < penalties.n_extra; ++e) {
        const int32_t id = penalties.extra[e];
        bool counted = false;
        for (int32_t k = 0; k < penalties.n && !counted; ++k)
            counted = penalties.ids[k] == id;
        for (int32_t k = 0; k < e && !counted; ++k)
            counted = penalties.extra[k] == id;
        if (counted) continue;
        int32_t count = 0;
        for (int32_t k = e; k < penalties.n_extra; ++k)
            count += penalties.extra[k] == id;
        scores[id] = penalized(scores[id], sampling, count);
    }
}

// scores = logits with bias, penalties and mask (NULL = all allowed; else at least one bit must be
// set). `scores` may be `logits`.
OJ_HD void score_row(const float* logits, int32_t n_vocab, const oj_sampling& sampling,
                     const Penalties& penalties, const uint32_t* mask, float* scores) {
    for (int32_t i = 0; i < n_vocab; ++i)
        scores[i] = logits[i];
    for (int32_t k = 0; k < sampling.n_bias; ++k) {
        scores[sampling.bias_ids[k]] += sampling.bias_values[k];
    }
    if (has_penalties(sampling)) apply_penalties(sampling, penalties, scores);
    if (mask) {
        for (int32_t i = 0; i < n_vocab; ++i) {
            if (!(mask[i >> 5] >> (i & 31) & 1u)) scores[i] = -INFINITY;
        }
    }
}

// ------------------------------------------------------------- filters

// The largest score, lowest id first.
OJ_HD int32_t argmax(const float* scores, int32_t n_vocab) {
    float lanes[kLanes];
    for (int j = 0; j < kLanes; ++j)
        lanes[j] = -INFINITY;
    int32_t i = 0;
    for (; i + kLanes <= n_vocab; i += kLanes) {
        for (int j = 0; j < kLanes; ++j)
            lanes[j] = scores[i + j] > lanes[j] ? scores[i + j] : lanes[j];
    }
    for (; i < n_vocab; ++i)
        lanes[0] = scores[i] > lanes[0] ? scores[i] : lanes[0];
    float largest = -INFINITY;
    for (int j = 0; j < kLanes; ++j)
        largest = lanes[j] > largest ? lanes[j] : largest;
    for (i = 0; i < n_vocab; ++i) {
        if (scores[i] == largest) return i;
    }
    return 0;
}

// Of d's set, at one of its temperatures.
OJ_HD int64_t mass_at(const Distribution& d, float temperature) {
    int64_t mass = 0;
    for (int32_t k = 0; k < d.n_ids; ++k)
        mass += token_mass((d.scores[d.ids[k]] - d.max) / temperature);
    return mass;
}

// Bits that ascend as scores descend from 0.
OJ_HD uint32_t order_key(float scaled) {
    return float_to_bits(scaled) & 0x7fffffffu;
}

// Keeps the shortest prefix of d's set that holds `target` (tokens, or mass), by radix selection.
OJ_HD void keep_prefix(Distribution* d, bool by_mass, int64_t target, uint64_t* bins) {
    const int shifts[3] = {20, 10, 0};
    const int widths[3] = {11, 10, 10};
    int64_t before = 0;  // held by keys below `prefix`
    uint32_t prefix = 0;
    for (int pass = 0; pass < 3; ++pass) {
        const uint32_t n_bins = 1u << widths[pass];
        for (uint32_t b = 0; b < n_bins; ++b)
            bins[b] = 0;
        for (int32_t k = 0; k < d->n_ids; ++k) {
            const float s = d->ranked(d->ids[k]);
            const uint32_t key = order_key(s) >> shifts[pass];
            if (key >> widths[pass] != prefix) continue;
            bins[key & (n_bins - 1)] += static_cast<uint64_t>(by_mass ? token_mass(s) : 1);
        }
        uint32_t b = 0;
        while (b < n_bins && before + static_cast<int64_t>(bins[b]) < target)
            before += static_cast<int64_t>(bins[b++]);
        if (b == n_bins) return;  // the whole set holds less
        prefix = prefix << widths[pass] | b;
        int32_t n = 0;
        for (int32_t k = 0; k < d->n_ids; ++k) {
            const int32_t id = d->ids[k];
            if (order_key(d->ranked(id)) >> shifts[pass] <= prefix) d->ids[n++] = id;
        }
        d->n_ids = n;
    }
    int32_t n = 0;
    for (int32_t k = 0; k < d->n_ids; ++k) {  // equal scores: lowest ids first
        const int32_t id = d->ids[k];
        const float s = d->ranked(id);
        if (order_key(s) == prefix) {
            if (before >= target) continue;
            before += by_mass ? token_mass(s) : 1;
            d->cutoff = Cutoff{s, id};
        }
        d->ids[n++] = id;
    }
    d->n_ids = n;
}

OJ_HD void keep_above(Distribution* d, float least) {
    if (!(least > d->cutoff.score)) return;
    d->cutoff = Cutoff{least, kEveryId};
    int32_t n = 0;
    for (int32_t k = 0; k < d->n_ids; ++k) {
        const int32_t id = d->ids[k];
        if (d->ranked(id) >= least) d->ids[n++] = id;
    }
    d->n_ids = n;
}

// Temperature (> 0), top-k, top-p, min-p over the scores in `work`, or temperature behind them;
// `max` is the largest score.
OJ_HD Distribution make_distribution(const SampleWorkspace& work, int32_t n_vocab, float max,
                                     const oj_sampling& sampling) {
    const float filter_temperature = sampling.temperature_last ? 1.0f : sampling.temperature;
    Distribution d{work.scores, max, sampling.temperature, filter_temperature, {-INFINITY, -1}, 0,
                   work.ids,    0};
    const float hottest = fmaxf(sampling.temperature, filter_temperature);
    const float least = fmaf(kLeastScore - 0.5f, hottest, max);  // no mass below
    for (int32_t i = 0; i < n_vocab; ++i) {
        work.ids[d.n_ids] = i;
        d.n_ids += work.scores[i] > least;
    }
    if (sampling.top_k > 0 && sampling.top_k < d.n_ids) {
        keep_prefix(&d, false, sampling.top_k, work.bins);
    }
    if (sampling.top_p < 1.0f) {
        const double part = static_cast<double>(sampling.top_p) *
                            static_cast<double>(mass_at(d, filter_temperature));
        const int64_t target = static_cast<int64_t>(part);
        keep_prefix(&d, true, target > 0 ? target : 1, work.bins);
    }
    if (sampling.min_p > 0.0f) keep_above(&d, log_f32(sampling.min_p));
    d.mass = mass_at(d, sampling.temperature);
    return d;
}

// ------------------------------------------------------------- choices

// argmax over the filtered set of log p + noise.
OJ_HD int32_t choose(const Distribution& d, Noise noise) {
    int32_t best = 0;
    float value = -INFINITY;
    for (int32_t k = 0; k < d.n_ids; ++k) {
        const float s = d.scaled(d.ids[k]);
        if (s + kMaxGumbel < value) continue;
        const float candidate = s + noise.at(d.ids[k]);
        if (candidate > value) {
            value = candidate;
            best = d.ids[k];
        }
    }
    return best;
}

// What the draft was drawn from; NULL stands for a certain draft (q is one-hot).
OJ_HD double draft_probability(const Distribution* q, int32_t draft, int32_t id) {
    return q ? q->probability(id) : (id == draft ? 1.0 : 0.0);
}

OJ_HD bool accept_draft(const Distribution& p, const Distribution* q, int32_t draft, double u) {
    return u * draft_probability(q, draft, draft) < p.probability(draft);
}

// Draws from the normalised (p - q)+.
OJ_HD int32_t choose_residual(const Distribution& p, const Distribution* q, int32_t draft,
                              Noise noise) {
    int32_t best = -1;
    float value = -INFINITY;
    for (int32_t k = 0; k < p.n_ids; ++k) {
        const int32_t id = p.ids[k];
        const double r = p.probability(id) - draft_probability(q, draft, id);
        if (!(r > 0.0)) continue;
        const float candidate = log_f32(static_cast<float>(r)) + noise.at(id);
        if (candidate > value) {
            value = candidate;
            best = id;
        }
    }
    return best >= 0 ? best : choose(p, noise);  // p == q but for rounding
}

// ------------------------------------------------------------- log-probabilities

// Log-probability of `token` and of the likeliest ones, of logits or adjusted scores; `max` is the
// largest of them.
OJ_HD void fill_logprob(const float* scores, int32_t n_vocab, float max, int32_t token,
                        int32_t n_top, oj_logprob* out) {
    int64_t mass = 0;
    int32_t at = 0;
    for (; at + kLanes <= n_vocab; at += kLanes) {
        int32_t lanes[kLanes];
        for (int j = 0; j < kLanes; ++j)
            lanes[j] = token_mass(scores[at + j] - max);
        for (int j = 0; j < kLanes; ++j)
            mass += lanes[j];
    }
    for (; at < n_vocab; ++at)
        mass += token_mass(scores[at] - max);
    const float log_sum = log_f32(static_cast<float>(mass)) - kLogMassUnit;
    out->logprob = scores[token] - max - log_sum;
    out->n_top = 0;
    for (int32_t i = 0; n_top > 0 && i < n_vocab; ++i) {
        const float s = scores[i];
        if (out->n_top == n_top && !(s > out->top_logprobs[n_top - 1])) continue;
        if (!(s > -INFINITY)) continue;
        int32_t k = out->n_top < n_top ? out->n_top++ : n_top - 1;
        for (; k > 0 && s > out->top_logprobs[k - 1]; --k) {
            out->top_ids[k] = out->top_ids[k - 1];
            out->top_logprobs[k] = out->top_logprobs[k - 1];
        }
        out->top_ids[k] = i;
        out->top_logprobs[k] = s;
    }
    for (int32_t k = 0; k < out->n_top; ++k) {
        out->top_logprobs[k] = out->top_logprobs[k] - max - log_sum;
    }
}

// ------------------------------------------------------------- the two entry points

// The sampled rows of one conversation: the last certain row, then its drafts.
struct SampledRows {
    const float* logits;  // row r at logits + r * stride
    int64_t stride;
    int32_t n_rows;  // 1 + drafts
    int32_t n_vocab;
    int32_t position;       // absolute, of the token that row 0 chooses
    const int32_t* drafts;  // [n_rows - 1]
    const oj_sampling* sampling;
    Penalties penalties;           // up to row 0; `extra` unused
    const uint32_t* const* masks;  // NULL, or [n_rows]
    // Uncoupled MTP drafts: what each was drawn from, as draft_token left it; else NULL.
    const Distribution* q;  // [n_rows - 1]
};

OJ_HD bool is_coupled(const oj_sampling& sampling) {
    return sampling.coupled || sampling.temperature == 0.0f;
}

// The token that one row chooses or accepts, from its scores in `work`.
OJ_HD int32_t choose_row(const SampledRows& rows, int32_t r, int32_t likeliest,
                         const SampleWorkspace& work) {
    const oj_sampling& sampling = *rows.sampling;
    if (sampling.temperature == 0.0f) return likeliest;
    const int32_t position = rows.position + r;
    const Distribution p = make_distribution(work, rows.n_vocab, work.scores[likeliest], sampling);
    if (is_coupled(sampling)) return choose(p, Noise(sampling.seed, position, Purpose::choice));
    if (r == rows.n_rows - 1) return choose(p, Noise(sampling.seed, position, Purpose::bonus));
    const Distribution* q = rows.q ? &rows.q[r] : nullptr;
    const int32_t draft = rows.drafts[r];
    const double u = uniform(sampling.seed, static_cast<uint32_t>(position), Purpose::accept);
    if (accept_draft(p, q, draft, u)) return draft;
    return choose_residual(p, q, draft, Noise(sampling.seed, position, Purpose::residual));
}

// Fills n_tokens, tokens and logprobs: the accepted drafts and one chosen token.
OJ_HD void verify(const SampledRows& rows, SampleWorkspace work, oj_seq_result* result) {
    result->n_tokens = 0;
    for (int32_t r = 0; r < rows.n_rows; ++r) {
        Penalties penalties = rows.penalties;
        penalties.extra = rows.drafts;
        penalties.n_extra = r;
        score_row(rows.logits + r * rows.stride, rows.n_vocab, *rows.sampling, penalties,
                  rows.masks ? rows.masks[r] : nullptr, work.scores);
        const int32_t likeliest = argmax(work.scores, rows.n_vocab);
        const int32_t token = choose_row(rows, r, likeliest, work);
        const float* of = work.scores;
        float max = work.scores[likeliest];
        if (!rows.sampling->adjusted_logprobs) {
            of = rows.logits + r * rows.stride;
            max = of[argmax(of, rows.n_vocab)];
        }
        fill_logprob(of, rows.n_vocab, max, token, rows.sampling->top_logprobs,
                     &result->logprobs[r]);
        result->tokens[result->n_tokens++] = token;
        if (r < rows.n_rows - 1 && token != rows.drafts[r]) return;
    }
}

// An MTP draft from draft logits: the same filters and, if coupled, the same noise as the target.
// `position` is the draft's own; `penalties.extra` holds this step's tokens and drafts before it.
// Uncoupled: *q describes what it was drawn from and refers to work.scores, which the caller keeps
// (one array a draft) until these drafts are verified. Coupled: q may be NULL, work.scores is free.
OJ_HD int32_t draft_token(const float* logits, int32_t n_vocab, const oj_sampling& sampling,
                          const Penalties& penalties, int32_t position, SampleWorkspace work,
                          Distribution* q) {
    score_row(logits, n_vocab, sampling, penalties, nullptr, work.scores);
    const int32_t likeliest = argmax(work.scores, n_vocab);
    if (sampling.temperature == 0.0f) return likeliest;
    const Distribution d = make_distribution(work, n_vocab, work.scores[likeliest], sampling);
    if (q) *q = d;
    const Purpose purpose = is_coupled(sampling) ? Purpose::choice : Purpose::draft;
    return choose(d, Noise(sampling.seed, position, purpose));
}

}  // namespace oj
