// The pool of KV pages: which are free, which a running conversation holds, which are only kept for
// reuse, and the token ids whose keys and values each holds.
#pragma once

#include <cstdint>
#include <vector>

#include "openjet.h"

namespace oj {

constexpr int32_t kPageSize = OJ_PAGE_SIZE;

constexpr int32_t pages_for(int32_t n_positions) {
    return (n_positions + kPageSize - 1) / kPageSize;
}

class PagePool {
public:
    explicit PagePool(int32_t n_pages);

    // A free page held live once, or -1 when there is none.
    int32_t acquire();

    // A page may be held by any number of running conversations ("live") and stored prefixes
    // ("cached"); it is free again when nobody holds it.
    void hold_live(int32_t page);
    void drop_live(int32_t page);
    void hold_cached(int32_t page);
    void drop_cached(int32_t page);

    bool is_live(int32_t page) const { return live_[page] > 0; }
    int32_t n_cached(int32_t page) const { return cached_[page]; }  // stored prefixes

    int32_t* tokens(int32_t page) { return &tokens_[static_cast<size_t>(page) * kPageSize]; }

    int32_t n_total() const { return static_cast<int32_t>(live_.size()); }
    int32_t n_free() const { return static_cast<int32_t>(free_.size()); }
    int32_t n_live() const { return n_live_; }
    int32_t n_cached() const { return n_total() - n_free() - n_live_; }  // and not live

private:
    void free_if_unheld(int32_t page);

    std::vector<int32_t> live_;    // holders by page
    std::vector<int32_t> cached_;  // holders by page
    std::vector<int32_t> free_;    // stack
    std::vector<int32_t> tokens_;
    int32_t n_live_ = 0;
};

}  // namespace oj
