// Float rows into what matrix products read (Input): the bits of cpu/vector_kernels.h's
// quantize256() and quantize32().
#pragma once

#include "cuda/layout.h"
#include "cuda/platform.h"
#include "cuda/ptx.h"

namespace oj::cuda {

constexpr int lane_columns = super_group / warp_lanes;  // neighbouring columns of one lane: 8

OJ_DEVICE int largest_magnitude(const float v[lane_columns]) {
    int largest = 0;
    for (int i = 0; i < lane_columns; ++i) {
        int magnitude = static_cast<int>(float_to_bits(v[i]) & 0x7fffffffu);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

// Codes of a lane's columns, four a word: the low bytes of what the magic addition leaves.
OJ_DEVICE Words2 make_codes(const float v[lane_columns], float factor) {
    uint32_t words[lane_columns / 4];
    OJ_UNROLL_ALL
    for (int half = 0; half < lane_columns / 4; ++half) {
        uint32_t shifted[4];
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i)
            shifted[i] = float_to_bits(v[4 * half + i] * factor + 12582912.0f);
        words[half] = permute_bytes(permute_bytes(shifted[0], shifted[1], 0x0040),
                                    permute_bytes(shifted[2], shifted[3], 0x0040), 0x5410);
    }
    return {words[0], words[1]};
}

// quantize_factor() in even lanes and quantize_scale() in odd ones, of the same group: one division
// for both.
OJ_DEVICE float factor_or_scale(float largest) {
    const bool is_scale = lane_index() % 2 != 0;
    const float quotient = (is_scale ? largest : 127.0f) / (is_scale ? 127.0f : largest);
    return largest > 1e-30f ? quotient : 0.0f;
}

// A lane's neighbouring columns: by value, so that they stay in registers when they are passed to a
// function.
struct LaneColumns {
    float v[lane_columns];
};

// A lane's codes of a group that is as large as `largest` (bits) go to `codes` and on; returns the
// sum of a small group's codes, and the group's factor in even lanes, its scale in odd ones.
struct GroupCodes {
    int16_t sum;
    float scale;
};
OJ_DEVICE GroupCodes write_codes(const float v[lane_columns], int largest, bool valid,
                                 int8_t* codes) {
    const float scale = factor_or_scale(bits_to_float(static_cast<uint32_t>(largest)));
    const Words2 words = make_codes(v, shuffle(scale, lane_index() & ~1));
    if (valid) {
        *reinterpret_cast<uint32_t*>(codes) = words.x;
        *reinterpret_cast<uint32_t*>(codes + input_code(0, 4)) = words.y;  // four columns on
    }
    int sum = dot4(words.x, 0x01010101u, dot4(words.y, 0x01010101u, 0));
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    return {static_cast<int16_t>(sum), scale};
}

// One warp writes columns [first, first + 256), but none from `end` on, of a row of `cols` columns,
// in the forms asked for: lane l has columns first + 8 l .. + 7. `first` and `end` are multiples of
// 256 where groups of 256 are wanted, and else of 32: a group's scale is of all its lanes. A
// function of its own, which all phases share: it is rarely lost from the instruction cache.
OJ_PHASE void write_input(const Input& input, const Forms& forms, int row, int cols, int first,
                          int end, LaneColumns columns) {
    const float* v = columns.v;
    const int lane = lane_index(), column = first + lane * lane_columns;
    const bool valid = column < end;
    if (forms.values && valid) {
        float* values = in_global(input.values) + static_cast<int64_t>(row) * cols + column;
        for (int i = 0; i < lane_columns; ++i)
            values[i] = v[i];
    }
    const int at = input_code(row, column);
    const int magnitude = largest_magnitude(v);
    if (forms.group32) {
        int largest = magnitude;
        for (int width = 1; width < small_group / lane_columns; width *= 2) {
            int other = shuffle_xor(largest, width);
            largest = other > largest ? other : largest;
        }
        const int group = input_scale(row, quotient(column, small_group));
        int16_t* sums = in_global(input.sums) + group;
        float* scales = in_global(input.scales32) + group;
        const GroupCodes codes = write_codes(v, largest, valid, in_global(input.codes32) + at);
        if (valid && lane % 4 == 1) *sums = codes.sum, *scales = codes.scale;
    }
    if (forms.group256) {
        int8_t* sums = in_global(input.sums32) + input_sum32(row, column);
        float* scales =
            in_global(input.scales256) + input_scale(row, quotient(column, super_group));
        const GroupCodes codes =
            write_codes(v, warp_largest(magnitude), valid, in_global(input.codes256) + at);
        if (valid && lane % 4 == 1) {
            sums[0] = static_cast<int8_t>(codes.sum);
            sums[high_byte_on] = static_cast<int8_t>((codes.sum - sums[0]) >> 8);
        }
        if (valid && lane == 1) *scales = codes.scale;
    }
}

// Up to the row's end.
OJ_DEVICE void write_input(const Input& input, const Forms& forms, int row, int cols, int first,
                           const LaneColumns& columns) {
    write_input(input, forms, row, cols, first, cols, columns);
}

}  // namespace oj::cuda
