// Which warp multiplies which weights: the units of a multiply phase, shared out by bytes. They are
// walked segment after segment, so that the warps of a block read the same columns of the input
// from L1; shorter segments come last and level out what the whole ones left. The host shares them
// out when it loads a model (shares.h).
#pragma once

#include "cuda/phase.h"

namespace oj::cuda {

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

// Segments of a matrix that are as long as its first one; the last may be shorter.
OJ_HD int whole_segments(const Matrix& m) {
    return m.tile_bytes < m.n_segments * m.segment_bytes ? m.n_segments - 1 : m.n_segments;
}

// The units of a phase come in parts that are shared out one after the other: whole segments, then
// shorter ones. All its matrices have the same columns.
OJ_HD int n_parts(const Phase& p) {
    return whole_segments(p.matrices[0]) < p.matrices[0].n_segments ? 2 : 1;
}

// Behind a phase's last unit.
OJ_HD Unit end_unit(const Phase& p) {
    return {0, 0, static_cast<int16_t>(p.n_matrices)};
}

OJ_HD Unit next_unit(const Phase& p, Unit u) {
    const Matrix& m = p.matrices[u.matrix];
    const int whole = whole_segments(m);
    const bool is_whole = u.segment < whole;
    if (++u.tile < m.n_tiles) return u;
    u.tile = 0;
    if (is_whole && ++u.segment < whole) return u;
    if (++u.matrix < p.n_matrices) {
        u.segment = static_cast<int16_t>(is_whole ? 0 : whole);
        return u;
    }
    if (is_whole && n_parts(p) == 2) return {0, static_cast<int16_t>(whole), 0};
    return end_unit(p);
}

// The units of a warp are those from `first` up to `end`.
struct UnitRange {
    Unit first, end;
};

}  // namespace oj::cuda
