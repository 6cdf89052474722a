// What every step rests on, alone: a launch, the meeting of all blocks, the refusal of blocks that
// would not be resident; on a GPU also what a meeting costs and how fast its memory is read. Prints
// a line of JSON for each.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cuda/step_kernel.cuh"
#include "cuda_launch.h"
#include "expect.h"

namespace oj::cuda {
namespace {

using test::expect;

constexpr int step_shared_bytes = ring_at + smallest_ring_bytes;  // as a step's launch has

double seconds_now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

struct WriteIndex {
    uint32_t* out;
    OJ_BODY void operator()() const {
        int i = block_index() * block_threads + thread_index();
        out[i] = static_cast<uint32_t>(3 * i + 1);
    }
};

void test_launch() {
    const int n_blocks = resident_blocks<WriteIndex>(step_shared_bytes);
    SharedVector<uint32_t> out(static_cast<size_t>(n_blocks) * block_threads, 0xffffffffu);
    launch(n_blocks, step_shared_bytes, 1, WriteIndex{out.data()});
    bool same = true;
    for (size_t i = 0; i < out.size(); ++i)
        same = same && out[i] == 3 * i + 1;
    expect(same, "every thread of a launch has written");
    std::printf("{\"blocks\": %d, \"threads\": %zu}\n", n_blocks, out.size());
}

// Every block counts up in its own place; behind each meeting it sees all others' counts.
struct Meetings {
    GridBarrier* barrier;
    uint32_t* counts;  // [block]
    uint32_t* wrong;
    int n_meetings;

    OJ_BODY void operator()() const {
        auto n_blocks = static_cast<uint32_t>(block_count());
        for (int i = 0; i < n_meetings; ++i) {
            auto now = static_cast<uint32_t>(i) + 1;
            if (thread_index() == 0) counts[block_index()] = now;
            if (!meet(2 * i)) return;
            for (int b = thread_index(); b < block_count(); b += block_threads) {
                if (counts[b] != now) atomic_add(wrong, uint32_t{1});
            }
            if (!meet(2 * i + 1)) return;
        }
        if (block_index() == 0 && thread_index() == 0)
            wrong[1] = barrier->arrived / n_blocks;  // how many there were
    }

    OJ_BODY bool meet(int i) const {
        bool failed = false;
        block_sync();
        if (thread_index() == 0) {
            add_release(&barrier->arrived, 1);
            failed = !wait_for_arrivals(
                &barrier->arrived, static_cast<uint32_t>((i + 1) * block_count()), &barrier->fault);
        }
        return !block_any(failed);
    }
};

double meet_often(int n_meetings, int n_blocks) {
    DeviceMemory<GridBarrier> barrier(1);
    DeviceMemory<uint32_t> counts(static_cast<size_t>(n_blocks)), wrong(2);
    double start = seconds_now();
    launch(n_blocks, step_shared_bytes, 2,
           Meetings{barrier.data(), counts.data(), wrong.data(), n_meetings});
    double took = seconds_now() - start;
    expect(wrong.at(0) == 0, "behind a meeting every block sees what the others wrote");
    expect(barrier.at(0).arrived == static_cast<uint32_t>(2 * n_meetings * n_blocks),
           "every block came to every meeting");
    expect(barrier.at(0).fault == 0, "nobody waited too long");
    return took;
}

void test_meetings() {
    const int n_blocks = resident_blocks<Meetings>(step_shared_bytes);
    const int few = on_gpu ? 1000 : 5, many = on_gpu ? 11000 : 10;
    meet_often(few, n_blocks);
    double first = meet_often(few, n_blocks), second = meet_often(many, n_blocks);
    if (on_gpu) {
        std::printf("{\"meeting_us\": %.3f}\n", (second - first) * 1e6 / (2 * (many - few)));
    }
}

// A block that finds the step given up leaves it; so do all others.
void test_fault() {
    const int n_blocks = resident_blocks<Meetings>(step_shared_bytes);
    DeviceMemory<GridBarrier> barrier(1);
    barrier.set(0, {0, 1});
    DeviceMemory<uint32_t> counts(static_cast<size_t>(n_blocks)), wrong(2);
    launch(n_blocks, step_shared_bytes, 3,
           Meetings{barrier.data(), counts.data(), wrong.data(), 1000});
    expect(wrong.at(1) == 0, "a step that was given up does not go on");
}

#if !defined(OJ_EMULATE)

void test_refusal() {
    SharedVector<uint32_t> out(1);
    bool refused = false;
    try {
        launch(resident_blocks<WriteIndex>(step_shared_bytes) + 1, step_shared_bytes, 1,
               WriteIndex{out.data()});
    } catch (const LaunchError& error) {
        refused = true;
        std::printf("{\"refusal\": \"%s\"}\n", error.what());
    }
    expect(refused, "blocks that cannot be resident together are refused");
    cudaGetLastError();
}

#endif

// Reads all of it; the sum is there so that nothing is left out.
struct ReadAll {
    const uint8_t* data;
    int64_t bytes;
    uint32_t* sum;

    OJ_BODY void operator()() const {
        int64_t stride = int64_t{16} * block_threads * block_count(), last = bytes - 7 * stride;
        int64_t at = int64_t{16} * (int64_t{block_threads} * block_index() + thread_index());
        uint32_t mine = 0;
        for (; at < last; at += 8 * stride) {
            Words4 words[8];
            OJ_UNROLL_ALL
            for (int i = 0; i < 8; ++i)
                words[i] = load16(data + at + i * stride);
            OJ_UNROLL_ALL
            for (int i = 0; i < 8; ++i)
                mine += words[i].x + words[i].y + words[i].z + words[i].w;
        }
        for (; at < bytes; at += stride) {
            Words4 words = load16(data + at);
            mine += words.x + words.y + words.z + words.w;
        }
        atomic_add(sum, mine);
    }
};

void test_reading() {
    const int n_blocks = on_gpu ? 8 * resident_blocks<ReadAll>(96 << 10) : 3;
    const int64_t bytes =
        on_gpu ? std::min(int64_t{16} << 30, free_memory() / 2 / 16 * 16) : (1 << 20) + 48;
    DeviceMemory<uint8_t> data(static_cast<size_t>(bytes));
    DeviceMemory<uint32_t> sum(1);
    set_memory(data.data(), 1, static_cast<size_t>(bytes));
#if defined(OJ_EMULATE)
    launch(n_blocks, 0, 4, ReadAll{data.data(), bytes, sum.data()});
#else
    double best = 1e9;
    for (int i = 0; i < 8; ++i) {
        sum.set(0, 0);
        require_cuda(cudaDeviceSynchronize(), "memory");
        double start = seconds_now();
        run_kernel<ReadAll><<<n_blocks, block_threads>>>({data.data(), bytes, sum.data()});
        require_cuda(cudaGetLastError(), "launch");
        require_cuda(cudaDeviceSynchronize(), "reading");
        best = std::min(best, seconds_now() - start);
    }
    std::printf("{\"read_gb_per_s\": %.1f}\n", static_cast<double>(bytes) / best / 1e9);
#endif
    expect(sum.at(0) == static_cast<uint32_t>(bytes / 4 * 0x01010101), "all of it is read, once");
}

}  // namespace
}  // namespace oj::cuda

int main() {
#if defined(__SANITIZE_THREAD__)
    std::printf("emulator: not run, its threads are fibers of one thread\n");
    return 0;
#endif
    oj::cuda::test_launch();
    oj::cuda::test_meetings();
    oj::cuda::test_fault();
#if !defined(OJ_EMULATE)
    oj::cuda::test_refusal();
#endif
    oj::cuda::test_reading();
    return oj::test::report();
}
