// Products of a block of weights with many rows of input: a code times its sub-block's scale, in two
// bytes, is what tensor cores multiply, so that nothing is left to do behind each product and a
// block's integers are summed where they are made.
#pragma once

#include "cuda/gemm_block.cuh"

namespace oj::cuda {

// Scaled codes of a k32 step as A operands: low_weight() * low + 256 * high.
struct ScaledCodes {
    uint32_t low[4], high[4];
};

// Plain 4-bit codes are multiplied with a scale's low 4 and its high 2 bits, four codes a word. Of
// other types a word's even and odd bytes become 16-bit numbers.
OJ_HD constexpr bool splits_scale(TileFormat f) {
    return even_step_weight(f) != 1;
}
OJ_HD constexpr int low_weight(TileFormat f) {
    return splits_scale(f) ? 1 << code_shift(f) : 1;
}

// From the codes of a step (load_codes()) and the scales of its chunk, of which `first_sub` is the
// step's first sub-block.
template <BlockType type>
OJ_DEVICE void scale_codes(const uint32_t codes[4], const int32_t scales[2][4], int first_sub,
                           ScaledCodes& to) {
    constexpr TileFormat f = tile_format(type);
    constexpr bool is_signed = f.offset != 0;
    static_assert(largest_code(f) * largest_scale(f) < 1 << (is_signed ? 15 : 16));
    OJ_UNROLL_ALL
    for (int i = 0; i < 4; ++i) {
        const auto scale =
            static_cast<uint32_t>(scales[i % 2][first_sub + (f.sub == 16 ? i / 2 : 0)]);
        if constexpr (splits_scale(f)) {
            static_assert(15 * 15 < 256 && largest_scale(f) < 64);
            const uint32_t plain = codes[i] >> code_shift(f);
            to.low[i] = plain * (scale & 15);
            to.high[i] = plain * (scale >> 4);
        } else {
            // (code + 128) scale - 128 scale + 0x8000 of signed codes, so that no number borrows
            // from the one above it.
            const uint32_t word = is_signed ? codes[i] ^ 0x80808080u : codes[i];
            const uint32_t start = is_signed ? (0x8000u - 128u * scale) * 0x10001u : 0;
            const uint32_t even = (word & 0x00ff00ffu) * scale + start;
            const uint32_t odd = (word >> 8 & 0x00ff00ffu) * scale + start;
            to.low[i] = permute_bytes(even, odd, 0x6240);
            to.high[i] = permute_bytes(even, odd, 0x7351) ^ (is_signed ? 0x80808080u : 0);
        }
    }
}

template <bool is_signed>
OJ_DEVICE void add_product_k32(int32_t d[4], const uint32_t a[4], const uint32_t b[2]) {
    if constexpr (is_signed) {
        mma_s8_k32(d, a, b);
    } else {
        mma_u8_k32(d, a, b);
    }
}

// A lane's input of the columns that follow, in device or shared memory.
struct ManyInput {
    const int8_t* codes;
    int chunk_stride;  // from a chunk's codes to the next one's
    const float* scales;
    const int8_t* sums;
};

template <BlockType type, int groups>
OJ_DEVICE void load_scales(const ManyInput& input, BlockScales<groups>& to) {
    OJ_UNROLL_ALL
    for (int j = 0; j < groups; ++j) {
        to.scales[j] = load8(input.scales + j * column_rows);
        if constexpr (tile_format(type).has_mins)
            to.sums[j] = load4(input.sums + j * column_rows * row_sum_bytes);
    }
}

template <int groups>
OJ_DEVICE void load_chunk(const int8_t* codes, Words4 to[groups]) {
    OJ_UNROLL_ALL
    for (int j = 0; j < groups; ++j)
        to[j] = load16(codes + j * InputLane::group_stride);
}

// Adds 256 columns of a super-group type to the chains of all column groups. `codes` holds the
// input's first chunk, and after that the chunk behind the block, unless `is_last`: each is loaded
// where the one before it was used. The loop over chunks is not unrolled, which would take registers
// for the loads of several.
template <BlockType type, int groups>
OJ_DEVICE void add_block_many(const uint8_t* block, ManyInput& input, bool is_last,
                              const InputLane& x, Words4 codes[groups],
                              float acc[groups][4]) {
    constexpr TileFormat f = tile_format(type);
    constexpr int n = block_steps;
    int32_t low[groups][4] = {}, high[groups][4] = {};
    HeaderRow rows[2];
    if constexpr (f.has_mins) {
        OJ_UNROLL_ALL
        for (int r = 0; r < 2; ++r)
            rows[r] = load_header(block + sides_at(f, n) + (2 * x.g + r) * sizeof(Header), x.t);
    }
    OJ_UNROLL(1)
    for (int c = 0; c < n / 2; ++c) {
        uint32_t a[2][4];
        int32_t sub_scales[2][4];
        if (!is_last || c + 1 < n / 2) input.codes += input.chunk_stride;
        load_codes<type, true>(block + c * codes_bytes(f), block + low_at(f, n) + c * low_bytes(f),
                               x.lane, a);
        load_scales<type>(block, rows, x, c, sub_scales);
        OJ_UNROLL_ALL
        for (int s = 0; s < 2; ++s) {
            ScaledCodes scaled;
            scale_codes<type>(a[s], sub_scales, s * (f.sub == 16 ? 2 : 1), scaled);
            OJ_UNROLL_ALL
            for (int j = 0; j < groups; ++j) {
                const Words4 q = codes[j];
                const uint32_t b[2] = {s == 0 ? q.x : q.z, s == 0 ? q.y : q.w};
                add_product_k32<false>(low[j], scaled.low, b);
                add_product_k32<f.offset != 0>(high[j], scaled.high, b);
                if (s == 1) codes[j] = load16(input.codes + j * InputLane::group_stride);
            }
        }
    }
    OJ_UNROLL_ALL
    for (int j = 0; j < groups; ++j) {
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i)
            low[j][i] = low[j][i] * low_weight(f) + high[j][i] * 256;
    }
    BlockScales<groups> scales;
    load_scales<type, groups>(input, scales);
    input.scales += max_step_rows;
    input.sums += max_step_rows * row_sum_bytes;
    add_sums<type, groups>(block, rows, x, scales, low, acc);
}

}  // namespace oj::cuda
