#include "engine/prefix_index.h"

#include <algorithm>

namespace oj {

PrefixIndex::PrefixIndex(PagePool& pool, int32_t n_snapshots)
    : pool_(pool), entries_(n_snapshots) {}

bool PrefixIndex::matches(const StoredPrefix& entry, const std::vector<int32_t>& tokens,
                          const std::vector<uint64_t>& hashes) const {
    if (entry.length == 0 || entry.length > static_cast<int32_t>(tokens.size())) return false;
    if (entry.hash != hashes[entry.length]) return false;
    for (int32_t at = 0; at < entry.length; at += kPageSize) {
        const int32_t* stored = pool_.tokens(entry.pages[at / kPageSize]);
        const int32_t n = std::min(kPageSize, entry.length - at);
        if (!std::equal(stored, stored + n, tokens.begin() + at)) return false;
    }
    return true;
}

int32_t PrefixIndex::find(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes,
                          int32_t limit) {
    int32_t best = -1;
    for (int32_t i = 0; i < n_total(); ++i) {
        const StoredPrefix& entry = entries_[i];
        if (entry.length > limit || (best >= 0 && entry.length <= entries_[best].length)) continue;
        if (matches(entry, tokens, hashes)) best = i;
    }
    return best;
}

std::vector<int32_t> PrefixIndex::prefixes_of(const std::vector<int32_t>& tokens,
                                              const std::vector<uint64_t>& hashes) const {
    std::vector<int32_t> found;
    for (int32_t i = 0; i < n_total(); ++i) {
        if (matches(entries_[i], tokens, hashes)) found.push_back(i);
    }
    std::sort(found.begin(), found.end(),
              [&](int32_t a, int32_t b) { return entries_[a].length < entries_[b].length; });
    return found;
}

std::vector<int32_t> PrefixIndex::tokens_of(int32_t i) const {
    const StoredPrefix& entry = entries_[i];
    std::vector<int32_t> tokens;
    tokens.reserve(entry.pages.size() * static_cast<size_t>(kPageSize));
    for (int32_t page : entry.pages)
        tokens.insert(tokens.end(), pool_.tokens(page), pool_.tokens(page) + kPageSize);
    tokens.resize(static_cast<size_t>(entry.length));
    return tokens;
}

void PrefixIndex::touch(int32_t entry, const std::vector<int32_t>& tokens,
                        const std::vector<uint64_t>& hashes) {
    ++clock_;
    ++n_changes_;
    int32_t previous = 0;
    for (int32_t i : prefixes_of(tokens, hashes)) {
        StoredPrefix& stored = entries_[i];
        stored.superseded = !stored.shared && stored.length < entries_[entry].length;
        stored.saves = stored.length - previous;
        if (!stored.superseded) {
            stored.last_use = clock_;
            stored.spilled = false;
        }
        previous = stored.length;
    }
}

int32_t PrefixIndex::erase(const std::vector<int32_t>& tokens,
                           const std::vector<uint64_t>& hashes) {
    int32_t longest = 0;
    for (int32_t i : prefixes_of(tokens, hashes)) {
        if (entries_[i].shared) continue;
        longest = entries_[i].length;
        drop(i);
    }
    return longest;
}

int32_t PrefixIndex::insert(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes,
                            int32_t length, const std::vector<int32_t>& pages, bool shared) {
    const int32_t same = find(tokens, hashes, length);
    if (same >= 0 && entries_[same].length == length) {
        entries_[same].shared |= shared;
        touch(same, tokens, hashes);
        return -1;
    }
    if (n_used_ == n_total()) {
        const int32_t victim = least_useful(false);
        if (victim < 0) return -1;  // no snapshots at all
        evict(victim);
    }
    int32_t i = 0;
    while (entries_[i].length > 0)
        ++i;
    StoredPrefix& entry = entries_[i];
    entry.length = length;
    entry.id = ++last_id_;
    entry.hash = hashes[length];
    entry.pages.assign(pages.begin(), pages.begin() + pages_for(length));
    entry.shared = shared;
    for (int32_t page : entry.pages)
        pool_.hold_cached(page);
    ++n_used_;
    touch(i, tokens, hashes);
    return i;
}

bool PrefixIndex::frees_pages(const StoredPrefix& entry) const {
    return std::any_of(entry.pages.begin(), entry.pages.end(),
                       [&](int32_t page) { return !pool_.is_live(page); });
}

static bool less_useful(const StoredPrefix& a, const StoredPrefix& b) {
    if (a.superseded != b.superseded) return a.superseded;
    return a.superseded ? a.saves < b.saves : a.last_use < b.last_use;
}

int32_t PrefixIndex::least_useful(bool only_with_idle_pages) const {
    int32_t best = -1;
    for (int32_t i = 0; i < n_total(); ++i) {
        const StoredPrefix& entry = entries_[i];
        if (entry.length == 0 || (only_with_idle_pages && !frees_pages(entry))) continue;
        if (best < 0 || less_useful(entry, entries_[best])) best = i;
    }
    return best;
}

std::vector<PrefixIndex::Victim> PrefixIndex::next_victims(int32_t n_pages,
                                                           int32_t n_entries) const {
    int32_t free_pages = pool_.n_free(), free_entries = n_total() - n_used_;
    std::vector<Victim> victims;
    if (free_pages >= n_pages && free_entries >= n_entries) return victims;
    std::vector<int32_t> order;
    for (int32_t i = 0; i < n_total(); ++i) {
        if (entries_[i].length > 0) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return less_useful(entries_[a], entries_[b]); });
    std::vector<int32_t> drops(static_cast<size_t>(pool_.n_total()));
    for (int32_t i : order) {
        if (free_pages >= n_pages && free_entries >= n_entries) break;
        if (free_entries >= n_entries && !frees_pages(entries_[i])) continue;
        victims.push_back({i, 0});
        ++free_entries;
        for (int32_t page : entries_[i].pages) {
            const int32_t n_drops = ++drops[static_cast<size_t>(page)];
            victims.back().n_pages += n_drops == 1;
            free_pages += !pool_.is_live(page) && pool_.n_cached(page) == n_drops;
        }
    }
    return victims;
}

void PrefixIndex::evict(int32_t i) {
    if (evicted_) evicted_(i);
    const int32_t before = pool_.n_free();
    drop(i);
    n_evicted_pages_ += pool_.n_free() - before;
}

void PrefixIndex::drop(int32_t i) {
    for (int32_t page : entries_[i].pages)
        pool_.drop_cached(page);
    entries_[i] = StoredPrefix();
    --n_used_;
    ++n_changes_;
}

bool PrefixIndex::evict_page() {
    const int32_t before = pool_.n_free();
    while (pool_.n_free() == before) {
        const int32_t victim = least_useful(true);
        if (victim < 0) return false;
        evict(victim);
    }
    return true;
}

}  // namespace oj
