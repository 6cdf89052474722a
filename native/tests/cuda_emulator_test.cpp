// The emulator of device code: right programs give right results under every schedule, and the
// mistakes it exists for are found.
#define OJ_EMULATE

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/ptx.h"
#include "expect.h"

namespace oj::cuda {
namespace {

using test::expect;
using test::failures;

constexpr int n_seeds = 20;
constexpr size_t shared_bytes = 16 << 10;

// How many of the seeds gave a right result; errors of the emulator count as wrong ones.
template <class Program>
int right_runs(Program program) {
    int right = 0;
    for (int seed = 0; seed < n_seeds; ++seed)
        right += program(static_cast<uint64_t>(seed));
    return right;
}

std::string error_of(int n_blocks, const std::function<void()>& kernel, uint64_t seed = 1) {
    try {
        emulate(n_blocks, shared_bytes, seed, kernel);
    } catch (const EmulationError& error) {
        return error.what();
    }
    return "";
}

void expect_error(const std::string& error, const std::string& part) {
    expect(error.find(part) != std::string::npos,
           "expected \"" + part + "\", got \"" + error + "\"");
}

// Every thread reads its neighbour's value through shared memory, twice.
bool turn_values(uint64_t seed, bool with_barrier) {
    std::vector<int> out(2 * block_threads);
    emulate(2, shared_bytes, seed, [&] {
        uint8_t* at = shared_memory();
        int* values = take_shared<int>(at, block_threads);
        int mine = 1000 * block_index() + thread_index();
        for (int turn = 0; turn < 2; ++turn) {
            values[thread_index()] = mine;
            if (with_barrier) block_sync();
            mine = values[(thread_index() + 1) % block_threads];
            block_sync();
        }
        out[block_index() * block_threads + thread_index()] = mine;
    });
    for (int i = 0; i < 2 * block_threads; ++i) {
        int block = i / block_threads, thread = i % block_threads;
        if (out[i] != 1000 * block + (thread + 2) % block_threads) return false;
    }
    return true;
}

// Each warp copies lines to shared memory two ahead and reads what another lane copied.
bool copy_lines(uint64_t seed, bool with_wait, bool with_meeting) {
    constexpr int lines = 6;
    alignas(16) uint32_t source[lines][warp_lanes][4];
    for (int i = 0; i < lines * warp_lanes * 4; ++i)
        (&source[0][0][0])[i] = 77 * i;
    bool right = true;
    emulate(1, shared_bytes, seed, [&] {
        if (warp_index() != 0) return;
        auto* ring = reinterpret_cast<Words4*>(shared_memory());
        int lane = lane_index();
        auto issue = [&](int line) {
            if (line < lines) copy_async(ring + line % 2 * warp_lanes + lane, source[line][lane]);
            copy_commit();
        };
        issue(0);
        for (int line = 0; line < lines; ++line) {
            issue(line + 1);
            if (with_wait) copy_wait<1>();
            if (with_meeting) warp_sync();
            Words4 got = load16(ring + line % 2 * warp_lanes + (lane ^ 1));
            right = right && got.z == source[line][lane ^ 1][2];
            warp_sync();
        }
        copy_wait<0>();
    });
    return right;
}

// Blocks meet at a counter in global memory; each then reads what all wrote before.
bool meet_blocks(uint64_t seed) {
    constexpr int blocks = 4;
    std::vector<int> values(blocks), sums(blocks);
    uint32_t counter = 0;
    emulate(blocks, shared_bytes, seed, [&] {
        for (uint32_t round = 1; round <= 3; ++round) {
            if (thread_index() == 0) values[block_index()] = block_index() * 10 + int(round);
            block_sync();
            if (thread_index() == 0) {
                add_release(&counter, 1);
                while (load_acquire(&counter) < round * 2 * blocks - blocks)
                    spin_pause();
                int sum = 0;
                for (int value : values)
                    sum += value;
                sums[block_index()] = sum;
                add_release(&counter, 1);
                while (load_acquire(&counter) < round * 2 * blocks)
                    spin_pause();
            }
            block_sync();
        }
    });
    for (int sum : sums) {
        if (sum != 60 + 3 * blocks) return false;
    }
    return true;
}

template <class A, int k, class Multiply>
bool multiply_once(uint64_t seed, Multiply multiply) {
    A a[16][k];
    int8_t b[8][k];
    int32_t d[16][8];
    for (int i = 0; i < 16 * k; ++i)
        (&a[0][0])[i] = static_cast<A>(i * 37 + 11);
    for (int i = 0; i < 8 * k; ++i)
        (&b[0][0])[i] = static_cast<int8_t>(i * 91 + 5);
    emulate(1, shared_bytes, seed, [&] {
        if (warp_index() != 3) return;
        int g = lane_index() / 4, t = lane_index() % 4;
        uint32_t fa[4] = {}, fb[2] = {};
        for (int half = 0; half < k / 16; ++half) {
            memcpy(&fa[2 * half], &a[g][16 * half + 4 * t], 4);
            memcpy(&fa[2 * half + 1], &a[g + 8][16 * half + 4 * t], 4);
            memcpy(&fb[half], &b[g][16 * half + 4 * t], 4);
        }
        int32_t sums[4] = {1, 2, 3, 4};
        multiply(sums, fa, fb);
        for (int j = 0; j < 4; ++j)
            d[g + j / 2 * 8][2 * t + j % 2] = sums[j] - j - 1;
    });
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 8; ++column) {
            int sum = 0;
            for (int i = 0; i < k; ++i)
                sum += a[row][i] * b[column][i];
            if (d[row][column] != sum) return false;
        }
    }
    return true;
}

void test_right_programs() {
    expect(right_runs([](uint64_t s) { return turn_values(s, true); }) == n_seeds, "block_sync");
    expect(right_runs([](uint64_t s) { return copy_lines(s, true, true); }) == n_seeds, "copies");
    expect(right_runs(meet_blocks) == n_seeds, "a barrier of blocks");
    expect(multiply_once<uint8_t, 32>(
               1, [](int32_t* d, uint32_t* a, uint32_t* b) { mma_u8_k32(d, a, b); }),
           "mma_u8_k32");
    expect(multiply_once<int8_t, 32>(
               2, [](int32_t* d, uint32_t* a, uint32_t* b) { mma_s8_k32(d, a, b); }),
           "mma_s8_k32");
    expect(multiply_once<uint8_t, 16>(
               3, [](int32_t* d, uint32_t* a, uint32_t* b) { mma_u8_k16(d, a, b[0]); }),
           "mma_u8_k16");
    expect(multiply_once<int8_t, 16>(
               4, [](int32_t* d, uint32_t* a, uint32_t* b) { mma_s8_k16(d, a, b[0]); }),
           "mma_s8_k16");
}

void test_collectives() {
    expect(error_of(1,
                    [] {
                        int lane = lane_index();
                        expect(shuffle(lane * 3, 5) == 15, "shuffle");
                        expect(shuffle_up(lane, 2) == (lane < 2 ? lane : lane - 2), "shuffle_up");
                        expect(warp_sum(lane) == 496, "warp_sum");
                        expect(warp_max(lane ^ 9) == 31, "warp_max");
                        expect(warp_ballot(lane % 2 == 0) == 0x55555555u, "warp_ballot");
                        expect(block_any(thread_index() == 200), "block_any of one");
                        expect(!block_any(false), "block_any of none");
                    })
               .empty(),
           "collectives run");
    expect(dot4(0xff020304u, 0x7f010203u, 10) == 10 - 127 + 2 + 6 + 12, "dot4");
    expect(permute_bytes(0x33221100u, 0x77665544u, 0x7240u) == 0x77224400u, "permute_bytes");
}

void test_mistakes() {
    expect(right_runs([](uint64_t s) { return turn_values(s, false); }) < n_seeds / 2,
           "a missing block_sync is found");
    expect(right_runs([](uint64_t s) { return copy_lines(s, false, true); }) < n_seeds / 2,
           "a missing copy_wait is found");
    expect(right_runs([](uint64_t s) { return copy_lines(s, true, false); }) < n_seeds / 2,
           "a missing warp_sync after copy_wait is found");
    std::string deadlock = error_of(2, [] {
        if (block_index() == 1 && warp_index() == 2) return;
        block_sync();
    });
    expect_error(deadlock, "deadlock: no thread can go on");
    expect_error(deadlock, "block 1 (224 threads)");
    expect_error(deadlock, "cuda_emulator_test.cpp");
    uint32_t never = 0;
    expect_error(error_of(1,
                          [&] {
                              while (load_acquire(&never) == 0)
                                  spin_pause();
                          }),
                 "wait for a store that does not come");
    expect_error(error_of(1,
                          [] {
                              if (lane_index() < 7)
                                  warp_sync();
                              else
                                  warp_ballot(true);
                          }),
                 "threads reach at different places");
    expect_error(error_of(1,
                          [] {
                              if (thread_index() < 64)
                                  block_sync();
                              else
                                  block_sync();
                          }),
                 "threads reach at different places");
    alignas(16) static const uint8_t source[64] = {};
    expect_error(error_of(1, [] { copy_async(shared_memory(), source + 4); }), "misaligned");
    expect_error(error_of(1, [] { copy_async(shared_memory() + shared_bytes, source); }),
                 "out of range");
    expect_error(error_of(1, [] { load16(source + 8); }), "misaligned");
}

}  // namespace
}  // namespace oj::cuda

int main() {
#if defined(__SANITIZE_THREAD__)
    std::printf("emulator: not run, its threads are fibers of one thread\n");
    return 0;
#endif
    oj::cuda::test_right_programs();
    oj::cuda::test_collectives();
    oj::cuda::test_mistakes();
    if (oj::cuda::failures == 0) std::printf("emulator: every program and mistake as expected\n");
    return oj::cuda::failures == 0 ? 0 : 1;
}
