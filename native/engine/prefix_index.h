// Stored prefixes: exact token prefixes that a conversation can be resumed from.
//
// A recurrent model resumes only where a state was stored, so the index is of states: each comes
// with the pages of its positions, shared by reference with every conversation and prefix that has
// the same history. It is found by the hash of its tokens and confirmed by the token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/pages.h"

namespace oj {

// hash_prefix(hash of the first n tokens, token n) = hash of the first n + 1; 0 tokens have hash 0.
inline uint64_t hash_prefix(uint64_t hash, int32_t token) {
    hash = (hash ^ (static_cast<uint64_t>(token) + 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;
    return hash ^ (hash >> 32);
}

// By length, from 0 to all of the tokens.
inline std::vector<uint64_t> hash_prefixes(const std::vector<int32_t>& tokens) {
    std::vector<uint64_t> hashes{0};
    for (int32_t token : tokens)
        hashes.push_back(hash_prefix(hashes.back(), token));
    return hashes;
}

// That of all tokens only.
inline uint64_t hash_of(const std::vector<int32_t>& tokens) {
    uint64_t hash = 0;
    for (int32_t token : tokens)
        hash = hash_prefix(hash, token);
    return hash;
}

struct StoredPrefix {
    int32_t length = 0;  // tokens; 0 = this entry is free
    uint64_t id = 0;     // of these tokens: an entry that is used again has another one
    uint64_t hash = 0;
    std::vector<int32_t> pages;  // the last one may be partial; held as cached
    bool shared = false;         // a start that several conversations have in common
    uint64_t last_use = 0;
    // Its conversation has gone on from a longer stored prefix: dropped first, the one that saves
    // least first. `saves`: tokens beyond the next shorter stored prefix of the conversation.
    bool superseded = false;
    int32_t saves = 0;
    bool spilled = false;  // since its last use: nothing of it has to be copied when it is dropped
};

class PrefixIndex {
public:
    // Entry i owns the backend's snapshot i.
    PrefixIndex(PagePool& pool, int32_t n_snapshots);

    // The longest stored prefix of at most `limit` tokens, or -1. hashes[n] is that of tokens[0,
    // n).
    int32_t find(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes,
                 int32_t limit);

    // Records that `entry`, a prefix of `tokens`, was stored or resumed from: it and shared starts
    // are fresh, shorter stored prefixes of these tokens are superseded.
    void touch(int32_t entry, const std::vector<int32_t>& tokens,
               const std::vector<uint64_t>& hashes);

    // Stores tokens[0, length), whose pages these are; the caller then saves the state into
    // snapshot i. -1: it is stored already, or there is no entry to be had.
    int32_t insert(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes,
                   int32_t length, const std::vector<int32_t>& pages, bool shared);

    // Drops stored prefixes, superseded and least recently used first, until a page becomes free.
    // False if everything that could be dropped would free none.
    bool evict_page();

    // What would be dropped, in order, to have so many free pages and entries.
    struct Victim {
        int32_t entry;
        int32_t n_pages;  // that none before it has too
    };
    std::vector<Victim> next_victims(int32_t n_pages, int32_t n_entries) const;
    // Grows whenever the order in which entries would be dropped may be another one.
    uint64_t n_changes() const { return n_changes_; }
    void set_spilled(int32_t entry) { entries_[entry].spilled = true; }

    // Called with each entry that is about to be dropped to make room.
    void on_evict(std::function<void(int32_t entry)> evicted) { evicted_ = std::move(evicted); }

    // Drops the stored prefixes of these tokens that are not shared starts. Returns the length of
    // the longest.
    int32_t erase(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes);

    // The entries whose tokens begin these, ascending.
    std::vector<int32_t> prefixes_of(const std::vector<int32_t>& tokens,
                                     const std::vector<uint64_t>& hashes) const;
    std::vector<int32_t> tokens_of(int32_t entry) const;

    const StoredPrefix& operator[](int32_t entry) const { return entries_[entry]; }
    int32_t n_total() const { return static_cast<int32_t>(entries_.size()); }
    int32_t n_used() const { return n_used_; }
    int64_t n_evicted_pages() const { return n_evicted_pages_; }

private:
    bool matches(const StoredPrefix& entry, const std::vector<int32_t>& tokens,
                 const std::vector<uint64_t>& hashes) const;
    bool frees_pages(const StoredPrefix& entry) const;
    int32_t least_useful(bool only_with_idle_pages) const;
    void evict(int32_t entry);
    void drop(int32_t entry);

    PagePool& pool_;
    std::vector<StoredPrefix> entries_;
    std::function<void(int32_t)> evicted_;
    int32_t n_used_ = 0;
    uint64_t clock_ = 0;
    uint64_t last_id_ = 0;
    uint64_t n_changes_ = 0;
    int64_t n_evicted_pages_ = 0;
};

}  // namespace oj
