// Snapshots of backends that are no models: the tokens of a history as bytes, their number first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/pages.h"

namespace oj {

inline int64_t token_snapshot_bytes(int32_t n_pages) {
    return static_cast<int64_t>(sizeof(int32_t)) * (1 + int64_t{n_pages} * kPageSize);
}

// Bytes [offset, offset + n_bytes) of it; zeros follow the tokens.
inline void write_tokens(const std::vector<int32_t>& tokens, int64_t offset, int64_t n_bytes,
                         uint8_t* out) {
    std::vector<int32_t> all{static_cast<int32_t>(tokens.size())};
    all.insert(all.end(), tokens.begin(), tokens.end());
    const auto* bytes = reinterpret_cast<const uint8_t*>(all.data());
    const auto size = static_cast<int64_t>(all.size() * sizeof(int32_t));
    const int64_t n = std::clamp<int64_t>(size - offset, 0, n_bytes);
    std::memcpy(out, bytes + std::min(offset, size), static_cast<size_t>(n));
    std::memset(out + n, 0, static_cast<size_t>(n_bytes - n));
}

inline std::vector<int32_t> read_tokens(const uint8_t* bytes) {
    int32_t n = 0;
    std::memcpy(&n, bytes, sizeof n);
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    std::memcpy(tokens.data(), bytes + sizeof n, tokens.size() * sizeof(int32_t));
    return tokens;
}

}  // namespace oj
