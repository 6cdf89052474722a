// Packing on the device: a grid of any size does one job.
#pragma once

#include "cuda/platform.h"
#include "cuda/repack.h"

namespace oj::cuda {

OJ_DEVICE void repack_rows(const RepackJob& job) {
    int64_t stride = static_cast<int64_t>(block_count()) * block_threads;
    int64_t first = static_cast<int64_t>(block_index()) * block_threads + thread_index();
    for (int64_t piece = first; piece < job.pieces(); piece += stride)
        repack_piece(job, piece);
}

}  // namespace oj::cuda
