// Waiting for other blocks: each arrives at a counter when its stores are done, with release; one
// thread polls it, with acquire, and the block's threads go on behind a block_sync().
#pragma once

#include "cuda/platform.h"

namespace oj::cuda {

// Longer than any step takes, also under a checking tool.
constexpr uint64_t longest_wait = 20'000'000'000;  // nanoseconds

// One thread of a block: until `arrived` has come to `target`. False after a fault anywhere. Most
// waits are short: the fault and the clock are looked at once in a round of polls.
OJ_DEVICE bool wait_for_arrivals(const uint32_t* arrived, uint32_t target, uint32_t* fault,
                                 bool relaxed_polls = false) {
    constexpr int polls = 64;
    auto poll = [&] { return relaxed_polls ? load_relaxed(arrived) : load_acquire(arrived); };
    uint64_t start = 0;
    for (;;) {
        const uint32_t failed = load_relaxed(fault);  // under way together with the first poll
        uint32_t count = poll();
        if (failed != 0) return false;
        OJ_UNROLL(1)
        for (int i = 1; count < target && i < polls; ++i) {
            spin_pause();
            count = poll();
        }
        if (count >= target) {
            if (relaxed_polls) acquire_fence();
            return true;
        }
        spin_pause();
        const uint64_t now = nanoseconds();
        if (start == 0) start = now;
        if (now - start > longest_wait) {
            store_release(fault, 1);
            return false;
        }
    }
}

}  // namespace oj::cuda
