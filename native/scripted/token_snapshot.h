// Snapshots of backends that are no models: the tokens of a history as bytes, their number first.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/pages.h"

namespace oj {

inline int64_t token_snapshot_bytes(int32_t n_pages) {
    return static_cast<int64_t>(sizeof(int32_t)) * (1 + int64_t{n_pages} * kPageSize);
}

inline void write_tokens(const std::vector<int32_t>& tokens, int64_t n_bytes, uint8_t* out) {
    const auto n = static_cast<int32_t>(tokens.size());
    std::memset(out, 0, static_cast<size_t>(n_bytes));
    std::memcpy(out, &n, sizeof n);
    std::memcpy(out + sizeof n, tokens.data(), tokens.size() * sizeof(int32_t));
}

inline std::vector<int32_t> read_tokens(const uint8_t* bytes) {
    int32_t n = 0;
    std::memcpy(&n, bytes, sizeof n);
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    std::memcpy(tokens.data(), bytes + sizeof n, tokens.size() * sizeof(int32_t));
    return tokens;
}

}  // namespace oj
