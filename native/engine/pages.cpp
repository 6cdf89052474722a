#include "engine/pages.h"

namespace oj {

PagePool::PagePool(int32_t n_pages)
    : live_(n_pages), cached_(n_pages), tokens_(static_cast<size_t>(n_pages) * kPageSize) {
    free_.reserve(n_pages);
    for (int32_t page = n_pages - 1; page >= 0; --page)
        free_.push_back(page);
}

int32_t PagePool::acquire() {
    if (free_.empty()) return -1;
    const int32_t page = free_.back();
    free_.pop_back();
    live_[page] = 1;
    ++n_live_;
    return page;
}

void PagePool::hold_live(int32_t page) {
    if (live_[page]++ == 0) ++n_live_;
}

void PagePool::drop_live(int32_t page) {
    if (--live_[page] > 0) return;
    --n_live_;
    free_if_unheld(page);
}

void PagePool::hold_cached(int32_t page) {
    ++cached_[page];
}

void PagePool::drop_cached(int32_t page) {
    --cached_[page];
    free_if_unheld(page);
}

void PagePool::free_if_unheld(int32_t page) {
    if (live_[page] == 0 && cached_[page] == 0) free_.push_back(page);
}

}  // namespace oj
