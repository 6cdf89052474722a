#include "engine/drafts.h"

#include <algorithm>

namespace oj {

namespace {

constexpr size_t kBuckets = 1 << 16;  // unequal runs may share one; tokens are compared
constexpr int kCandidates = 8;        // earlier runs looked at
constexpr int32_t kLongMatch = 32;    // longer agreement says nothing more

size_t bucket_of(const int32_t* end) {
    uint64_t hash = 0;
    for (int32_t i = LookupIndex::kMinMatch; i > 0; --i) {
        hash = (hash ^ static_cast<uint32_t>(end[-i])) * 0x9e3779b97f4a7c15ull;
    }
    return static_cast<size_t>(hash >> 48);
}

int32_t match_length(const std::vector<int32_t>& tokens, int32_t end) {
    const int32_t size = static_cast<int32_t>(tokens.size());
    int32_t n = 0;
    while (n < kLongMatch && n < end && tokens[end - 1 - n] == tokens[size - 1 - n])
        ++n;
    return n;
}

}  // namespace

// Indexes every run that something follows.
void LookupIndex::extend(const std::vector<int32_t>& tokens) {
    if (head_.empty()) head_.assign(kBuckets, 0);
    const int32_t size = static_cast<int32_t>(tokens.size());
    for (int32_t end = static_cast<int32_t>(previous_.size()); end < size; ++end) {
        previous_.push_back(0);
        if (end < kMinMatch) continue;
        int32_t& head = head_[bucket_of(&tokens[end])];
        previous_[end] = head;
        head = end;
    }
}

LookupIndex::Match LookupIndex::find(const std::vector<int32_t>& tokens) {
    const int32_t size = static_cast<int32_t>(tokens.size());
    Match best{0, kMinMatch - 1};
    if (size <= kMinMatch) return best;
    extend(tokens);
    int32_t end = head_[bucket_of(tokens.data() + size)];
    for (int i = 0; end > 0 && i < kCandidates; ++i, end = previous_[end]) {
        const int32_t length = match_length(tokens, end);
        if (length > best.length) best = {end, length};
    }
    return best;
}

std::vector<int32_t> continue_match(const std::vector<int32_t>& tokens, int32_t end, int32_t n) {
    const int32_t size = static_cast<int32_t>(tokens.size());
    std::vector<int32_t> drafts;
    for (int32_t i = end; i < end + n; ++i)
        drafts.push_back(i < size ? tokens[i] : drafts[static_cast<size_t>(i - size)]);
    return drafts;
}

void DraftHistory::record(DraftKind used, int32_t drafted, int32_t accepted) {
    for (int kind = 0; kind < 3; ++kind) {
        double& success = success_[kind];
        if (kind != static_cast<int>(used) || drafted == 0) {
            success += 0.01 * (kPrior[kind] - success);
            continue;
        }
        for (int32_t i = 0; i < std::min(drafted, accepted + 1); ++i)
            success += 0.1 * ((i < accepted ? 1.0 : 0.0) - success);
    }
}

double DraftHistory::expected(DraftKind kind, int32_t n) const {
    double sum = 0.0;
    double next = 1.0;
    for (int32_t i = 0; i < n; ++i)
        sum += next *= success_[static_cast<int>(kind)];
    return sum;
}

int32_t DraftHistory::depth(DraftKind kind, int32_t most, double cost) const {
    int32_t best = 0;
    double best_rate = 1.0;
    for (int32_t n = 1; n <= most; ++n) {
        const double rate = (1.0 + expected(kind, n)) / (1.0 + n * cost);
        if (rate <= best_rate) continue;
        best_rate = rate;
        best = n;
    }
    return best;
}

}  // namespace oj
