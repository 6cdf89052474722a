// How quantised weights lie in memory after loading: tiles of 16 rows, streamed once per step.
//
// A tile holds 16 rows and all columns, as blocks of up to 256 columns. Inside a block the parts
// follow each other (n = its number of 32-column chunks):
//
//     codes   n x [8 steps][16 rows][4 columns]   unsigned; 4-bit codes hold two steps a byte:
//                                                 step 2i low, step 2i + 1 high
//     high    n x bit planes                      the fifth bit, or fifth and sixth, of the codes
//     scales  [sub-block][16 rows]                integer sub-block scales
//     mins    [sub-block / 2][16 rows][2]         integer sub-block minima
//     d       [group][16 rows] half               float scale of a group
//     m       [group][16 rows] half               float scale of the minima, or the minimum
//
// A step is four columns of 16 rows: one 512-bit register for dot products of 4 bytes a lane.
// Rows past the matrix's end are zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/tile_format.h"

namespace oj::cpu {

constexpr int tile_rows = 16;
constexpr int chunk_columns = 32;
constexpr int block_chunks = 8;
constexpr int steps = 8;  // of a chunk

template <BlockType type>
constexpr TileFormat format_of = tile_format(type);

// Bytes and places of the parts of a block of n chunks.
constexpr size_t codes_bytes(const TileFormat& f, int n) {
    return n * 64 * (f.code_bits == 4 ? 4 : 8);
}
constexpr size_t high_bytes(const TileFormat& f, int n) {
    return n * 64 * f.high_bits;
}
constexpr size_t scales_bytes(const TileFormat& f, int n) {
    return f.sub == 0 ? 0 : n * (chunk_columns / f.sub) * tile_rows;
}
constexpr size_t mins_bytes(const TileFormat& f, int n) {
    return f.has_mins ? n * tile_rows : 0;
}
constexpr size_t half_bytes(const TileFormat& f, int n) {
    return (f.group == super_group ? 1 : n) * tile_rows * 2;
}

constexpr size_t high_at(const TileFormat& f, int n) {
    return codes_bytes(f, n);
}
constexpr size_t scales_at(const TileFormat& f, int n) {
    return high_at(f, n) + high_bytes(f, n);
}
constexpr size_t mins_at(const TileFormat& f, int n) {
    return scales_at(f, n) + scales_bytes(f, n);
}
constexpr size_t d_at(const TileFormat& f, int n) {
    return mins_at(f, n) + mins_bytes(f, n);
}
constexpr size_t m_at(const TileFormat& f, int n) {
    return d_at(f, n) + half_bytes(f, n);
}

// Rounded up to whole cache lines.
constexpr size_t block_bytes(const TileFormat& f, int n) {
    return (m_at(f, n) + (f.has_m ? half_bytes(f, n) : 0) + 63) / 64 * 64;
}
constexpr size_t tile_bytes(const TileFormat& f, int64_t columns) {
    int64_t chunks = columns / chunk_columns;
    size_t whole = static_cast<size_t>(chunks / block_chunks) * block_bytes(f, block_chunks);
    int rest = static_cast<int>(chunks % block_chunks);
    return whole + (rest == 0 ? 0 : block_bytes(f, rest));
}

}  // namespace oj::cpu
