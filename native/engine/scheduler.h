// Which rows the next step has. Pure functions of what is running and of what rows cost.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace oj {

// One running conversation as the scheduler sees it, and its part of the step.
struct RowShare {
    int32_t waiting = 0;  // certain rows outstanding; 1: it decodes
    int32_t limit = 0;    // ... of which this step may take at most these
    int32_t drafts = 0;   // draft rows it would like; 0 while a prompt is read
    int32_t fixed = 0;    // ... of which it gets these even where that makes a step dear
    int32_t ahead = 0;    // MTP drafts it would like to be proposed for the step after

    int32_t certain_rows = 0;  // out: 0 = it sits this step out
    int32_t draft_rows = 0;    // out
};

struct RowLimits {
    int32_t max_rows = 0;         // of a step; at least the conversations that decode + 1
    int32_t spare_rows = 0;       // drafts and prompts that fit beside the rows of those who decode
    int32_t min_prompt_rows = 0;  // ... but prompts get at least these
    int32_t turn = 0;             // rotates who is served first
};

// Every conversation that decodes gets its row, then its drafts, evenly, while rows last: of
// limits.max_rows, beside prompts of limits.spare_rows. Prompts share what is left of these, or of
// max_rows when nobody decodes, in equal parts.
void share_rows(std::vector<RowShare>* shares, const RowLimits& limits);

// A step that was computed, and how long it took.
struct StepTime {
    int32_t n_decoding = 0;   // conversations that decode
    int32_t decode_rows = 0;  // theirs, drafts included
    int32_t prompt_rows = 0;
    int32_t draft_passes = 0;  // of the MTP head, each for everybody
    double us = 0;
    double draft_us = 0;  // of that, spent in the passes; 0 = the backend cannot tell
};

// The median of the last `size` samples: a step that was held up, as when others take the cores,
// does not count.
template <size_t size>
class RecentMedian {
public:
    bool is_known() const { return n_ > 0; }
    double value() const { return value_; }  // 0 while unknown

    void add(double sample) {
        recent_[n_++ % size] = sample;
        const auto n = static_cast<std::ptrdiff_t>(std::min<uint64_t>(n_, size));
        std::array<double, size> sorted = recent_;
        std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.begin() + n);
        value_ = sorted[static_cast<size_t>(n / 2)];
    }

private:
    std::array<double, size> recent_ = {};
    uint64_t n_ = 0;
    double value_ = 0;
};

// What steps cost, learned from those before: a step in which everybody only decodes, and each
// further row and draft pass. How prompts are cut and how deep drafts go follows from it, so it
// changes speed and never a token.
class StepCost {
public:
    void observe(const StepTime& step);

    // The ordinary step: of those that only decode, drafts included. 0 while unknown.
    double decode_us() const { return decode_.value(); }
    // Rows beside those of conversations that decode that keep a step with so many draft passes
    // within `target_us`. Needs decode_us().
    int32_t spare_rows(double target_us, int32_t draft_passes) const;

    // One draft more for each of n conversations, as part of a decode step without drafts.
    double lookup_draft(int32_t n) const;
    double mtp_draft(int32_t n) const;

private:
    double row_us() const;

    RecentMedian<64> decode_;
    RecentMedian<64> plain_;  // decode steps without what their draft rows and passes cost
    RecentMedian<16> row_;    // soon dearer, further back in a prompt
    RecentMedian<16> pass_;
    int32_t last_rows_ = 0;  // prompts and drafts in the last step that had prompts beside decoding
};

}  // namespace oj
