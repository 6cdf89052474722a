// How quantised weights lie in device memory: tiles of 16 rows and all columns, in blocks of up to
// 256 columns that follow each other, so that whole K segments are contiguous. A block is read in
// the order in which mma fragments want it, no larger than in the file (IQ4_XS: 1.5 %).
//
// Parts of a block (n = its number of 32 columns; a chunk is 64 columns, two k32 steps; g = row % 8
// and t are a lane's place as in ptx.h, lane = 4 g + t; register i of a step is row g or g + 8,
// columns 4t.. or 16 + 4t..):
//     codes   [chunk][lane][i]        4 bits: a word has the top 4 bits of the code of step 0 in
//                                     the low halves of its bytes and of step 1 in the high ones
//             [step][lane][i]         8 bits: a word is 4 codes
//     low     [chunk][lane]           the other bit of a code: byte j of the word has bit 4 s + i
//     of
//                                     step s; or two bits: [chunk][lane][s], bits 2 i, 2 i + 1
//     sides   [g][row g, row g + 8]   Q4_K, Q5_K: 16 bytes, see Header
//             [chunk][g][row g, g + 8][sub-block of the chunk]   Q6_K, IQ4_XS: int8 scales
//     d       [group][g][row g, row g + 8]  half
//     m       likewise
//
// A code is stored as the unsigned or, where its type has an offset, signed byte
// (code - offset) << (8 - bits), built by two operations or three; the power of two is taken out of
// d, which changes no bit of the result. Codes of IQ4 types are table indices: a word's low 16 bits
// are the four of step 0. Rows past the matrix's end are zero.
#pragma once

#include "cuda/types.h"
#include "model/tile_format.h"

namespace oj::cuda {

constexpr int chunk_columns = 64;
constexpr int block_steps = super_group / 32;
constexpr int chunk_code_bytes = 32 * 16;  // of 4-bit codes

constexpr int header_bytes = 256;  // of a block with integer minima

OJ_HD constexpr int chunks_of(int n) {
    return (n + 1) / 2;
}
OJ_HD constexpr int codes_bytes(TileFormat f) {  // of a chunk
    return chunk_code_bytes * f.code_bits / 4;
}
OJ_HD constexpr int low_bytes(TileFormat f) {  // of a chunk
    return f.high_bits * 128;
}
OJ_HD constexpr int scales_bytes(TileFormat f) {  // of a chunk
    return f.sub == 0 || f.has_mins ? 0 : chunk_columns / f.sub * tile_rows;
}
OJ_HD constexpr int halves_bytes(TileFormat f, int n) {
    return f.has_mins ? 0 : (f.group == super_group ? 1 : n) * tile_rows * 2;
}

OJ_HD constexpr int low_at(TileFormat f, int n) {
    return chunks_of(n) * codes_bytes(f);
}
OJ_HD constexpr int sides_at(TileFormat f, int n) {
    return low_at(f, n) + chunks_of(n) * low_bytes(f);
}
OJ_HD constexpr int d_at(TileFormat f, int n) {
    return sides_at(f, n) + (f.has_mins ? header_bytes : chunks_of(n) * scales_bytes(f));
}
OJ_HD constexpr int m_at(TileFormat f, int n) {
    return d_at(f, n) + halves_bytes(f, n);
}
OJ_HD constexpr int block_bytes(TileFormat f, int n) {
    return m_at(f, n) + (f.has_m ? halves_bytes(f, n) : 0);
}

OJ_HD constexpr int whole_block_bytes(BlockType type) {
    return block_bytes(tile_format(type), block_steps);
}
static_assert(whole_block_bytes(BlockType::Q4_K) == 16 * sizeof(BlockQ4_K));
static_assert(whole_block_bytes(BlockType::Q5_K) == 16 * sizeof(BlockQ5_K));
static_assert(whole_block_bytes(BlockType::Q6_K) == 16 * sizeof(BlockQ6_K));
static_assert(whole_block_bytes(BlockType::IQ4_XS) == 16 * (sizeof(BlockIQ4_XS) + 2));
static_assert(whole_block_bytes(BlockType::Q8_0) == 16 * 8 * sizeof(BlockQ8_0));
static_assert(whole_block_bytes(BlockType::Q4_0) == 16 * 8 * sizeof(BlockQ4_0));
static_assert(whole_block_bytes(BlockType::Q4_1) == 16 * 8 * sizeof(BlockQ4_1));
static_assert(whole_block_bytes(BlockType::Q5_0) == 16 * 8 * sizeof(BlockQ5_0));
static_assert(whole_block_bytes(BlockType::Q5_1) == 16 * 8 * sizeof(BlockQ5_1));
static_assert(whole_block_bytes(BlockType::IQ4_NL) == 16 * 8 * sizeof(BlockIQ4_NL));
constexpr int largest_block_bytes = whole_block_bytes(BlockType::Q8_0);

// Row r's 16 bytes of a block with integer minima. Byte c of the words is of sub-blocks 2 c (even)
// and 2 c + 1 (odd).
struct Header {
    uint16_t d, dmin;
    uint8_t scales[4];  // their low 4 bits: even in the low half
    uint8_t even[4];    // minimum, and the scale's high 2 bits above it
    uint8_t odd[4];
};
static_assert(sizeof(Header) * tile_rows == header_bytes);

// Bytes of the first `cols` columns of a tile; of float types, of 16 rows as in the file.
OJ_HD constexpr int64_t packed_tile_bytes(BlockType type, int64_t cols) {
    const TileFormat f = tile_format(type);
    if (f.code_bits == 0) return cols * tile_rows * (type == BlockType::F32 ? 4 : 2);
    const int64_t blocks = cols / super_group;
    const int rest = static_cast<int>(cols % super_group / 32);
    return blocks * block_bytes(f, block_steps) + (rest == 0 ? 0 : block_bytes(f, rest));
}

// What common files have: their tiles are multiplied in pairs, and more variants of their products
// are compiled.
OJ_HD constexpr bool is_common(BlockType type) {
    return type == BlockType::Q4_K || type == BlockType::Q6_K;
}

// How far a code is shifted up in its byte.
OJ_HD constexpr int code_shift(TileFormat f) {
    return f.lookup ? 0 : 8 - f.code_bits - f.high_bits;
}

}  // namespace oj::cuda
