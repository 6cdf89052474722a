// The order of a step's input in memory: that of mma.m16n8k32 fragments, 16 bytes a lane, always
// with room for max_step_rows rows, so that rows are at constant distances.
#pragma once

#include <stdint.h>

#include "cuda/types.h"

namespace oj::cuda {

// Bytes of one row's codes; columns are padded to 64.
OJ_HD int64_t code_row_bytes(int cols) {
    return (static_cast<int64_t>(cols) + 63) / 64 * 64;
}

// Where the code of (row, column) is: [column / 64][row / 8][lane][k32 step][half][column % 4],
// lane = (row % 8) * 4 + column % 16 / 4. As the B operand (k x n) of mma.m16n8k32 a lane's
// register is 4 columns of one row; halves are columns 0-15 and 16-31 of a step, so m16n8k16 can
// use them too.
OJ_HD int input_code(int row, int column) {
    const auto r = static_cast<uint32_t>(row), k = static_cast<uint32_t>(column);
    uint32_t lane = r % column_rows * 4 + k % 16 / 4;
    uint32_t group = k / 64 * (max_step_rows / column_rows) + r / column_rows;
    return static_cast<int>((group * 32 + lane) * 16 + k % 64 / 32 * 8 + k % 32 / 16 * 4 + k % 4);
}

// Where scales256 of a row's group, and scales32 and sums of a row's group, are: [group][row].
OJ_HD int input_scale(int row, int group) {
    return group * max_step_rows + row;
}

constexpr int high_byte_on = super_group / 32, row_sum_bytes = 2 * high_byte_on;

// Where the low byte of the sum of a row's 32 columns is: [column / 256][row][byte][column % 256 /
// 32], so that a lane's 4 bytes are its register of the B operand of m16n8k16. A sum is low + 256
// high, both signed; high is high_byte_on bytes on.
OJ_HD int input_sum32(int row, int column) {
    const auto r = static_cast<uint32_t>(row), k = static_cast<uint32_t>(column);
    return static_cast<int>((k / super_group * max_step_rows + r) * row_sum_bytes +
                            k % super_group / 32);
}

}  // namespace oj::cuda
