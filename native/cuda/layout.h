// The order of int8 codes in memory that mma.m16n8k32 fragments are loaded from, 16 bytes a lane.
#pragma once

#include <stdint.h>

#include "cuda/types.h"

namespace oj::cuda {

// Bytes of one row's codes; columns are padded to 64.
OJ_HD int64_t code_row_bytes(int cols) {
    return (static_cast<int64_t>(cols) + 63) / 64 * 64;
}

// Where the code of (row, column) is: [row / 8][column / 64][lane][k32 step][half][column % 4],
// lane = (row % 8) * 4 + column % 16 / 4. As the B operand (k x n) of mma.m16n8k32 a lane's
// register is 4 columns of one row; halves are columns 0-15 and 16-31 of a step, so m16n8k16 can
// use them too.
OJ_HD int64_t input_code(int row, int column, int cols) {
    int lane = row % 8 * 4 + column % 16 / 4;
    int64_t chunk = row / 8 * (code_row_bytes(cols) / 64) + column / 64;
    return (chunk * 32 + lane) * 16 + column % 64 / 32 * 8 + column % 32 / 16 * 4 + column % 4;
}

}  // namespace oj::cuda
