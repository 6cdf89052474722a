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

#include "engine/numerics.h"
#include "model/block_types.h"

namespace oj::cpu {

constexpr int tile_rows = 16;
constexpr int chunk_columns = 32;
constexpr int block_chunks = 8;
constexpr int steps = 8;  // of a chunk

// The facts of one block type that packing and kernels share. `offset` is what an unsigned code is
// above its value; kernels take it out with the sums of the activations.
struct TileFormat {
    int code_bits;  // 4 or 8
    int high_bits;  // 0, 1 or 2
    int group;      // columns of one d and of one activation scale
    int sub;        // columns of one integer scale, 0 when there is none
    bool signed_scales;
    bool has_mins;  // integer minima per sub-block
    bool has_m;     // half plane m
    bool lookup;    // codes index iq4_values
    int offset;

    constexpr size_t codes_bytes(int n) const { return n * 64 * (code_bits == 4 ? 4 : 8); }
    constexpr size_t high_bytes(int n) const { return n * 64 * high_bits; }
    constexpr size_t scales_bytes(int n) const {
        return sub == 0 ? 0 : n * (chunk_columns / sub) * tile_rows;
    }
    constexpr size_t mins_bytes(int n) const { return has_mins ? n * tile_rows : 0; }
    constexpr size_t half_bytes(int n) const {
        return (group == super_group ? 1 : n) * tile_rows * 2;
    }

    constexpr size_t high_at(int n) const { return codes_bytes(n); }
    constexpr size_t scales_at(int n) const { return high_at(n) + high_bytes(n); }
    constexpr size_t mins_at(int n) const { return scales_at(n) + scales_bytes(n); }
    constexpr size_t d_at(int n) const { return mins_at(n) + mins_bytes(n); }
    constexpr size_t m_at(int n) const { return d_at(n) + half_bytes(n); }

    // Rounded up to whole cache lines.
    constexpr size_t block_bytes(int n) const {
        return (m_at(n) + (has_m ? half_bytes(n) : 0) + 63) / 64 * 64;
    }
    constexpr size_t tile_bytes(int64_t columns) const {
        int64_t chunks = columns / chunk_columns;
        size_t whole = static_cast<size_t>(chunks / block_chunks) * block_bytes(block_chunks);
        int rest = static_cast<int>(chunks % block_chunks);
        return whole + (rest == 0 ? 0 : block_bytes(rest));
    }
};

//                                     bits   group        sub  signed mins  m      table  offset
constexpr TileFormat format_q4_k = {4, 0, super_group, 32, false, true, true, false, 0};
constexpr TileFormat format_q5_k = {4, 1, super_group, 32, false, true, true, false, 0};
constexpr TileFormat format_q6_k = {4, 2, super_group, 16, true, false, false, false, 32};
constexpr TileFormat format_iq4_xs = {4, 0, super_group, 32, true, false, false, true, 128};
constexpr TileFormat format_q8_0 = {8, 0, small_group, 0, false, false, false, false, 128};
constexpr TileFormat format_q4_0 = {4, 0, small_group, 0, false, false, false, false, 8};
constexpr TileFormat format_q4_1 = {4, 0, small_group, 0, false, false, true, false, 0};
constexpr TileFormat format_q5_0 = {4, 1, small_group, 0, false, false, false, false, 16};
constexpr TileFormat format_q5_1 = {4, 1, small_group, 0, false, false, true, false, 0};
constexpr TileFormat format_iq4_nl = {4, 0, small_group, 0, false, false, false, true, 128};

// The format of a quantised type; nullptr for F32, F16 and BF16, which are read as they are.
inline const TileFormat* find_tile_format(BlockType type) {
    switch (type) {
        case BlockType::Q4_K:
            return &format_q4_k;
        case BlockType::Q5_K:
            return &format_q5_k;
        case BlockType::Q6_K:
            return &format_q6_k;
        case BlockType::IQ4_XS:
            return &format_iq4_xs;
        case BlockType::Q8_0:
            return &format_q8_0;
        case BlockType::Q4_0:
            return &format_q4_0;
        case BlockType::Q4_1:
            return &format_q4_1;
        case BlockType::Q5_0:
            return &format_q5_0;
        case BlockType::Q5_1:
            return &format_q5_1;
        case BlockType::IQ4_NL:
            return &format_iq4_nl;
        case BlockType::F32:
        case BlockType::F16:
        case BlockType::BF16:
            break;
    }
    return nullptr;
}

}  // namespace oj::cpu
