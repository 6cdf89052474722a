// The instructions that have no C++ name: integer matrix products, dot products, asynchronous
// copies, conversions. As in platform.h, both sides of each.
#pragma once

#include "cuda/platform.h"

namespace oj::cuda {

// Fragments, for lane = 4 * g + t (g = 0..7, t = 0..3), four bytes a register, of
// D (16 x 8, int32) += A (16 x k, int8) * B (k x 8, int8):
//     k = 32: a[0] row g, columns 4t..; a[1] row g + 8; a[2], a[3] the same rows, columns 16 + 4t..
//             b[0] column g, k 4t..; b[1] k 16 + 4t..
//     k = 16: a[0] row g, columns 4t..; a[1] row g + 8;  b column g, k 4t..
//     d[0], d[1] row g, columns 2t, 2t + 1; d[2], d[3] row g + 8
// mma_* add to d; product_* set d, starting from a constant.

#if defined(OJ_EMULATE)

namespace emulator {

template <class A>
struct Mma {
    int32_t* d;
    uint32_t a[4];
    uint32_t b[2];
};

// All lanes' fragments as matrices, multiplied, and taken apart again.
template <class A, int k>
void apply_mma(void* const* lanes) {
    A a[16][k];
    int8_t b[8][k];
    constexpr int halves = k / 16;
    for (int i = 0; i < warp_lanes; ++i) {
        auto* lane = static_cast<Mma<A>*>(lanes[i]);
        int g = i / 4, t = i % 4;
        for (int half = 0; half < halves; ++half) {
            memcpy(&a[g][16 * half + 4 * t], &lane->a[2 * half], 4);
            memcpy(&a[g + 8][16 * half + 4 * t], &lane->a[2 * half + 1], 4);
            memcpy(&b[g][16 * half + 4 * t], &lane->b[half], 4);
        }
    }
    for (int i = 0; i < warp_lanes; ++i) {
        int32_t* d = static_cast<Mma<A>*>(lanes[i])->d;
        for (int j = 0; j < 4; ++j) {
            const A* row = a[i / 4 + j / 2 * 8];
            const int8_t* column = b[i % 4 * 2 + j % 2];
            int32_t sum = 0;
            for (int at = 0; at < k; ++at)
                sum += row[at] * column[at];
            d[j] += sum;
        }
    }
}

}  // namespace emulator

inline void mma_s8_k32(int32_t d[4], const uint32_t a[4], const uint32_t b[2], OJ_SITE) {
    emulator::Mma<int8_t> mine = {d, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    emulator::meet_warp("mma_s8_k32", emulator::apply_mma<int8_t, 32>, &mine, site);
}
inline void mma_u8_k32(int32_t d[4], const uint32_t a[4], const uint32_t b[2], OJ_SITE) {
    emulator::Mma<uint8_t> mine = {d, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    emulator::meet_warp("mma_u8_k32", emulator::apply_mma<uint8_t, 32>, &mine, site);
}
inline void mma_s8_k16(int32_t d[4], const uint32_t a[2], uint32_t b, OJ_SITE) {
    emulator::Mma<int8_t> mine = {d, {a[0], a[1], 0, 0}, {b, 0}};
    emulator::meet_warp("mma_s8_k16", emulator::apply_mma<int8_t, 16>, &mine, site);
}
inline void mma_u8_k16(int32_t d[4], const uint32_t a[2], uint32_t b, OJ_SITE) {
    emulator::Mma<uint8_t> mine = {d, {a[0], a[1], 0, 0}, {b, 0}};
    emulator::meet_warp("mma_u8_k16", emulator::apply_mma<uint8_t, 16>, &mine, site);
}

template <bool is_signed>
void product_k32(int32_t d[4], const uint32_t a[4], const uint32_t b[2], int32_t start, OJ_SITE) {
    for (int i = 0; i < 4; ++i)
        d[i] = start;
    is_signed ? mma_s8_k32(d, a, b, site) : mma_u8_k32(d, a, b, site);
}
template <bool is_signed>
void product_k16(int32_t d[4], const uint32_t a[2], uint32_t b, int32_t start, OJ_SITE) {
    for (int i = 0; i < 4; ++i)
        d[i] = start;
    is_signed ? mma_s8_k16(d, a, b, site) : mma_u8_k16(d, a, b, site);
}

// c + the signed bytes of a times those of b.
inline int32_t dot4(uint32_t a, uint32_t b, int32_t c) {
    for (int i = 0; i < 4; ++i)
        c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
    return c;
}

// Bytes of the eight of (a, b), chosen by the nibbles of `selector`.
inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i)
        result |= static_cast<uint32_t>(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
    return result;
}

// Byte i (0..3) of a word, with its sign or as it is.
template <bool is_signed>
int32_t byte_of(uint32_t word, int i) {
    auto byte = static_cast<uint8_t>(word >> (8 * i));
    return is_signed ? static_cast<int8_t>(byte) : byte;
}

// Loads of device memory (not shared), in program order with the copies and waits below: what is
// loaded before a wait is under way during it.
inline Words4 load16_global(const void* at) {
    return load16(at);
}
inline Words2 load8_global(const void* at) {
    return load8(at);
}
inline uint32_t load4_global(const void* at) {
    return load4(at);
}

// Asynchronous copy of 16 bytes to shared memory, past L1, of what is read once a step: it gives
// way to other data in L2, so that the kernel's code and the activations stay there.
inline void copy_async(void* shared, const void* global, OJ_SITE) {
    emulator::copy_async(shared, global, site);
}
// The same for what the next step reads again.
inline void copy_async_kept(void* shared, const void* global, OJ_SITE) {
    emulator::copy_async(shared, global, site);
}
inline void copy_commit() {
    emulator::commit_copies();
}
// Waits until at most so many of this thread's newest committed groups are under way.
template <int newest_left>
void copy_wait() {
    emulator::wait_copies(newest_left);
}

// Launches that overlap: the next kernel may start from here on; the one before has ended, and its
// stores are seen.
inline void launch_next_kernel() {}
inline void wait_for_kernel_before() {}

// Asks for a cache line of memory that will be read.
inline void prefetch_line(const void*) {}

inline float load_half(uint16_t bits) {
    return half_to_float(bits);
}

#else

OJ_DEVICE void mma_s8_k32(int32_t d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
OJ_DEVICE void mma_u8_k32(int32_t d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
OJ_DEVICE void mma_s8_k16(int32_t d[4], const uint32_t a[2], uint32_t b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}
OJ_DEVICE void mma_u8_k16(int32_t d[4], const uint32_t a[2], uint32_t b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

template <bool is_signed>
OJ_DEVICE void product_k32(int32_t d[4], const uint32_t a[4], const uint32_t b[2], int32_t start) {
    if (is_signed) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(start));
    } else {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%10,%10,%10,%10};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(start));
    }
}
template <bool is_signed>
OJ_DEVICE void product_k16(int32_t d[4], const uint32_t a[2], uint32_t b, int32_t start) {
    if (is_signed) {
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
            "{%7,%7,%7,%7};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b), "r"(start));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
            "{%7,%7,%7,%7};"
            : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(b), "r"(start));
    }
}

OJ_DEVICE int32_t dot4(uint32_t a, uint32_t b, int32_t c) {
    return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}
OJ_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
    return __byte_perm(a, b, selector);
}

// prmt takes the sign of byte i for a selector with bit 3, 0 for a byte of the second word.
template <bool is_signed>
OJ_DEVICE int32_t byte_of(uint32_t word, int i) {
    int32_t value;
    const int others = is_signed ? 0x8880 | i * 0x1110 : 0x4440;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(value) : "r"(word), "r"(others | i));
    return value;
}

OJ_DEVICE Words4 load16_global(const void* at) {
    Words4 v;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(at)));
    return v;
}
OJ_DEVICE Words2 load8_global(const void* at) {
    Words2 v;
    asm volatile("ld.global.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(__cvta_generic_to_global(at)));
    return v;
}
OJ_DEVICE uint32_t load4_global(const void* at) {
    uint32_t v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(at)));
    return v;
}

OJ_DEVICE void copy_async(void* shared, const void* global) {
    auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    // Weights give way in L2 to the kernel's code and the activations (6 % of a step). Only from
    // compilers whose code has run: nvcc 13.0 encodes these copies as illegal instructions in some
    // programs, for sm_120 in this one (a descriptor in an odd register, `desc[UR1]`).
#if __CUDA_ARCH__ == 900 && __CUDACC_VER_MAJOR__ == 13 && __CUDACC_VER_MINOR__ == 0
    constexpr uint64_t evict_first = 0x12f0000000000000;  // what createpolicy makes of it
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(global), "l"(evict_first)
                 : "memory");
#else
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global)
                 : "memory");
#endif
}
// The same for what the next step reads again.
OJ_DEVICE void copy_async_kept(void* shared, const void* global) {
    auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global)
                 : "memory");
}
OJ_DEVICE void launch_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
OJ_DEVICE void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
OJ_DEVICE void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int newest_left>
OJ_DEVICE void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(newest_left) : "memory");
}

OJ_DEVICE void prefetch_line(const void* at) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

OJ_DEVICE float load_half(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

#endif

}  // namespace oj::cuda
