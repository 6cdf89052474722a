#include "model/block_types.h"

#include <utility>

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

// Types without blocks.
template <BlockType type>
void convert(const uint8_t* row, int64_t cols, float* __restrict out) {
    for (int64_t i = 0; i < cols; ++i)
        out[i] = element_value(type, row, static_cast<int>(i));
}

// Elements that share their scales; where they are is known to the compiler, which then reads what
// they share once.
template <class Block, int first>
void dequantise_part(const Block& block, float* __restrict out) {
    for (int j = 0; j < 16; ++j)
        out[first + j] = block_value(block, first + j);
}

template <class Block, int... parts>
void dequantise_block(const Block& block, float* out, std::integer_sequence<int, parts...>) {
    (dequantise_part<Block, 16 * parts>(block, out), ...);
}

template <class Block, int elements>
void dequantise(const uint8_t* row, int64_t cols, float* out) {
    const auto* blocks = reinterpret_cast<const Block*>(row);
    constexpr auto parts = std::make_integer_sequence<int, elements / 16>();
    for (int64_t b = 0; b < cols / elements; ++b)
        dequantise_block(blocks[b], out + b * elements, parts);
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
            return convert<BlockType::F32>(row, cols, out);
        case BlockType::F16:
            return convert<BlockType::F16>(row, cols, out);
        case BlockType::BF16:
            return convert<BlockType::BF16>(row, cols, out);
        case BlockType::Q8_0:
            return dequantise<BlockQ8_0, 32>(row, cols, out);
        case BlockType::Q4_0:
            return dequantise<BlockQ4_0, 32>(row, cols, out);
        case BlockType::Q4_1:
            return dequantise<BlockQ4_1, 32>(row, cols, out);
        case BlockType::Q5_0:
            return dequantise<BlockQ5_0, 32>(row, cols, out);
        case BlockType::Q5_1:
            return dequantise<BlockQ5_1, 32>(row, cols, out);
        case BlockType::Q4_K:
            return dequantise<BlockQ4_K, 256>(row, cols, out);
        case BlockType::Q5_K:
            return dequantise<BlockQ5_K, 256>(row, cols, out);
        case BlockType::Q6_K:
            return dequantise<BlockQ6_K, 256>(row, cols, out);
        case BlockType::IQ4_NL:
            return dequantise<BlockIQ4_NL, 32>(row, cols, out);
        case BlockType::IQ4_XS:
            return dequantise<BlockIQ4_XS, 256>(row, cols, out);
    }
}

}  // namespace oj
