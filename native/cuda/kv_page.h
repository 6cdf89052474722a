// Where keys, values and queries lie on the device. A page is as large as the CPU's
// (cpu/kv_codec.h) and divided alike into blocks of keys or values of one layer and head; inside a
// block:
//
//     q8_0   scales as half, then codes as operands A of mma.m16n8k32:
//            keys 64 positions x dim, values dim x 64 positions
//     f16    keys [dim][64], values [64][dim]
//
// Queries of q8_0 are operands B: a column group is 8 query heads that read the same KV head, of
// one row group; a lane's 16 bytes of a step of 32 dimensions are 8 codes' high and low halves.
#pragma once

#include <stdint.h>

#include "cuda/types.h"
#include "engine/numerics.h"

namespace oj::cuda {

OJ_HD int64_t kv_scales_bytes(int codec, int dim) {
    return codec == OJ_KV_Q8_0 ? int64_t{2} * kv_page * dim / kv_group : 0;
}

OJ_HD int64_t kv_block_bytes(int codec, int dim) {
    return kv_scales_bytes(codec, dim) + int64_t{kv_page} * dim * (codec == OJ_KV_Q8_0 ? 1 : 2);
}

// Indices of the scales of one position and group of 32 dimensions. Those of keys lie as a lane
// wants them: [position / 16][position % 8][dim / 32][position % 16 / 8].
OJ_HD int key_scale_at(int position, int group, int dim) {
    const auto at = static_cast<uint32_t>(position), groups = static_cast<uint32_t>(dim) / kv_group;
    const uint32_t row = at / 16 * 8 + at % 8;
    return static_cast<int>((row * groups + static_cast<uint32_t>(group)) * 2 + at % 16 / 8);
}
OJ_HD int value_scale_at(int position, int group) {
    return group * kv_page + position;
}

// Byte of element (row, k) of an operand A with k_steps steps of 32:
// [row / 16][k / 32][lane][k % 32 / 16][row % 16 / 8][k % 4], lane = row % 8 * 4 + k % 16 / 4.
OJ_HD int operand_a_at(int row, int column, int k_steps) {
    const auto r = static_cast<uint32_t>(row), k = static_cast<uint32_t>(column);
    const uint32_t lane = r % 8 * 4 + k % 16 / 4;
    const uint32_t step = r / 16 * static_cast<uint32_t>(k_steps) + k / 32;
    return static_cast<int>((step * 32 + lane) * 16 + k % 32 / 16 * 8 + r % 16 / 8 * 4 + k % 4);
}

OJ_HD int key_code_at(int position, int d, int dim) {
    return operand_a_at(position, d, dim / 32);
}
OJ_HD int value_code_at(int position, int d) {
    return operand_a_at(d, position, kv_page / 32);
}

// ---- queries of q8_0 ----

// Query heads of a row group that read one KV head are its columns, row by row. A group's column
// groups start at that of its first row, and each row has room for whole ones.
OJ_HD int row_column_groups(const Dims& dims) {
    const auto heads = static_cast<uint32_t>(dims.n_heads) / static_cast<uint32_t>(dims.n_kv_heads);
    return static_cast<int>((heads + column_rows - 1) / column_rows);
}

OJ_HD int64_t query_code_bytes(const Dims& dims) {
    return int64_t{max_step_rows} * dims.n_kv_heads * row_column_groups(dims) * column_rows *
           dims.head_dim * 2;
}

// Byte of the high half of dimension 0 of a column group; steps of 32 dimensions are 512 bytes
// apart.
OJ_HD int64_t query_group_at(const Dims& dims, int first_row, int kv_head, int column_group) {
    int64_t group =
        (static_cast<int64_t>(kv_head) * max_step_rows + first_row) * row_column_groups(dims) +
        column_group;
    return group * column_rows * dims.head_dim * 2;
}

// Byte of a code's high half inside a column group: [d / 32][lane][half of the code][d % 32 / 16]
// [d % 4]; the low half is query_low bytes on.
constexpr int query_low = 8;
OJ_HD int query_code_at(int column, int dimension) {
    const auto d = static_cast<uint32_t>(dimension);
    const uint32_t lane = static_cast<uint32_t>(column) * 4 + d % 16 / 4;
    return static_cast<int>((d / 32 * 32 + lane) * 16 + d % 32 / 16 * 4 + d % 4);
}

}  // namespace oj::cuda
