#include "engine/scheduler.h"

#include <algorithm>

namespace oj {

namespace {

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
    for (size_t n = 0; n < shares->size(); ++n) {
        const size_t i = (n + static_cast<size_t>(limits.turn)) % shares->size();
        ((*shares)[i].waiting == 1 ? decoding : reading).push_back(i);
    }
    int32_t rows = limits.max_rows - static_cast<int32_t>(decoding.size());
    for (size_t i : decoding)
        (*shares)[i].certain_rows = 1;

    const int32_t for_drafts = rows - (reading.empty() ? 0 : limits.reserved_prompt_rows);
    share_evenly(shares, decoding, for_drafts, &RowShare::drafts, &RowShare::draft_rows);
    for (size_t i : decoding)
        rows -= (*shares)[i].draft_rows;

    if (!decoding.empty()) rows = std::min(rows, limits.prompt_rows);
    share_evenly(shares, reading, rows, &RowShare::limit, &RowShare::certain_rows);
}

void StepCost::observe(int32_t decode_rows, int32_t prompt_rows, double us) {
    if (prompt_rows == 0) {
        if (decode_rows == 0) return;
        recent_[n_recent_++ % recent_.size()] = us;
        const auto n = std::min<uint64_t>(n_recent_, recent_.size());
        std::array<double, 64> sorted = recent_;
        std::nth_element(sorted.begin(), sorted.begin() + n / 2, sorted.begin() + n);
        decode_us_ = sorted[n / 2];
        return;
    }
    const double own = std::max(0.0, us - (decode_rows > 0 ? decode_us_ : 0.0)) / prompt_rows;
    row_us_ = row_us_ == 0 ? own : row_us_ + 0.2 * (own - row_us_);
}

int32_t StepCost::prompt_rows(double target) const {
    if (decode_us_ == 0 || row_us_ == 0) return 0;
    return static_cast<int32_t>(std::min(65536.0, (target - 1.0) * decode_us_ / row_us_));
}

double StepCost::row_cost() const {
    if (decode_us_ == 0 || row_us_ == 0) return 1.0 / 16.0;
    return std::min(1.0, row_us_ / decode_us_);
}

}  // namespace oj
