// Guesses at what a conversation says next, and how far to trust them.
#pragma once

#include <cstdint>
#include <vector>

#include "openjet.h"

namespace oj {

// Prompt lookup: where the last few tokens occurred before, what followed is the guess.
class LookupIndex {
public:
    static constexpr int32_t kMinMatch = 3;  // tokens that must agree

    struct Match {
        int32_t end = 0;     // what followed begins here; 0 = no match
        int32_t length = 0;  // tokens that agree
    };

    // The longest of the most recent matches. `tokens` only ever grows between calls.
    Match find(const std::vector<int32_t>& tokens);

private:
    void extend(const std::vector<int32_t>& tokens);

    std::vector<int32_t> head_;      // hash of kMinMatch tokens -> the latest end of such a run
    std::vector<int32_t> previous_;  // by end of a run: the one before it in the same bucket
};

// What followed the match, `n` tokens of it; a repetition may run into its own guess.
std::vector<int32_t> continue_match(const std::vector<int32_t>& tokens, int32_t end, int32_t n);

// Kinds of draft whose success is watched separately.
enum class DraftKind { mtp, short_lookup, long_lookup };

inline DraftKind lookup_kind(int32_t match_length) {
    return match_length < 8 ? DraftKind::short_lookup : DraftKind::long_lookup;
}

// Which drafts have been right lately, and how deep they pay.
class DraftHistory {
public:
    // After every step that chose a token. A kind that was not used is slowly forgotten, so that it
    // is tried again.
    void record(DraftKind kind, int32_t drafted, int32_t accepted);

    // The depth up to `most` with most tokens per time, when a draft costs `cost` of a step.
    int32_t depth(DraftKind kind, int32_t most, double cost) const;
    // Drafts of `n` that will be accepted, on average.
    double expected(DraftKind kind, int32_t n) const;

private:
    static constexpr double kPrior[3] = {0.8, 0.4, 0.8};  // by DraftKind
    double success_[3] = {kPrior[0], kPrior[1], kPrior[2]};
};

}  // namespace oj
