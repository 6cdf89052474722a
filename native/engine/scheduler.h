// Which rows the next step has. Pure functions of what is running and of what rows cost.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace oj {

// One running conversation as the scheduler sees it, and its part of the step.
struct RowShare {
    int32_t waiting = 0;  // certain rows outstanding; 1: it decodes
    int32_t limit = 0;    // ... of which this step may take at most these
    int32_t drafts = 0;   // draft rows it would like; 0 while a prompt is read

    int32_t certain_rows = 0;  // out: 0 = it sits this step out
    int32_t draft_rows = 0;    // out
};

struct RowLimits {
    int32_t max_rows = 0;              // of a step; at least the conversations that decode + 1
    int32_t prompt_rows = 0;           // beside decode rows; at least 1
    int32_t reserved_prompt_rows = 0;  // drafts leave at least these while a prompt is read
    int32_t turn = 0;                  // rotates who is served first
};

// Every conversation that decodes gets its row, then its drafts (evenly, while rows last); prompts
// share limits.prompt_rows (everything that is left when nobody decodes) in equal parts.
void share_rows(std::vector<RowShare>* shares, const RowLimits& limits);

// What rows cost, learned from steps: a decode step's median time, and a prompt row's.
class StepCost {
public:
    void observe(int32_t decode_rows, int32_t prompt_rows, double us);

    // Prompt rows that keep a step under `target` times a decode step; 0 while unknown.
    int32_t prompt_rows(double target) const;
    // One more row, as part of a decode step.
    double row_cost() const;

private:
    std::array<double, 64> recent_ = {};  // decode-only steps, us
    uint64_t n_recent_ = 0;
    double decode_us_ = 0;  // median of recent_
    double row_us_ = 0;
};

}  // namespace oj
