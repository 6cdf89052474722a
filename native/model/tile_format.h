// The facts of a quantised block type that packing and matrix kernels of every backend share.
#pragma once

#include "model/block_types.h"

namespace oj {

// `offset` is what an unsigned code is above its value.
struct TileFormat {
    int code_bits;  // 4 or 8; 0 for F32, F16 and BF16, which are read as they are
    int high_bits;  // 0, 1 or 2 more bits of a code
    int group;      // columns of one d and of one activation scale
    int sub;        // columns of one integer scale, 0 when there is none
    bool signed_scales;
    bool has_mins;  // integer minima per sub-block
    bool has_m;     // a second half beside d: the scale of the minima, or the minimum
    bool lookup;    // codes index iq4_value()
    int offset;
};

OJ_NUMERIC constexpr TileFormat tile_format(BlockType type) {
    switch (type) {  //  bits     group        sub  signed mins  m      table  offset
        case BlockType::Q4_K:
            return {4, 0, super_group, 32, false, true, true, false, 0};
        case BlockType::Q5_K:
            return {4, 1, super_group, 32, false, true, true, false, 0};
        case BlockType::Q6_K:
            return {4, 2, super_group, 16, true, false, false, false, 32};
        case BlockType::IQ4_XS:
            return {4, 0, super_group, 32, true, false, false, true, 128};
        case BlockType::Q8_0:
            return {8, 0, small_group, 0, false, false, false, false, 128};
        case BlockType::Q4_0:
            return {4, 0, small_group, 0, false, false, false, false, 8};
        case BlockType::Q4_1:
            return {4, 0, small_group, 0, false, false, true, false, 0};
        case BlockType::Q5_0:
            return {4, 1, small_group, 0, false, false, false, false, 16};
        case BlockType::Q5_1:
            return {4, 1, small_group, 0, false, false, true, false, 0};
        case BlockType::IQ4_NL:
            return {4, 0, small_group, 0, false, false, false, true, 128};
        case BlockType::F32:
        case BlockType::F16:
        case BlockType::BF16:
            break;
    }
    return {};
}

}  // namespace oj
