// Whether a request can run now, and from which stored prefix it goes on.
#include "engine/runner.h"

#include <algorithm>

#include "engine/request.h"

namespace oj {

namespace {

constexpr int32_t kGrowth = 4;         // pages that a request must have room to grow by
constexpr int32_t kWorthWaiting = 64;  // tokens that are read once instead of twice

}  // namespace

Admission Runner::admit(Conversation& c) {
    if (free_slots_.empty()) return Admission::no_room;
    const int32_t limit = c.n_tokens() - 1;
    int32_t entry = index_.find(c.tokens, c.hashes, limit);
    const int32_t cached = entry < 0 ? 0 : index_[entry].length;
    if (joins_shared_prefix(c, std::max(cached, spilled_length(c.tokens, c.hashes, limit)))) {
        return Admission::later;
    }
    if (!bring_back(c.tokens, c.hashes, limit, &entry)) return Admission::later;
    if (!has_pages_for(c, entry)) {
        if (!running_.empty()) return Admission::no_room;
        entry = -1;  // alone, everybody's pages can be had but for those of its own prefix
    }
    resume(c, entry);
    return Admission::admitted;
}

void Runner::add(std::unique_ptr<Conversation> request) {
    running_.push_back(std::move(request));
    ask_for_masks(*running_.back());
}

// If somebody is reading what this request begins with too, or is about to store it as a live end,
// the request waits and resumes from there.
bool Runner::joins_shared_prefix(const Conversation& request, int32_t cached) {
    if (index_.n_total() == 0) return false;
    for (const auto& other : running_) {
        if (!other->ended && other->n_waiting() <= 1) continue;
        const auto limit = static_cast<size_t>(std::min(request.n_tokens() - 1, other->n_tokens()));
        const auto differ = std::mismatch(request.tokens.begin(), request.tokens.begin() + limit,
                                          other->tokens.begin());
        const auto common = static_cast<int32_t>(differ.first - request.tokens.begin());
        if (other->ended) {  // the next step stores all of it
            if (other->computed > cached && common >= other->computed) return true;
            continue;
        }
        if (common < cached + kWorthWaiting || common <= other->computed) continue;
        auto cut = std::find_if(other->cuts.begin(), other->cuts.end(),
                                [&](const Cut& known) { return known.length >= common; });
        if (cut == other->cuts.end() || cut->length != common) {
            cut = other->cuts.insert(cut, {common, true});
        }
        cut->shared = true;
        return true;
    }
    return false;
}

// Room for the prompt, some growth of its own and a page for everybody else.
bool Runner::has_pages_for(const Conversation& c, int32_t entry) const {
    int32_t available = pool_.n_free() + pool_.n_cached() - static_cast<int32_t>(running_.size());
    int32_t needed = std::min(pages_for(c.n_tokens()) + kGrowth, pages_for(options_.context));
    if (entry >= 0) {
        const StoredPrefix& prefix = index_[entry];
        needed -= prefix.length / kPageSize;
        for (int32_t page : prefix.pages)
            available -= !pool_.is_live(page);  // cannot be evicted while it is resumed from
    }
    return needed <= available;
}

void Runner::resume(Conversation& c, int32_t entry) {
    c.slot = free_slots_.back();
    free_slots_.pop_back();
    if (entry < 0) {
        backend_.reset(c.slot);
        extend_pages(c, c.n_tokens());
    } else {
        const std::vector<int32_t> stored = index_[entry].pages;
        c.computed = index_[entry].length;
        backend_.load(entry, c.slot);
        index_.touch(entry, c.tokens, c.hashes);
        for (int32_t page : stored)
            pool_.hold_live(page);
        const auto n_full = static_cast<size_t>(c.computed / kPageSize);
        c.pages.assign(stored.begin(), stored.begin() + n_full);
        extend_pages(c, c.n_tokens());
        if (n_full < stored.size()) {  // the partial page is copied: its rest is somebody else's
            const int32_t from = stored.back(), to = c.pages[n_full];
            backend_.copy_page(from, to);
            std::copy_n(pool_.tokens(from), kPageSize, pool_.tokens(to));
            pool_.drop_live(from);
        }
    }
    c.cuts.erase(std::remove_if(c.cuts.begin(), c.cuts.end(),
                                [&](const Cut& cut) { return cut.length <= c.computed; }),
                 c.cuts.end());
    if (c.stats.prompt_read > 0) return;  // it was preempted: counted before
    c.stats.queued_us = now_us() - c.submitted_us;
    c.stats.cached_tokens = c.computed;
    c.stats.prompt_read = c.computed;
    totals_.cached_tokens += c.computed;
}

}  // namespace oj
