// The header-only sampling code behind a few plain functions, for test_sampling.py.

#include <vector>

#include "engine/sampling.h"

using namespace oj;

extern "C" {

void shim_philox(uint64_t seed, uint32_t position, uint32_t purpose, uint32_t index,
                 uint32_t* words) {
    const RandomBlock block = philox(seed, position, static_cast<Purpose>(purpose), index);
    for (int i = 0; i < 4; ++i)
        words[i] = block.word[i];
}

float shim_gumbel(uint32_t x) {
    return gumbel(x);
}
float shim_log(float x) {
    return log_f32(x);
}

// verify() of `n_rows` rows; `extra` are the penalties' generated tokens.
void shim_verify(const float* logits, int32_t n_rows, int32_t n_vocab, int32_t position,
                 const int32_t* drafts, const oj_sampling* sampling, const int32_t* penalty_ids,
                 const int32_t* penalty_counts, int32_t n_penalty, const uint32_t* mask,
                 oj_seq_result* result) {
    std::vector<float> scores(static_cast<size_t>(n_vocab));
    std::vector<int32_t> ids(scores.size());
    std::vector<uint64_t> bins(kSelectBins);
    const std::vector<const uint32_t*> masks(static_cast<size_t>(n_rows), mask);
    SampledRows rows = {};
    rows.logits = logits;
    rows.stride = n_vocab;
    rows.n_rows = n_rows;
    rows.n_vocab = n_vocab;
    rows.position = position;
    rows.drafts = drafts;
    rows.sampling = sampling;
    rows.penalties = {penalty_ids, penalty_counts, n_penalty, nullptr, 0};
    rows.masks = mask ? masks.data() : nullptr;
    verify(rows, {scores.data(), ids.data(), bins.data()}, result);
}

// Draws one draft and verifies it, at `trials` positions. counts: of the token that came out;
// returns how many drafts were accepted. lookup: the draft is certain, the likeliest of `draft`.
int32_t shim_trials(const float* target, const float* draft, int32_t n_vocab,
                    const oj_sampling* sampling, int32_t lookup, int32_t trials, int64_t* counts) {
    std::vector<float> scores(static_cast<size_t>(n_vocab)), kept(scores);
    std::vector<int32_t> ids(scores.size());
    std::vector<uint64_t> bins(kSelectBins);
    std::vector<float> rows(target, target + n_vocab);
    rows.insert(rows.end(), target, target + n_vocab);
    int32_t accepted = 0;
    for (int32_t trial = 0; trial < trials; ++trial) {
        Distribution q = {};
        const int32_t token = lookup ? argmax(draft, n_vocab)
                                     : draft_token(draft, n_vocab, *sampling, {}, trial,
                                                   {kept.data(), ids.data(), bins.data()}, &q);
        SampledRows sampled = {};
        sampled.logits = rows.data();
        sampled.stride = n_vocab;
        sampled.n_rows = 2;
        sampled.n_vocab = n_vocab;
        sampled.position = trial;
        sampled.drafts = &token;
        sampled.sampling = sampling;
        sampled.q = lookup || is_coupled(*sampling) ? nullptr : &q;
        oj_seq_result result;
        verify(sampled, {scores.data(), ids.data(), bins.data()}, &result);
        ++counts[result.tokens[0]];
        accepted += result.n_tokens == 2;
    }
    return accepted;
}

}  // extern "C"
