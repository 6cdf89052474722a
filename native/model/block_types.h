// Block formats of GGUF tensors: the types we accept, their sizes and their layouts in the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/numerics.h"

namespace oj {

// Values are the ggml type ids stored in GGUF files.
enum class BlockType : uint32_t {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    IQ4_NL = 20,
    IQ4_XS = 23,
    BF16 = 30,
};

struct BlockTypeInfo {
    BlockType type;
    const char* name;
    uint32_t block_elements;
    uint32_t block_bytes;
};

// The entry of a ggml type id read from a file, or nullptr when we do not accept that type.
const BlockTypeInfo* find_block_type(uint32_t ggml_id);

const BlockTypeInfo& block_type_info(BlockType type);

// Name of any ggml type id for messages, also of those we do not accept.
const char* ggml_type_name(uint32_t ggml_id);

// Bytes of one row of `cols` elements; `cols` is a multiple of the type's block_elements.
size_t row_bytes(BlockType type, int64_t cols);

// out[0..cols) = the row's values. `cols` is a multiple of the type's block_elements; `row` is
// aligned to 4 bytes for F32 and to 2 bytes otherwise.
void dequantise_row(BlockType type, const uint8_t* row, int64_t cols, float* out);

// 6-bit scale and minimum of sub-block `s` (0..7) of a Q4_K or Q5_K block.
OJ_NUMERIC void unpack_scale_min(const uint8_t* scales, int s, uint8_t* scale, uint8_t* min) {
    if (s < 4) {
        *scale = scales[s] & 63;
        *min = scales[s + 4] & 63;
    } else {
        *scale = (uint8_t)((scales[s + 4] & 15) | ((scales[s - 4] >> 6) << 4));
        *min = (uint8_t)((scales[s + 4] >> 4) | ((scales[s] >> 6) << 4));
    }
}

// Layouts in the file. Fields named d, dmin and m are IEEE half-precision bits.

struct BlockQ8_0 {
    uint16_t d;
    int8_t qs[32];
};

struct BlockQ4_0 {
    uint16_t d;
    uint8_t qs[16];  // element j in the low nibble of qs[j], j + 16 in the high one
};

struct BlockQ4_1 {
    uint16_t d;
    uint16_t m;
    uint8_t qs[16];
};

struct BlockQ5_0 {
    uint16_t d;
    uint8_t qh[4];  // little-endian u32: bit j is bit 4 of element j
    uint8_t qs[16];
};

struct BlockQ5_1 {
    uint16_t d;
    uint16_t m;
    uint8_t qh[4];
    uint8_t qs[16];
};

struct BlockQ4_K {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];  // see unpack_scale_min
    uint8_t qs[128];     // sub-block s: low (s even) or high nibbles of qs[32 * (s / 2) ..]
};

struct BlockQ5_K {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];
    uint8_t qh[32];  // bit s of qh[l] is bit 4 of element l of sub-block s
    uint8_t qs[128];
};

struct BlockQ6_K {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];  // one for 16 elements
    uint16_t d;         // last, so the block is 210 bytes
};

struct BlockIQ4_NL {
    uint16_t d;
    uint8_t qs[16];
};

struct BlockIQ4_XS {
    uint16_t d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
};

static_assert(sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockQ4_0) == 18);
static_assert(sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockIQ4_XS) == 136);

}  // namespace oj
