// The scheduler's arithmetic on steps whose cost is a formula, for test_scheduler.py.

#include <algorithm>
#include <random>

#include "engine/scheduler.h"

using namespace oj;

extern "C" {

// What steps really cost, and who is served.
struct shim_case {
    double step_us, row_us, pass_us;  // a step without drafts, a row more, a draft pass
    double noise;                     // steps take up to this part longer
    double target;                    // in ordinary steps
    int32_t n_decoding, n_reading;
    int32_t most_drafts;  // of a conversation; each step has any number up to that
    int32_t first_prompt;
    uint32_t seed;
};

// Of the steps in which prompts of 2,000 tokens are read: their number; the longest of those with
// more than one prompt row, in targets; how many tokens one prompt was ever ahead of another.
struct shim_outcome {
    int32_t steps;
    double worst;
    int32_t most_apart;
};

void shim_read_prompts(const shim_case* c, shim_outcome* out) {
    std::mt19937 random(c->seed);
    StepCost cost;
    *out = {};
    const auto compute = [&](StepTime step) {
        const double late = 1.0 + c->noise * static_cast<double>(random() % 1000) / 1000.0;
        step.draft_us = late * step.draft_passes * c->pass_us;
        const int32_t rows = step.decode_rows - step.n_decoding + step.prompt_rows;
        step.us = late * (c->step_us + rows * c->row_us) + step.draft_us;
        cost.observe(step);
        return step.us;
    };
    const auto some_drafts = [&] {
        return static_cast<int32_t>(random() % static_cast<uint32_t>(c->most_drafts + 1));
    };
    compute({0, 0, c->first_prompt, 0, 0, 0});
    std::vector<int32_t> left(static_cast<size_t>(c->n_reading), 2000);
    for (int32_t step = 0; *std::max_element(left.begin(), left.end()) > 0; ++step) {
        std::vector<RowShare> shares(static_cast<size_t>(c->n_decoding));
        int32_t passes = 0;
        for (RowShare& share : shares) {
            share.waiting = share.limit = 1;
            share.drafts = some_drafts();
            share.ahead = some_drafts();
            passes = std::max(passes, share.ahead);
        }
        const bool reads = step >= 100;
        for (int32_t tokens : left) {
            if (!reads) continue;
            shares.emplace_back();
            shares.back().waiting = shares.back().limit = tokens == 1 ? 0 : tokens;
        }
        const double target_us = c->target * cost.decode_us();
        RowLimits limits;
        limits.max_rows = 512;
        limits.turn = step;
        if (reads) limits.spare_rows = cost.spare_rows(target_us, passes);
        limits.min_prompt_rows = 1;
        share_rows(&shares, limits);
        StepTime time;
        time.n_decoding = c->n_decoding;
        time.draft_passes = passes;
        for (size_t i = 0; i < shares.size(); ++i) {
            const int32_t rows = shares[i].certain_rows + shares[i].draft_rows;
            const bool decodes = i < static_cast<size_t>(c->n_decoding);
            (decodes ? time.decode_rows : time.prompt_rows) += rows;
            if (decodes) continue;
            int32_t& tokens = left[i - static_cast<size_t>(c->n_decoding)];
            tokens = std::max(0, tokens - std::max(rows, tokens == 1 ? 1 : 0));
        }
        const double us = compute(time);
        if (!reads) continue;
        ++out->steps;
        if (time.prompt_rows > 1) out->worst = std::max(out->worst, us / target_us);
        const auto [low, high] = std::minmax_element(left.begin(), left.end());
        out->most_apart = std::max(out->most_apart, *high - *low);
    }
}
}
