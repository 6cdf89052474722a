// The value of one element of a block, the same on the host and on a device.
#pragma once

#include "engine/numerics.h"
#include "model/block_types.h"

namespace oj {

// Values of the 4-bit codes of IQ4_NL and IQ4_XS, as two words that need no table in memory.
OJ_NUMERIC int iq4_value(int code) {
    uint64_t values = code < 8 ? 0xf6eaddcfbfad9881u : 0x7159453526190d01u;
    return (int8_t)(values >> (code % 8 * 8));
}

// Bit 4 of element j of a Q5_0 or Q5_1 block, in place.
OJ_NUMERIC int fifth_bit(const uint8_t* qh, int j) {
    return ((qh[j / 8] >> (j % 8)) & 1) << 4;
}

// 4-bit code of element j of a block of 32: elements 16 to 31 are the high halves.
OJ_NUMERIC int small_nibble(const uint8_t* qs, int j) {
    return (qs[j % 16] >> (j / 16 * 4)) & 15;
}

// 4-bit code of element e of a Q4_K or Q5_K block.
OJ_NUMERIC int k_nibble(const uint8_t* qs, int e) {
    return (qs[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4)) & 15;
}

OJ_NUMERIC float block_value(const BlockQ8_0& block, int j) {
    return half_to_float(block.d) * block.qs[j];
}

OJ_NUMERIC float block_value(const BlockQ4_0& block, int j) {
    return half_to_float(block.d) * (small_nibble(block.qs, j) - 8);
}

OJ_NUMERIC float block_value(const BlockQ4_1& block, int j) {
    return half_to_float(block.d) * small_nibble(block.qs, j) + half_to_float(block.m);
}

OJ_NUMERIC float block_value(const BlockQ5_0& block, int j) {
    int code = small_nibble(block.qs, j) | fifth_bit(block.qh, j);
    return half_to_float(block.d) * (code - 16);
}

OJ_NUMERIC float block_value(const BlockQ5_1& block, int j) {
    int code = small_nibble(block.qs, j) | fifth_bit(block.qh, j);
    return half_to_float(block.d) * code + half_to_float(block.m);
}

OJ_NUMERIC float block_value(const BlockQ4_K& block, int e) {
    uint8_t scale, min;
    unpack_scale_min(block.scales, e / 32, &scale, &min);
    return half_to_float(block.d) * scale * k_nibble(block.qs, e) - half_to_float(block.dmin) * min;
}

OJ_NUMERIC float block_value(const BlockQ5_K& block, int e) {
    uint8_t scale, min;
    unpack_scale_min(block.scales, e / 32, &scale, &min);
    int code = k_nibble(block.qs, e) | ((block.qh[e % 32] >> (e / 32)) & 1) << 4;
    return half_to_float(block.d) * scale * code - half_to_float(block.dmin) * min;
}

OJ_NUMERIC float block_value(const BlockQ6_K& block, int e) {
    int half = e / 128, quarter = e % 128 / 32, l = e % 32;
    int low = (block.ql[64 * half + 32 * (quarter & 1) + l] >> (quarter < 2 ? 0 : 4)) & 15;
    int high = (block.qh[32 * half + l] >> (2 * quarter)) & 3;
    return half_to_float(block.d) * block.scales[e / 16] * ((low | high << 4) - 32);
}

OJ_NUMERIC float block_value(const BlockIQ4_NL& block, int j) {
    return half_to_float(block.d) * iq4_value(small_nibble(block.qs, j));
}

OJ_NUMERIC float block_value(const BlockIQ4_XS& block, int e) {
    int b = e / 32;
    int low = (block.scales_l[b / 2] >> (4 * (b % 2))) & 15;
    int high = (block.scales_h >> (2 * b)) & 3;
    float scale = half_to_float(block.d) * ((low | high << 4) - 32);
    return scale * iq4_value(small_nibble(block.qs + 16 * b, e % 32));
}

template <class Block, int elements>
OJ_NUMERIC float value_of_blocks(const uint8_t* blocks, int i) {
    return block_value(((const Block*)blocks)[i / elements], i % elements);
}

// Element i of consecutive blocks, aligned to 4 bytes for F32 and to 2 bytes otherwise.
OJ_NUMERIC float element_value(BlockType type, const uint8_t* blocks, int i) {
    switch (type) {
        case BlockType::F32:
            return ((const float*)blocks)[i];
        case BlockType::F16:
            return half_to_float(((const uint16_t*)blocks)[i]);
        case BlockType::BF16:
            return bfloat_to_float(((const uint16_t*)blocks)[i]);
        case BlockType::Q8_0:
            return value_of_blocks<BlockQ8_0, 32>(blocks, i);
        case BlockType::Q4_0:
            return value_of_blocks<BlockQ4_0, 32>(blocks, i);
        case BlockType::Q4_1:
            return value_of_blocks<BlockQ4_1, 32>(blocks, i);
        case BlockType::Q5_0:
            return value_of_blocks<BlockQ5_0, 32>(blocks, i);
        case BlockType::Q5_1:
            return value_of_blocks<BlockQ5_1, 32>(blocks, i);
        case BlockType::Q4_K:
            return value_of_blocks<BlockQ4_K, 256>(blocks, i);
        case BlockType::Q5_K:
            return value_of_blocks<BlockQ5_K, 256>(blocks, i);
        case BlockType::Q6_K:
            return value_of_blocks<BlockQ6_K, 256>(blocks, i);
        case BlockType::IQ4_NL:
            return value_of_blocks<BlockIQ4_NL, 32>(blocks, i);
        case BlockType::IQ4_XS:
            return value_of_blocks<BlockIQ4_XS, 256>(blocks, i);
    }
    return 0.0f;
}

}  // namespace oj
