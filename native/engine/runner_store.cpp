// Stored prefixes that leave the backend's memory, and come back.
#include <algorithm>
#include <tuple>

#include "engine/prefix_store.h"
#include "engine/runner.h"

namespace oj {

namespace {

constexpr double kSpilling = 0.2;  // of a step
// One in so many is free, or stored elsewhere too. A prompt may store three states in one step.
constexpr int32_t kPagesAhead = 8;
constexpr int32_t kEntriesAhead = 4;
constexpr int32_t kFoundAnew = 4;  // when one in so many of these pages was taken

class EntrySource : public PrefixSource {
public:
    EntrySource(Backend& backend, int32_t entry, const std::vector<int32_t>& pages)
        : backend_(backend), entry_(entry), pages_(pages) {}

    void export_state(int64_t offset, int64_t n, uint8_t* out) override {
        backend_.export_snapshot(entry_, offset, n, out);
    }
    void export_page(size_t i, uint8_t* out) override { backend_.export_page(pages_[i], out); }

private:
    Backend& backend_;
    const int32_t entry_;
    const std::vector<int32_t>& pages_;
};

}  // namespace

void Runner::keep_in(PrefixStore& store) {
    store_ = &store;
    index_.on_evict([this](int32_t entry) { spill(entry, PrefixStore::to_the_end); });
}

// False: it is not all in the store yet.
bool Runner::spill(int32_t entry, const std::function<bool()>& go_on) {
    const StoredPrefix& stored = index_[entry];
    EntrySource source(backend_, entry, stored.pages);
    // Its tokens are as long as its history: they are looked at once, not with every piece.
    if (stored.id == spilling_ && store_->is_taking())
        return store_->take_more(stored.shared, source, go_on);
    if (store_->put(index_.tokens_of(entry), stored.shared, source, go_on)) return true;
    spilling_ = stored.id;
    return false;
}

// What will have to make room before long is copied a little in every step, so that no step waits
// while a whole conversation is. When somebody decodes, "a little" is of a step without prompts.
void Runner::spill_ahead() {
    if (!store_) return;
    const bool decodes = std::any_of(running_.begin(), running_.end(),
                                     [](const auto& c) { return c->n_waiting() == 1; });
    const int64_t start = clock_();
    const double most_us =
        kSpilling * (decodes ? cost_.decode_us() : static_cast<double>(totals_.last_step_us));
    const std::function<bool()> go_on = [&] {
        return static_cast<double>(clock_() - start) < most_us;
    };
    if (!store_->free_idle(running_.empty() ? PrefixStore::to_the_end : go_on)) return;
    find_victims();
    for (; victims_.n_done < victims_.entries.size(); ++victims_.n_done) {
        const int32_t entry = victims_.entries[victims_.n_done];
        if (index_[entry].spilled) continue;
        if (!spill(entry, go_on)) return;
        index_.set_spilled(entry);
        if (!go_on()) return;
    }
}

// What would be evicted next, and what comes after it as far as half of the store goes. With more,
// the store would drop what was copied before it is evicted: each prefix is used twice there, when
// it is copied and when it is evicted, and the least recently used go first.
void Runner::find_victims() {
    const int32_t n_pages = std::max(1, pool_.n_total() / kPagesAhead);
    const int32_t n_entries = std::max(1, index_.n_total() / kEntriesAhead);
    const bool are_fresh = victims_.index_changes == index_.n_changes() &&
                           pool_.n_free() + n_pages / kFoundAnew >= victims_.n_free;
    if (are_fresh) return;
    victims_ = {{}, 0, index_.n_changes(), pool_.n_free()};
    int64_t n_bytes = 0;
    for (const PrefixIndex::Victim& victim : index_.next_victims(n_pages, n_entries)) {
        n_bytes += store_->bytes_of(victim.n_pages);
        if (n_bytes > store_->most_bytes() / 2 && !victims_.entries.empty()) return;
        victims_.entries.push_back(victim.entry);
    }
}

// One conversation after the other, the most recently used first. Of each the longest prefix first:
// the others need no pages then.
void Runner::spill_all() {
    for (const auto& c : running_) {
        if (!c->pending) settle(*c);
    }
    remove_settled();
    while (compute()) {  // the others' last drafts
    }
    std::vector<int32_t> left;
    for (int32_t i = 0; i < index_.n_total(); ++i) {
        if (index_[i].length > 0) left.push_back(i);
    }
    const auto older = [&](int32_t a, int32_t b) {
        return std::tie(index_[a].last_use, index_[a].length) <
               std::tie(index_[b].last_use, index_[b].length);
    };
    while (!left.empty()) {
        const std::vector<int32_t> tokens =
            index_.tokens_of(*std::max_element(left.begin(), left.end(), older));
        std::vector<int32_t> chain = index_.prefixes_of(tokens, hash_prefixes(tokens));
        for (; !chain.empty(); chain.pop_back()) {
            const auto at = std::find(left.begin(), left.end(), chain.back());
            if (at == left.end()) continue;
            left.erase(at);
            spill(chain.back(), PrefixStore::to_the_end);
        }
    }
}

int32_t Runner::spilled_length(const std::vector<int32_t>& tokens,
                               const std::vector<uint64_t>& hashes, int32_t limit) const {
    if (!store_ || index_.n_total() == 0) return 0;
    return store_->longest(tokens, hashes, limit);
}

// If the store has a longer prefix than `entry`, that one becomes an entry again, if there is room.
// False: its bytes are being read.
bool Runner::bring_back(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes,
                        int32_t limit, int32_t* entry) {
    while (true) {
        const int32_t length = spilled_length(tokens, hashes, limit);
        if (length <= (*entry < 0 ? 0 : index_[*entry].length)) return true;
        if (!has_pages_to_import(length, *entry)) return true;
        SpilledPrefix prefix;
        switch (store_->fetch(tokens, hashes, length, &prefix)) {
            case PrefixStore::Fetch::later:
                return false;
            case PrefixStore::Fetch::lost:
                continue;
            case PrefixStore::Fetch::ready:
                *entry = import(tokens, hashes, length, *entry, prefix);
                return true;
        }
    }
}

// The full pages of `entry` are there already, and are not to be evicted.
bool Runner::has_pages_to_import(int32_t length, int32_t entry) const {
    int32_t needed = pages_for(length), available = pool_.n_free() + pool_.n_cached();
    if (entry >= 0) {
        const int32_t n_shared = index_[entry].length / kPageSize;
        needed -= n_shared;
        for (int32_t i = 0; i < n_shared; ++i)
            available -= !pool_.is_live(index_[entry].pages[static_cast<size_t>(i)]);
    }
    return needed <= available;
}

int32_t Runner::import(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes,
                       int32_t length, int32_t entry, const SpilledPrefix& prefix) {
    Conversation holder;  // of the pages, until they are the entry's
    if (entry >= 0) {
        const std::vector<int32_t>& pages = index_[entry].pages;
        holder.pages.assign(pages.begin(), pages.begin() + index_[entry].length / kPageSize);
    }
    for (int32_t page : holder.pages)
        pool_.hold_live(page);
    const size_t n_shared = holder.pages.size();
    extend_pages(holder, length);
    for (size_t i = n_shared; i < holder.pages.size(); ++i) {
        const auto first = static_cast<int32_t>(i) * kPageSize;
        const int32_t n = std::min(kPageSize, length - first);
        backend_.import_page(holder.pages[i], prefix.pages[i].get());
        std::copy_n(tokens.begin() + first, n, pool_.tokens(holder.pages[i]));
    }
    const int32_t imported = index_.insert(tokens, hashes, length, holder.pages, prefix.shared);
    backend_.import_snapshot(imported, prefix.state.get());
    release(holder);
    return imported;
}

bool Runner::export_stored(const std::vector<int32_t>& tokens, SavedConversation* saved) {
    const std::vector<uint64_t> hashes = hash_prefixes(tokens);
    const auto limit = static_cast<int32_t>(tokens.size());
    const int32_t entry = index_.find(tokens, hashes, limit);
    const int32_t here = entry < 0 ? 0 : index_[entry].length;
    const oj_state_format format = backend_.state_format();
    const auto take = [](int64_t n, const std::function<void(uint8_t*)>& fill) -> StateBytes {
        std::shared_ptr<uint8_t[]> bytes(new uint8_t[static_cast<size_t>(n)]);
        fill(bytes.get());
        return bytes;
    };
    SpilledPrefix spilled;
    const int32_t length = std::max(here, spilled_length(tokens, hashes, limit));
    if (length > here) {
        const PrefixStore::Fetch fetch = store_->fetch(tokens, hashes, length, &spilled);
        if (fetch != PrefixStore::Fetch::ready) return false;  // a lost one is not found again
    }
    saved->tokens.assign(tokens.begin(), tokens.begin() + length);
    for (int32_t i : index_.prefixes_of(saved->tokens, hashes)) {
        const auto fill = [&](uint8_t* out) {
            backend_.export_snapshot(i, 0, format.snapshot_bytes, out);
        };
        saved->states.push_back(
            {index_[i].length, index_[i].shared, take(format.snapshot_bytes, fill)});
    }
    if (length > here) {
        saved->states.push_back({length, spilled.shared, spilled.state});
        saved->pages = spilled.pages;
    } else if (entry >= 0) {
        for (int32_t page : index_[entry].pages) {
            const auto fill = [&](uint8_t* out) { backend_.export_page(page, out); };
            saved->pages.push_back(take(format.page_bytes, fill));
        }
    }
    return true;
}

int32_t Runner::erase(const std::vector<int32_t>& tokens, std::future<void>* removed) {
    const std::vector<uint64_t> hashes = hash_prefixes(tokens);
    const int32_t stored = index_.erase(tokens, hashes);
    if (!store_) return stored;
    PrefixStore::Erased erased = store_->erase(tokens, hashes);
    *removed = std::move(erased.removed);
    return std::max(stored, erased.length);
}

}  // namespace oj
