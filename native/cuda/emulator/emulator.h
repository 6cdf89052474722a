// Device code on the host, for tests: every CUDA thread is a fiber of the calling thread, scheduled
// by a seeded random order. What the hardware leaves open is drawn at random: which warp and lane
// runs next, and when an asynchronous copy lands between its issue and its wait (until then its
// target holds rubbish). Found and reported as errors: a deadlock with the place where each thread
// waits, collectives that not every thread reaches at the same source line, misaligned or
// out-of-range asynchronous copies. A missing barrier is found as a wrong result. Not modelled:
// stores are seen by everyone at once and in order, so a missing fence is not found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

namespace oj::cuda {

class EmulationError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Runs `kernel` in n_blocks blocks of block_threads threads, all resident together, each with
// shared_bytes of its own that start as rubbish. Throws EmulationError.
void emulate(int n_blocks, size_t shared_bytes, uint64_t seed, const std::function<void()>& kernel);

namespace emulator {

struct Site {
    const char* file;
    int line;
};

struct Place {
    int block, n_blocks, thread;
    uint8_t* shared;
};

// The thread that runs now.
extern __thread const Place* place;

// All 32 lanes meet at one site; the last to come runs `apply` over their arguments.
using Apply = void (*)(void* const* lanes);
void meet_warp(const char* what, Apply apply, void* mine, Site site);

// All threads of the block meet; whether `vote` was true for any.
bool meet_block(bool vote, Site site);

// One turn of a loop that waits for another thread's store.
void spin(Site site);

// Other threads may wait for a store that was just made.
void stored();

void copy_async(void* shared, const void* global, Site site);
void commit_copies();
void wait_copies(int newest_left);  // at most so many of the newest groups stay open

void check_aligned(const void* pointer, size_t bytes);

}  // namespace emulator

}  // namespace oj::cuda
