// The host's part of the partition: where each warp's units of a multiply phase begin.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/partition.h"

namespace oj::cuda {

// The first unit that begins at or behind this byte of the phase's weights in the order of units.
inline Unit unit_at(const Phase& p, int64_t byte) {
    for (int16_t i = 0; i < p.n_matrices; ++i) {
        const Matrix& m = p.matrices[i];
        if (byte <= 0) return {0, 0, i};
        if (byte < matrix_bytes(m)) {
            const int64_t whole = m.segment_bytes * m.n_tiles;
            auto segment = static_cast<int16_t>(std::min<int64_t>(byte / whole, m.n_segments - 1));
            const int64_t unit = unit_bytes(m, {0, segment, i});
            const int64_t tile = (byte - segment * whole + unit - 1) / unit;
            if (tile < m.n_tiles) return {static_cast<int32_t>(tile), segment, i};
            return next_unit(p, {m.n_tiles - 1, segment, i});
        }
        byte -= matrix_bytes(m);
    }
    return end_unit(p);
}

// A phase's row of Schedule.first_units.
inline std::vector<Unit> share_units(const Phase& p, int n_blocks) {
    std::vector<Unit> units;
    const int64_t n_warps = n_blocks * block_warps, all = weight_bytes(p);
    for (int64_t warp = 0; warp <= n_warps; ++warp)
        units.push_back(unit_at(p, all * warp / n_warps));
    return units;
}

}  // namespace oj::cuda
