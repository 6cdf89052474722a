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

// The first unit that begins at or behind this byte of the phase's weights in the order of units;
// {n_matrices, 0, 0} behind the last one.
OJ_HD Unit unit_at(const Phase& p, int64_t byte) {
    for (int i = 0; i < p.n_matrices; ++i) {
        const Matrix& m = p.matrices[i];
        if (byte <= 0) return {i, 0, 0};
        if (byte < matrix_bytes(m)) {
            const int64_t segment_bytes = m.segment_bytes * m.n_tiles;
            int segment = static_cast<int>(byte / segment_bytes);
            if (segment >= m.n_segments) segment = m.n_segments - 1;
            const int64_t bytes = unit_bytes(m, {i, 0, segment});
            const int64_t rest = byte - segment * segment_bytes;
            const int tile = static_cast<int>((rest + bytes - 1) / bytes);
            if (tile < m.n_tiles) return {i, tile, segment};
            return next_unit(p, {i, m.n_tiles - 1, segment});
        }
        byte -= matrix_bytes(m);
    }
    return {p.n_matrices, 0, 0};
}

// The units of a warp are those from `first` up to `end`.
struct UnitRange {
    Unit first, end;
};

OJ_HD UnitRange warp_units(const Phase& p, int warp, int n_warps) {
    int64_t total = weight_bytes(p);
    return {unit_at(p, total * warp / n_warps), unit_at(p, total * (warp + 1) / n_warps)};
}

}  // namespace oj::cuda
