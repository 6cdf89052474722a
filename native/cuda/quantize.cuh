// Float rows into what matrix products read (Input): the bits of cpu/vector_kernels.h's
// quantize256() and quantize32().
#pragma once

#include "cuda/layout.h"
#include "cuda/platform.h"

namespace oj::cuda {

constexpr int lane_columns = super_group / warp_lanes;  // neighbouring columns of one lane: 8

OJ_DEVICE Input in_global(const Input& input) {
    return {in_global(input.values), in_global(input.codes256), in_global(input.scales256),
            in_global(input.sums32), in_global(input.codes32),  in_global(input.scales32),
            in_global(input.sums)};
}

OJ_DEVICE int largest_magnitude(const float v[lane_columns]) {
    int largest = 0;
    for (int i = 0; i < lane_columns; ++i) {
        int magnitude = static_cast<int>(float_to_bits(v[i]) & 0x7fffffffu);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

// Codes of a lane's columns from `column`; returns their sum.
OJ_DEVICE int write_codes(const float v[lane_columns], float factor, bool valid, int8_t* codes,
                          int row, int column) {
    const int at = input_code(row, column), next = input_code(0, 4);  // four columns on
    int sum = 0;
    OJ_UNROLL_ALL
    for (int half = 0; half < lane_columns / 4; ++half) {
        uint32_t word = 0;
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i) {
            int code = quantize_code(v[4 * half + i], factor);
            sum += code;
            word |= (static_cast<uint32_t>(code) & 255u) << (8 * i);
        }
        if (valid) *reinterpret_cast<uint32_t*>(codes + at + half * next) = word;
    }
    return sum;
}

// One warp writes columns [first, first + 256), but none from `end` on, of a row of `cols` columns,
// in the forms asked for: lane l has columns first + 8 l .. + 7 in v. `first` is a multiple of 256
// where groups of 256 are wanted; what the lanes behind the end pass does not matter.
OJ_DEVICE void write_input(const Input& input, const Forms& forms, int row, int cols, int first,
                           int end, const float v[lane_columns]) {
    int lane = lane_index();
    int column = first + lane * lane_columns;
    bool valid = column < end;
    if (forms.values && valid) {
        float* values = input.values + static_cast<int64_t>(row) * cols + column;
        for (int i = 0; i < lane_columns; ++i)
            values[i] = v[i];
    }
    int largest = largest_magnitude(v);
    for (int width = 1; width < small_group / lane_columns; width *= 2) {
        int other = shuffle_xor(largest, width);
        largest = other > largest ? other : largest;
    }
    if (forms.group32) {
        float magnitude = bits_to_float(static_cast<uint32_t>(largest));
        int sum = write_codes(v, quantize_factor(magnitude), valid, input.codes32, row, column);
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (valid && lane % 4 == 0) {
            int at = input_scale(row, column / small_group);
            input.sums[at] = static_cast<int16_t>(sum);
            input.scales32[at] = quantize_scale(magnitude);
        }
    }
    if (forms.group256) {
        for (int width = small_group / lane_columns; width < warp_lanes; width *= 2) {
            int other = shuffle_xor(largest, width);
            largest = other > largest ? other : largest;
        }
        float magnitude = bits_to_float(static_cast<uint32_t>(largest));
        int sum = write_codes(v, quantize_factor(magnitude), valid, input.codes256, row, column);
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (lane % 4 == 0) input.sums32[input_sum32(row, column)] = static_cast<int16_t>(sum);
        if (lane == 0)
            input.scales256[input_scale(row, column / super_group)] = quantize_scale(magnitude);
    }
}

// Up to the row's end.
OJ_DEVICE void write_input(const Input& input, const Forms& forms, int row, int cols, int first,
                           const float v[lane_columns]) {
    write_input(input, forms, row, cols, first, cols, v);
}

}  // namespace oj::cuda
