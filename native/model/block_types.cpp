#include "model/block_types.h"

#include <cstring>

namespace oj {
namespace {

constexpr BlockTypeInfo kTypes[] = {
    {BlockType::F32, "F32", 1, 4},
    {BlockType::F16, "F16", 1, 2},
    {BlockType::BF16, "BF16", 1, 2},
    {BlockType::Q8_0, "Q8_0", 32, sizeof(BlockQ8_0)},
    {BlockType::Q4_0, "Q4_0", 32, sizeof(BlockQ4_0)},
    {BlockType::Q4_1, "Q4_1", 32, sizeof(BlockQ4_1)},
    {BlockType::Q5_0, "Q5_0", 32, sizeof(BlockQ5_0)},
    {BlockType::Q5_1, "Q5_1", 32, sizeof(BlockQ5_1)},
    {BlockType::Q4_K, "Q4_K", 256, sizeof(BlockQ4_K)},
    {BlockType::Q5_K, "Q5_K", 256, sizeof(BlockQ5_K)},
    {BlockType::Q6_K, "Q6_K", 256, sizeof(BlockQ6_K)},
    {BlockType::IQ4_NL, "IQ4_NL", 32, sizeof(BlockIQ4_NL)},
    {BlockType::IQ4_XS, "IQ4_XS", 256, sizeof(BlockIQ4_XS)},
};

// Every id of ggml up to NVFP4; gaps are ids that were withdrawn.
constexpr const char* kGgmlNames[] = {
    "F32",     "F16",   "Q4_0",   "Q4_1",  nullptr, nullptr,  "Q5_0",  "Q5_1",    "Q8_0",
    "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K",  "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",     "I32",
    "I64",     "F64",   "IQ1_M",  "BF16",  nullptr, nullptr,  nullptr, "TQ1_0",   "TQ2_0",
    nullptr,   nullptr, nullptr,  "MXFP4", "NVFP4"};

float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

void dequantise(const BlockQ8_0& block, float* out) {
    const float d = f16_to_f32(block.d);
    for (int j = 0; j < 32; ++j)
        out[j] = d * block.qs[j];
}

void dequantise(const BlockQ4_0& block, float* out) {
    const float d = f16_to_f32(block.d);
    for (int j = 0; j < 16; ++j) {
        out[j] = d * ((block.qs[j] & 15) - 8);
        out[j + 16] = d * ((block.qs[j] >> 4) - 8);
    }
}

void dequantise(const BlockQ4_1& block, float* out) {
    const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
    for (int j = 0; j < 16; ++j) {
        out[j] = d * (block.qs[j] & 15) + m;
        out[j + 16] = d * (block.qs[j] >> 4) + m;
    }
}

// Bit 4 of element j of a Q5_0 or Q5_1 block, in place.
int fifth_bit(const uint8_t qh[4], int j) {
    return ((qh[j / 8] >> (j % 8)) & 1) << 4;
}

void dequantise(const BlockQ5_0& block, float* out) {
    const float d = f16_to_f32(block.d);
    for (int j = 0; j < 16; ++j) {
        out[j] = d * (((block.qs[j] & 15) | fifth_bit(block.qh, j)) - 16);
        out[j + 16] = d * (((block.qs[j] >> 4) | fifth_bit(block.qh, j + 16)) - 16);
    }
}

void dequantise(const BlockQ5_1& block, float* out) {
    const float d = f16_to_f32(block.d), m = f16_to_f32(block.m);
    for (int j = 0; j < 16; ++j) {
        out[j] = d * ((block.qs[j] & 15) | fifth_bit(block.qh, j)) + m;
        out[j + 16] = d * ((block.qs[j] >> 4) | fifth_bit(block.qh, j + 16)) + m;
    }
}

// Low (even s) or high nibble of element l of sub-block s.
int k_nibble(const uint8_t qs[128], int s, int l) {
    return (qs[32 * (s / 2) + l] >> (4 * (s % 2))) & 15;
}

void dequantise(const BlockQ4_K& block, float* out) {
    const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
    for (int s = 0; s < 8; ++s) {
        uint8_t scale, min;
        unpack_scale_min(block.scales, s, &scale, &min);
        const float ds = d * scale, ms = dmin * min;
        for (int l = 0; l < 32; ++l)
            out[32 * s + l] = ds * k_nibble(block.qs, s, l) - ms;
    }
}

void dequantise(const BlockQ5_K& block, float* out) {
    const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
    for (int s = 0; s < 8; ++s) {
        uint8_t scale, min;
        unpack_scale_min(block.scales, s, &scale, &min);
        const float ds = d * scale, ms = dmin * min;
        for (int l = 0; l < 32; ++l) {
            const int q = k_nibble(block.qs, s, l) | ((block.qh[l] >> s) & 1) << 4;
            out[32 * s + l] = ds * q - ms;
        }
    }
}

void dequantise(const BlockQ6_K& block, float* out) {
    const float d = f16_to_f32(block.d);
    for (int e = 0; e < 256; ++e) {
        const int half = e / 128, quarter = e % 128 / 32, l = e % 32;
        const int low = block.ql[64 * half + 32 * (quarter & 1) + l] >> (quarter < 2 ? 0 : 4) & 15;
        const int high = (block.qh[32 * half + l] >> (2 * quarter)) & 3;
        out[e] = d * block.scales[e / 16] * ((low | high << 4) - 32);
    }
}

void dequantise(const BlockIQ4_NL& block, float* out) {
    const float d = f16_to_f32(block.d);
    for (int j = 0; j < 16; ++j) {
        out[j] = d * iq4_values[block.qs[j] & 15];
        out[j + 16] = d * iq4_values[block.qs[j] >> 4];
    }
}

void dequantise(const BlockIQ4_XS& block, float* out) {
    const float d = f16_to_f32(block.d);
    for (int b = 0; b < 8; ++b) {
        const int low = (block.scales_l[b / 2] >> (4 * (b % 2))) & 15;
        const int high = (block.scales_h >> (2 * b)) & 3;
        const float ds = d * ((low | high << 4) - 32);
        const uint8_t* qs = block.qs + 16 * b;
        for (int j = 0; j < 16; ++j) {
            out[32 * b + j] = ds * iq4_values[qs[j] & 15];
            out[32 * b + j + 16] = ds * iq4_values[qs[j] >> 4];
        }
    }
}

template <typename Block, int Elements>
void dequantise_blocks(const uint8_t* row, int64_t cols, float* out) {
    const auto* blocks = reinterpret_cast<const Block*>(row);
    for (int64_t b = 0; b < cols / Elements; ++b)
        dequantise(blocks[b], out + b * Elements);
}

}  // namespace

const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

const BlockTypeInfo* find_block_type(uint32_t ggml_id) {
    for (const BlockTypeInfo& info : kTypes) {
        if (static_cast<uint32_t>(info.type) == ggml_id) return &info;
    }
    return nullptr;
}

const BlockTypeInfo& block_type_info(BlockType type) {
    return *find_block_type(static_cast<uint32_t>(type));
}

const char* ggml_type_name(uint32_t ggml_id) {
    constexpr size_t count = sizeof kGgmlNames / sizeof *kGgmlNames;
    return ggml_id < count && kGgmlNames[ggml_id] ? kGgmlNames[ggml_id] : "unknown";
}

size_t row_bytes(BlockType type, int64_t cols) {
    const BlockTypeInfo& info = block_type_info(type);
    return static_cast<size_t>(cols) / info.block_elements * info.block_bytes;
}

float bf16_to_f32(uint16_t bits) {
    return from_bits(uint32_t{bits} << 16);
}

float f16_to_f32(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    const uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 0x3ff;
    if (exponent == 31) return from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0) return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;  // exact
    return sign ? -subnormal : subnormal;
}

void dequantise_row(BlockType type, const uint8_t* row, int64_t cols, float* out) {
    switch (type) {
        case BlockType::F32:
            std::memcpy(out, row, static_cast<size_t>(cols) * sizeof *out);
            return;
        case BlockType::F16:
            for (int64_t i = 0; i < cols; ++i) {
                out[i] = f16_to_f32(reinterpret_cast<const uint16_t*>(row)[i]);
            }
            return;
        case BlockType::BF16:
            for (int64_t i = 0; i < cols; ++i) {
                out[i] = bf16_to_f32(reinterpret_cast<const uint16_t*>(row)[i]);
            }
            return;
        case BlockType::Q8_0:
            return dequantise_blocks<BlockQ8_0, 32>(row, cols, out);
        case BlockType::Q4_0:
            return dequantise_blocks<BlockQ4_0, 32>(row, cols, out);
        case BlockType::Q4_1:
            return dequantise_blocks<BlockQ4_1, 32>(row, cols, out);
        case BlockType::Q5_0:
            return dequantise_blocks<BlockQ5_0, 32>(row, cols, out);
        case BlockType::Q5_1:
            return dequantise_blocks<BlockQ5_1, 32>(row, cols, out);
        case BlockType::Q4_K:
            return dequantise_blocks<BlockQ4_K, 256>(row, cols, out);
        case BlockType::Q5_K:
            return dequantise_blocks<BlockQ5_K, 256>(row, cols, out);
        case BlockType::Q6_K:
            return dequantise_blocks<BlockQ6_K, 256>(row, cols, out);
        case BlockType::IQ4_NL:
            return dequantise_blocks<BlockIQ4_NL, 32>(row, cols, out);
        case BlockType::IQ4_XS:
            return dequantise_blocks<BlockIQ4_XS, 256>(row, cols, out);
    }
}

}  // namespace oj
