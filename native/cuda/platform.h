// What device code may use of the machine: the CUDA side and, with OJ_EMULATE, the emulated side of
// each piece beside each other. Only this file and ptx.h know which one is compiled. A kernel has
// block_threads threads a block; every warp collective is one of all 32 lanes, and every
// block_sync() one of all threads, reached at the same source line.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda/types.h"

#if defined(OJ_EMULATE)
#include "cuda/emulator/emulator.h"
#define OJ_DEVICE inline
#define OJ_PHASE inline
// A last parameter of what a deadlock report should name.
#define OJ_SITE emulator::Site site = {__builtin_FILE(), __builtin_LINE()}
#define OJ_UNROLL(times)
#define OJ_UNROLL_ALL
#else
#define OJ_DEVICE static __device__ __forceinline__
// A function of its own: inlined into one kernel, phases would keep each other's values in
// registers until they spill.
#define OJ_PHASE static __device__ __noinline__
#define OJ_KERNEL extern "C" __global__ void __launch_bounds__(oj::cuda::block_threads, 1)
#define OJ_PRAGMA(text) _Pragma(#text)
#define OJ_UNROLL(times) OJ_PRAGMA(unroll times)  // of the loop that follows
#define OJ_UNROLL_ALL OJ_PRAGMA(unroll)           // whose arrays are registers
#endif

namespace oj::cuda {

// What a phase knows of the launch; `shared` is dynamic shared memory that is not the weight ring.
struct Grid {
    int block, n_blocks;
    uint8_t* shared;
};

constexpr int warp_lanes = 32;

// Shared memory of a block on the cards that this code is compiled for, at most: no less than such
// a card has, because pairs that fit are compiled and shared out by what it has.
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
constexpr int most_block_shared = 99 << 10;
#else
constexpr int most_block_shared = 227 << 10;
#endif

// Column groups that are multiplied with two tiles at once, at most, and chunks of codes that are
// loaded ahead for three groups and for more: for sm_120 ptxas (13.0) needs more registers, and
// spills what is more than this.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int most_pair_groups = 1, ahead_for_three = 2, ahead_for_more = 1;
#else
constexpr int most_pair_groups = 2, ahead_for_three = 4, ahead_for_more = 2;
#endif

struct alignas(16) Words4 {
    uint32_t x, y, z, w;
};
struct alignas(8) Words2 {
    uint32_t x, y;
};

#if defined(OJ_EMULATE)

// ---- where a thread is ----

inline int thread_index() {
    return emulator::place->thread;
}
inline int block_index() {
    return emulator::place->block;
}
inline int block_count() {
    return emulator::place->n_blocks;
}
inline uint8_t* shared_memory() {
    return emulator::place->shared;
}

// ---- meetings ----

inline void block_sync(OJ_SITE) {
    emulator::meet_block(false, site);
}
inline bool block_any(bool vote, OJ_SITE) {
    return emulator::meet_block(vote, site);
}
inline void warp_sync(OJ_SITE) {
    emulator::meet_warp("warp_sync", [](void* const*) {}, nullptr, site);
}

// Lane i gets the value of lane source(i).
template <class T>
struct Shuffle {
    T value, result;
    int source;
};
template <class T>
T shuffle_from(T value, int source, emulator::Site site) {
    Shuffle<T> mine = {value, value, source & 31};
    emulator::meet_warp(
        "shuffle",
        [](void* const* lanes) {
            for (int i = 0; i < warp_lanes; ++i) {
                auto* lane = static_cast<Shuffle<T>*>(lanes[i]);
                lane->result = static_cast<Shuffle<T>*>(lanes[lane->source])->value;
            }
        },
        &mine, site);
    return mine.result;
}
template <class T>
T shuffle(T value, int lane, OJ_SITE) {
    return shuffle_from(value, lane, site);
}
template <class T>
T shuffle_xor(T value, int mask, OJ_SITE) {
    return shuffle_from(value, thread_index() % warp_lanes ^ mask, site);
}
// Lane i gets lane i - delta's value, or its own where there is none.
template <class T>
T shuffle_up(T value, int delta, OJ_SITE) {
    int lane = thread_index() % warp_lanes;
    return shuffle_from(value, lane < delta ? lane : lane - delta, site);
}

inline uint32_t warp_ballot(bool vote, OJ_SITE) {
    struct Vote {
        bool vote;
        uint32_t result;
    } mine = {vote, 0};
    emulator::meet_warp(
        "warp_ballot",
        [](void* const* lanes) {
            uint32_t result = 0;
            for (int i = 0; i < warp_lanes; ++i)
                result |= static_cast<uint32_t>(static_cast<Vote*>(lanes[i])->vote) << i;
            for (int i = 0; i < warp_lanes; ++i)
                static_cast<Vote*>(lanes[i])->result = result;
        },
        &mine, site);
    return mine.result;
}

// ---- memory between threads ----

template <class T>
T atomic_add(T* at, T value) {
    T before = *at;
    *at = before + value;
    emulator::stored();
    return before;
}
template <class T>
T atomic_max(T* at, T value) {
    T before = *at;
    *at = before < value ? value : before;
    emulator::stored();
    return before;
}
template <class T>
T atomic_min(T* at, T value) {
    T before = *at;
    *at = value < before ? value : before;
    emulator::stored();
    return before;
}
inline uint32_t atomic_or(uint32_t* at, uint32_t value) {
    uint32_t before = *at;
    *at = before | value;
    emulator::stored();
    return before;
}
// Scope of the whole device; what was written before a release is seen after the acquire.
inline uint32_t load_acquire(const uint32_t* at) {
    return *const_cast<const volatile uint32_t*>(at);
}
inline uint32_t load_relaxed(const uint32_t* at) {
    return load_acquire(at);
}
inline void store_release(uint32_t* at, uint32_t value) {
    *at = value;
    emulator::stored();
}
inline void add_release(uint32_t* at, uint32_t value) {
    *at += value;
    emulator::stored();
}
// Makes the relaxed loads before it acquire.
inline void acquire_fence() {}

// One turn of a loop around load_acquire().
inline void spin_pause(OJ_SITE) {
    emulator::spin(site);
}

// The emulator's order is random anyway.
inline void delay(uint32_t) {}

// Aligned vector access; a misaligned one is an error as on the device.
inline Words4 load16(const void* at) {
    emulator::check_aligned(at, 16);
    return *static_cast<const Words4*>(at);
}
inline void store16(void* at, Words4 value) {
    emulator::check_aligned(at, 16);
    *static_cast<Words4*>(at) = value;
}
inline Words2 load8(const void* at) {
    emulator::check_aligned(at, 8);
    return *static_cast<const Words2*>(at);
}
inline uint32_t load4(const void* at) {
    emulator::check_aligned(at, 4);
    return *static_cast<const uint32_t*>(at);
}

// A value that the compiler does not know: what depends on it stays in the loop where it is used.
inline int not_hoisted(int value) {
    return value;
}

// The same pointer, known to point to device or pinned memory, or to shared memory: what the
// compiler does not know it accesses in a slower way, and believes to overlap.
template <class T>
T* in_global(T* at) {
    return at;
}
template <class T>
T* in_shared(T* at) {
    return at;
}

inline uint64_t nanoseconds() {
    return 0;
}
inline int count_bits(uint32_t bits) {
    return __builtin_popcount(bits);
}

#else

OJ_DEVICE int thread_index() {
    const auto index = static_cast<int>(threadIdx.x);
    __builtin_assume(index >= 0 && index < block_threads);  // arithmetic without signs is less code
    return index;
}
OJ_DEVICE int block_index() {
    return static_cast<int>(blockIdx.x);
}
OJ_DEVICE int block_count() {
    return static_cast<int>(gridDim.x);
}
OJ_DEVICE uint8_t* shared_memory() {
    extern __shared__ __align__(1024) uint8_t oj_shared[];
    return oj_shared;
}

OJ_DEVICE void block_sync() {
    __syncthreads();
}
OJ_DEVICE bool block_any(bool vote) {
    return __syncthreads_or(vote) != 0;
}
OJ_DEVICE void warp_sync() {
    __syncwarp();
}

template <class T>
OJ_DEVICE T shuffle(T value, int lane) {
    return __shfl_sync(0xffffffffu, value, lane);
}
template <class T>
OJ_DEVICE T shuffle_xor(T value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <class T>
OJ_DEVICE T shuffle_up(T value, int delta) {
    return __shfl_up_sync(0xffffffffu, value, delta);
}
OJ_DEVICE uint32_t warp_ballot(bool vote) {
    return __ballot_sync(0xffffffffu, vote);
}

template <class T>
OJ_DEVICE T atomic_add(T* at, T value) {
    return atomicAdd(at, value);
}
OJ_DEVICE uint64_t atomic_add(uint64_t* at, uint64_t value) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(at),
                     static_cast<unsigned long long>(value));
}
template <class T>
OJ_DEVICE T atomic_max(T* at, T value) {
    return atomicMax(at, value);
}
template <class T>
OJ_DEVICE T atomic_min(T* at, T value) {
    return atomicMin(at, value);
}
OJ_DEVICE uint32_t atomic_or(uint32_t* at, uint32_t value) {
    return atomicOr(at, value);
}
OJ_DEVICE uint32_t load_acquire(const uint32_t* at) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
OJ_DEVICE uint32_t load_relaxed(const uint32_t* at) {
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
OJ_DEVICE void store_release(uint32_t* at, uint32_t value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
OJ_DEVICE void add_release(uint32_t* at, uint32_t value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
OJ_DEVICE void acquire_fence() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
OJ_DEVICE void spin_pause() {}  // a load of what the others write takes long enough
// About so many times 20 ns.
OJ_DEVICE void delay(uint32_t turns) {
    OJ_UNROLL(1)
    for (uint32_t i = 0; i < turns; ++i)
        __nanosleep(20);
}

OJ_DEVICE Words4 load16(const void* at) {
    uint4 v = *static_cast<const uint4*>(at);
    return {v.x, v.y, v.z, v.w};
}
OJ_DEVICE void store16(void* at, Words4 value) {
    *static_cast<uint4*>(at) = make_uint4(value.x, value.y, value.z, value.w);
}
OJ_DEVICE Words2 load8(const void* at) {
    uint2 v = *static_cast<const uint2*>(at);
    return {v.x, v.y};
}
OJ_DEVICE uint32_t load4(const void* at) {
    return *static_cast<const uint32_t*>(at);
}

OJ_DEVICE int not_hoisted(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

template <class T>
OJ_DEVICE T* in_global(T* at) {
    __builtin_assume(__isGlobal(at));
    return at;
}
template <class T>
OJ_DEVICE T* in_shared(T* at) {
    __builtin_assume(__isShared(at));
    return at;
}

OJ_DEVICE uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
OJ_DEVICE int count_bits(uint32_t bits) {
    return __popc(bits);
}

#endif

// ---- made of the above ----

OJ_DEVICE int lane_index() {  // unsigned arithmetic is less code
    return static_cast<int>(static_cast<uint32_t>(thread_index()) % warp_lanes);
}
OJ_DEVICE int warp_index() {
    return static_cast<int>(static_cast<uint32_t>(thread_index()) / warp_lanes);
}
// By all lanes of the warp: the compiler knows that it is the same in all of them, and so what they
// do alike. Loops over a warp's items are a third less code.
OJ_DEVICE int uniform_warp_index() {
    const auto warp = static_cast<uint32_t>(shuffle(warp_index(), 0));
    return static_cast<int>(warp % block_warps);  // without a sign
}

// a / b of what is not negative: a third less code.
OJ_DEVICE int quotient(int a, int b) {
    return static_cast<int>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b));
}

// All lanes get the sum (of exact types, or where the order is the contract's: halves 16, 8, 4, 2,
// 1, which gives lane_tree()'s bits because a + b = b + a).
template <class T>
OJ_DEVICE T warp_sum(T value) {
    for (int width = warp_lanes / 2; width > 0; width /= 2)
        value = value + shuffle_xor(value, width);
    return value;
}
template <class T>
OJ_DEVICE T warp_max(T value) {
    for (int width = warp_lanes / 2; width > 0; width /= 2) {
        T other = shuffle_xor(value, width);
        value = value < other ? other : value;
    }
    return value;
}
// The same of integers that are not negative, in one instruction.
OJ_DEVICE int warp_largest(int value) {
#if defined(OJ_EMULATE)
    return warp_max(value);
#else
    return static_cast<int>(__reduce_max_sync(0xffffffffu, static_cast<uint32_t>(value)));
#endif
}

// Lane 0's write to shared memory that the warp's lanes have read before and will read.
template <class T>
OJ_DEVICE void keep(T& kept, const T& value) {
    warp_sync();
    if (lane_index() == 0) kept = value;
    warp_sync();
}

// Takes `count` T from a piece of shared memory and moves past them, 16-byte aligned.
template <class T>
OJ_DEVICE T* take_shared(uint8_t*& at, int count) {
    T* taken = reinterpret_cast<T*>(at);
    at += (count * sizeof(T) + 15) / 16 * 16;
    return taken;
}

}  // namespace oj::cuda
