#include "engine/scheduler.h"

#include <algorithm>

namespace oj {

namespace {

constexpr double kUnknownRow = 1.0 / 16.0;  // of a decode step, until rows have been timed
constexpr double kUnknownPass = 0.5;        // of a row, until draft passes have been timed
constexpr int32_t kManyRows = 64;           // with fewer, a prompt alone says little about a row
constexpr int32_t kFirstRows = 16;          // beside decoding; then at most twice the step before
constexpr double kFewRows = 3;              // up to which one more may take a step ...
constexpr double kTolerance = 0.1;          // ... so much of its target beyond it

// Hands out `rows` one round at a time: each round gives everybody who wants more an equal part.
void share_evenly(std::vector<RowShare>* shares, const std::vector<size_t>& order, int32_t rows,
                  int32_t RowShare::* wanted, int32_t RowShare::* given) {
    for (;;) {
        int32_t hungry = 0;
        for (size_t i : order)
            hungry += (*shares)[i].*wanted > (*shares)[i].*given;
        if (hungry == 0 || rows <= 0) return;
        const int32_t part = std::max(1, rows / hungry);
        for (size_t i : order) {
            RowShare& share = (*shares)[i];
            const int32_t more = std::min({part, rows, share.*wanted - share.*given});
            share.*given += more;
            rows -= more;
        }
    }
}

}  // namespace

void share_rows(std::vector<RowShare>* shares, const RowLimits& limits) {
    std::vector<size_t> decoding, reading;
    for (size_t i = 0; i < shares->size(); ++i)
        ((*shares)[i].waiting == 1 ? decoding : reading).push_back(i);
    for (std::vector<size_t>* order : {&decoding, &reading}) {
        if (order->empty()) continue;
        const auto first =
            static_cast<std::ptrdiff_t>(static_cast<size_t>(limits.turn) % order->size());
        std::rotate(order->begin(), order->begin() + first, order->end());
    }
    int32_t rows = limits.max_rows - static_cast<int32_t>(decoding.size());
    for (size_t i : decoding)
        (*shares)[i].certain_rows = 1;

    int32_t drafts = 0;
    const auto share_drafts = [&](int32_t most, int32_t RowShare::* wanted) {
        share_evenly(shares, decoding, most - drafts, wanted, &RowShare::draft_rows);
        drafts = 0;
        for (size_t i : decoding)
            drafts += (*shares)[i].draft_rows;
    };
    const int32_t for_prompts = reading.empty() ? 0 : limits.min_prompt_rows;
    share_drafts(rows - for_prompts, &RowShare::fixed);
    const int32_t most = reading.empty() ? rows : std::min(rows, limits.spare_rows);
    share_drafts(most - for_prompts, &RowShare::drafts);

    rows -= drafts;
    if (!decoding.empty()) {
        rows = std::min(rows, std::max(limits.spare_rows - drafts, limits.min_prompt_rows));
    }
    share_evenly(shares, reading, rows, &RowShare::limit, &RowShare::certain_rows);
}

void StepCost::observe(const StepTime& step) {
    if (step.draft_passes > 0 && step.draft_us > 0) {
        pass_.add(step.draft_us / step.draft_passes);
    }
    const int32_t drafts = step.decode_rows - step.n_decoding;
    if (step.prompt_rows == 0) {
        if (step.decode_rows == 0) return;
        decode_.add(step.us);
        plain_.add(std::max(step.us - step.draft_us - drafts * row_.value(), step.us / 8));
    } else if (step.decode_rows == 0) {
        const bool tells = !row_.is_known() || step.prompt_rows >= kManyRows;
        if (tells) row_.add(step.us / step.prompt_rows);
    } else if (plain_.is_known()) {
        last_rows_ = step.prompt_rows + drafts;
        row_.add(std::max(step.us - step.draft_us - plain_.value(), 0.0) / last_rows_);
    }
}

// Few rows may be free and many not, so that what the last rows cost is a guess for many more. And
// one row beside others may cost more than each of two or three do, which only a step that has them
// can tell: a step that might take a little longer is tried.
int32_t StepCost::spare_rows(double target_us, int32_t draft_passes) const {
    const double row = std::max(row_us(), 1e-3);
    double left_us = target_us - plain_.value() - draft_passes * pass_.value();
    if (left_us < kFewRows * row) left_us += kTolerance * target_us;
    const double most = std::max(kFirstRows, 2 * last_rows_);
    return static_cast<int32_t>(std::clamp(left_us / row, 0.0, most));
}

double StepCost::lookup_draft(int32_t n) const {
    if (plain_.value() == 0) return n * kUnknownRow;
    return n * std::min(1.0, row_us() / plain_.value());
}

double StepCost::mtp_draft(int32_t n) const {
    const double rows = lookup_draft(n);
    if (plain_.value() == 0 || !pass_.is_known()) return rows * (1.0 + kUnknownPass);
    return rows + pass_.value() / plain_.value();
}

double StepCost::row_us() const {
    return row_.is_known() ? row_.value() : kUnknownRow * plain_.value();
}

}  // namespace oj
