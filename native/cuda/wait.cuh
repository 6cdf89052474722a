// Waiting for other blocks: each arrives at a counter when its stores are done, with release; one
// thread polls it, with acquire, and the block's threads go on behind a block_sync().
#pragma once

#include "cuda/platform.h"

namespace oj::cuda {

// Longer than any step takes, also under a checking tool.
constexpr uint64_t longest_wait = 20'000'000'000;  // nanoseconds

// One thread of a block: until `arrived` has come to `target`. False after a fault anywhere.
OJ_DEVICE bool wait_for_arrivals(const uint32_t* arrived, uint32_t target, uint32_t* fault,
                                 bool relaxed_polls = false) {
    constexpr int polls = 64;  // between looks at the clock
    uint64_t start = nanoseconds();
    for (;;) {
        for (int i = 0; i < polls; ++i) {
            const uint32_t failed = load_relaxed(fault);  // both loads are under way together
            const uint32_t now = relaxed_polls ? load_relaxed(arrived) : load_acquire(arrived);
            if (failed != 0) return false;
            if (now >= target) {
                if (relaxed_polls) acquire_fence();
                return true;
            }
            spin_pause();
        }
        if (nanoseconds() - start > longest_wait) {
            store_release(fault, 1);
            return false;
        }
    }
}

}  // namespace oj::cuda
