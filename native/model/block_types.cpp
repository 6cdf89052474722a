#include "model/block_types.h"

#include "model/block_values.h"

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

// Elements of one block after the other, so that what they share is read once.
template <BlockType type, int elements>
void dequantise(const uint8_t* row, int64_t cols, float* out) {
    const size_t block_bytes = row_bytes(type, elements);
    for (int64_t b = 0; b < cols / elements; ++b) {
        for (int j = 0; j < elements; ++j)
            out[b * elements + j] = element_value(type, row + b * block_bytes, j);
    }
}

}  // namespace

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

void dequantise_row(BlockType type, const uint8_t* row, int64_t cols, float* out) {
    switch (type) {
        case BlockType::F32:
            return dequantise<BlockType::F32, 1>(row, cols, out);
        case BlockType::F16:
            return dequantise<BlockType::F16, 1>(row, cols, out);
        case BlockType::BF16:
            return dequantise<BlockType::BF16, 1>(row, cols, out);
        case BlockType::Q8_0:
            return dequantise<BlockType::Q8_0, 32>(row, cols, out);
        case BlockType::Q4_0:
            return dequantise<BlockType::Q4_0, 32>(row, cols, out);
        case BlockType::Q4_1:
            return dequantise<BlockType::Q4_1, 32>(row, cols, out);
        case BlockType::Q5_0:
            return dequantise<BlockType::Q5_0, 32>(row, cols, out);
        case BlockType::Q5_1:
            return dequantise<BlockType::Q5_1, 32>(row, cols, out);
        case BlockType::Q4_K:
            return dequantise<BlockType::Q4_K, 256>(row, cols, out);
        case BlockType::Q5_K:
            return dequantise<BlockType::Q5_K, 256>(row, cols, out);
        case BlockType::Q6_K:
            return dequantise<BlockType::Q6_K, 256>(row, cols, out);
        case BlockType::IQ4_NL:
            return dequantise<BlockType::IQ4_NL, 32>(row, cols, out);
        case BlockType::IQ4_XS:
            return dequantise<BlockType::IQ4_XS, 256>(row, cols, out);
    }
}

}  // namespace oj
