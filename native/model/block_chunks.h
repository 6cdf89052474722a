// Blocks of every quantised type, unpacked into codes and scales: what packing starts from, on the
// host and on a device.
#pragma once

#include "model/block_values.h"

namespace oj {

// One 32-column chunk of one row, unpacked.
struct CodeChunk {
    uint8_t codes[32];  // unsigned
    uint8_t scales[2];  // as stored; two when a sub-block has 16 columns
    uint8_t min;
    uint16_t d;
    uint16_t m;
};

template <class Block>
OJ_NUMERIC const Block& block_at(const uint8_t* row, int index) {
    return reinterpret_cast<const Block*>(row)[index];
}

OJ_NUMERIC CodeChunk unpack_q4_k(const BlockQ4_K& block, int s) {
    CodeChunk chunk = {};
    for (int i = 0; i < 32; ++i)
        chunk.codes[i] = (uint8_t)k_nibble(block.qs, 32 * s + i);
    unpack_scale_min(block.scales, s, &chunk.scales[0], &chunk.min);
    chunk.d = block.d;
    chunk.m = block.dmin;
    return chunk;
}

OJ_NUMERIC CodeChunk unpack_q5_k(const BlockQ5_K& block, int s) {
    CodeChunk chunk = {};
    for (int i = 0; i < 32; ++i) {
        int low = k_nibble(block.qs, 32 * s + i);
        chunk.codes[i] = (uint8_t)(low | (((block.qh[i] >> s) & 1) << 4));
    }
    unpack_scale_min(block.scales, s, &chunk.scales[0], &chunk.min);
    chunk.d = block.d;
    chunk.m = block.dmin;
    return chunk;
}

OJ_NUMERIC CodeChunk unpack_q6_k(const BlockQ6_K& block, int s) {
    CodeChunk chunk = {};
    int half = s / 4, quarter = s % 4;
    for (int i = 0; i < 32; ++i) {
        int low = (block.ql[64 * half + 32 * (quarter & 1) + i] >> (quarter < 2 ? 0 : 4)) & 15;
        int high = (block.qh[32 * half + i] >> (2 * quarter)) & 3;
        chunk.codes[i] = (uint8_t)(low | (high << 4));
    }
    chunk.scales[0] = (uint8_t)(block.scales[2 * s]);
    chunk.scales[1] = (uint8_t)(block.scales[2 * s + 1]);
    chunk.d = block.d;
    return chunk;
}

OJ_NUMERIC CodeChunk unpack_iq4_xs(const BlockIQ4_XS& block, int s) {
    CodeChunk chunk = {};
    for (int i = 0; i < 32; ++i)
        chunk.codes[i] = (uint8_t)small_nibble(block.qs + 16 * s, i);
    int low = (block.scales_l[s / 2] >> (4 * (s & 1))) & 15;
    int high = (block.scales_h >> (2 * s)) & 3;
    chunk.scales[0] = (uint8_t)((low | (high << 4)) - 32);
    chunk.d = block.d;
    return chunk;
}

OJ_NUMERIC CodeChunk unpack_q8_0(const BlockQ8_0& block) {
    CodeChunk chunk = {};
    for (int i = 0; i < 32; ++i)
        chunk.codes[i] = (uint8_t)(block.qs[i] + 128);
    chunk.d = block.d;
    return chunk;
}

template <class Block>
OJ_NUMERIC CodeChunk unpack_four_bits(const Block& block) {
    CodeChunk chunk = {};
    for (int i = 0; i < 32; ++i)
        chunk.codes[i] = (uint8_t)small_nibble(block.qs, i);
    chunk.d = block.d;
    return chunk;
}

template <class Block>
OJ_NUMERIC CodeChunk unpack_five_bits(const Block& block) {
    CodeChunk chunk = unpack_four_bits(block);
    for (int i = 0; i < 32; ++i)
        chunk.codes[i] |= (uint8_t)fifth_bit(block.qh, i);
    return chunk;
}

template <class Block>
OJ_NUMERIC CodeChunk with_m(CodeChunk chunk, const Block& block) {
    chunk.m = block.m;
    return chunk;
}

// Columns [32 c, 32 c + 32) of a row.
OJ_NUMERIC CodeChunk unpack_chunk(BlockType type, const uint8_t* row, int c) {
    int super = c / 8, s = c % 8;
    switch (type) {
        case BlockType::Q4_K:
            return unpack_q4_k(block_at<BlockQ4_K>(row, super), s);
        case BlockType::Q5_K:
            return unpack_q5_k(block_at<BlockQ5_K>(row, super), s);
        case BlockType::Q6_K:
            return unpack_q6_k(block_at<BlockQ6_K>(row, super), s);
        case BlockType::IQ4_XS:
            return unpack_iq4_xs(block_at<BlockIQ4_XS>(row, super), s);
        case BlockType::Q8_0:
            return unpack_q8_0(block_at<BlockQ8_0>(row, c));
        case BlockType::Q4_0:
            return unpack_four_bits(block_at<BlockQ4_0>(row, c));
        case BlockType::IQ4_NL:
            return unpack_four_bits(block_at<BlockIQ4_NL>(row, c));
        case BlockType::Q5_0:
            return unpack_five_bits(block_at<BlockQ5_0>(row, c));
        case BlockType::Q4_1: {
            const BlockQ4_1& block = block_at<BlockQ4_1>(row, c);
            return with_m(unpack_four_bits(block), block);
        }
        case BlockType::Q5_1: {
            const BlockQ5_1& block = block_at<BlockQ5_1>(row, c);
            return with_m(unpack_five_bits(block), block);
        }
        default:
            return {};
    }
}

}  // namespace oj
