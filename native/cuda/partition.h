// Which warp multiplies which weights: the units of a multiply phase, shared out by bytes. They are
// walked segment after segment, so that the warps of a block read the same columns of the input
// from L1. A pure function of (phase, warp, number of warps), so that the stream can look ahead and
// the schedule checker (schedule_check.h) can count.
#pragma once

#include "cuda/phase.h"

namespace oj::cuda {

// 16 weight rows and one K segment, or all columns where the product adds its segments itself
// (n_segments 1).
struct Unit {
    int matrix, tile, segment;
};

OJ_HD bool same_unit(const Unit& a, const Unit& b) {
    return a.matrix == b.matrix && a.tile == b.tile && a.segment == b.segment;
}

// Shares are counted in pieces of 16 bytes, so that 32 bits are enough.
OJ_HD uint32_t pieces(int64_t bytes) {
    return static_cast<uint32_t>(bytes / 16);
}

OJ_HD int64_t matrix_bytes(const Matrix& m) {
    return m.n_tiles * m.tile_bytes;
}

OJ_HD int64_t weight_bytes(const Phase& p) {
    int64_t bytes = 0;
    for (int m = 0; m < p.n_matrices; ++m)
        bytes += matrix_bytes(p.matrices[m]);
    return bytes;
}

// Bytes of a unit and where it begins in its matrix. (Of a float matrix a unit's bytes are not
// contiguous; these are only its share of the whole.)
OJ_HD int64_t unit_offset(const Matrix& m, const Unit& u) {
    return u.tile * m.tile_bytes + u.segment * m.segment_bytes;
}

OJ_HD int64_t unit_bytes(const Matrix& m, const Unit& u) {
    bool is_last = u.segment == m.n_segments - 1;
    return is_last ? m.tile_bytes - u.segment * m.segment_bytes : m.segment_bytes;
}

OJ_HD Unit next_unit(const Phase& p, Unit u) {
    const Matrix& m = p.matrices[u.matrix];
    if (++u.tile < m.n_tiles) return u;
    u.tile = 0;
    if (++u.segment < m.n_segments) return u;
    u.segment = 0;
    ++u.matrix;
    return u;
}

// The units of a warp are those from `first` up to `end`.
struct UnitRange {
    Unit first, end;
};

// Units that a warp multiplies together: of `tiles` neighbouring tiles from `first` on, and one
// segment.
struct Bundle {
    Unit first;
    int tiles;
};

// Takes as many tiles, up to two, off a range that is not empty.
OJ_HD Bundle take_bundle(const Phase& p, UnitRange& units, int most_tiles) {
    const Unit first = units.first;
    const Unit second = next_unit(p, first);
    const bool is_pair = most_tiles == 2 && second.matrix == first.matrix &&
                         second.segment == first.segment && !same_unit(second, units.end);
    units.first = is_pair ? next_unit(p, second) : second;
    return {first, is_pair ? 2 : 1};
}

// The first unit that begins at or behind this piece of the phase's weights in the order of units;
// {n_matrices, 0, 0} behind the last one.
OJ_HD Unit unit_at(const Phase& p, uint32_t piece) {
    for (int i = 0; i < p.n_matrices; ++i) {
        const Matrix& m = p.matrices[i];
        const uint32_t all = pieces(matrix_bytes(m));
        if (piece == 0) return {i, 0, 0};
        if (piece < all) {
            const uint32_t whole = pieces(m.segment_bytes) * m.n_tiles;
            int segment = static_cast<int>(piece / whole);
            if (segment >= m.n_segments) segment = m.n_segments - 1;
            const uint32_t unit = pieces(unit_bytes(m, {i, 0, segment}));
            const int tile = static_cast<int>((piece - segment * whole + unit - 1) / unit);
            if (tile < m.n_tiles) return {i, tile, segment};
            return next_unit(p, {i, m.n_tiles - 1, segment});
        }
        piece -= all;
    }
    return {p.n_matrices, 0, 0};
}

OJ_HD UnitRange warp_units(const Phase& p, int warp, int n_warps) {
    const uint32_t total = pieces(weight_bytes(p)), n = static_cast<uint32_t>(n_warps);
    const uint32_t share = total / n, rest = total % n;
    const uint32_t w = static_cast<uint32_t>(warp);
    return {unit_at(p, share * w + rest * w / n), unit_at(p, share * (w + 1) + rest * (w + 1) / n)};
}

}  // namespace oj::cuda
