// Counter-based random numbers: every draw is a function of (seed, position, purpose, index), so it
// does not matter who else is served, in which order, or how often a position is tried.
#pragma once

#include <stdint.h>

#include "engine/numerics.h"

#ifdef __CUDACC__
#define OJ_HD __host__ __device__ inline
#else  // inlined always, so that it takes the instruction set of the backend's kernels around it
#define OJ_HD inline __attribute__((always_inline))
#endif

namespace oj {

// Natural logarithm of a positive normal number, about 1e-7 relative, equal bits everywhere.
// (A product that feeds a sum is always an explicit fma, so that no compiler can contract it.)
OJ_HD float log_f32(float x) {
    const uint32_t bits = float_to_bits(x);
    // x = m 2^e with m in [sqrt(1/2), sqrt(2)); 0x3f3504f3 is sqrt(1/2)
    const int32_t e = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
    const float m = bits_to_float(bits - (static_cast<uint32_t>(e) << 23));
    const float z = (m - 1.0f) / (m + 1.0f);
    const float z2 = z * z;
    float p = 2.22222222e-1f;  // log m = 2 (z + z^3/3 + z^5/5 + ...), |z| <= 0.172
    p = fmaf(p, z2, 2.85714286e-1f);
    p = fmaf(p, z2, 4.0e-1f);
    p = fmaf(p, z2, 6.66666667e-1f);
    p = fmaf(p, z2, 2.0f);
    const float n = static_cast<float>(e);
    return fmaf(n, 0.693359375f, fmaf(n, -2.12194440e-4f, p * z));
}

// Separate streams, so that no draw of one position is used twice.
enum class Purpose : uint32_t {
    choice = 0,    // coupled requests: the target's and the draft's common noise
    draft = 1,     // uncoupled: the draft
    accept = 2,    // ... the accept test of a draft
    residual = 3,  // ... the token in place of a rejected draft
    bonus = 4,     // ... the token after the last accepted draft
};

struct RandomBlock {
    uint32_t word[4];
};

// Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
OJ_HD RandomBlock philox(uint64_t seed, uint32_t position, Purpose purpose, uint32_t index) {
    uint32_t c0 = index, c1 = position, c2 = static_cast<uint32_t>(purpose), c3 = 0;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = 0xD2511F53ull * c0;
        const uint64_t p1 = 0xCD9E8D57ull * c2;
        c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
        c1 = static_cast<uint32_t>(p1);
        c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c3 = static_cast<uint32_t>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return RandomBlock{{c0, c1, c2, c3}};
}

// In (0, 1), 32 bits.
OJ_HD double uniform(uint64_t seed, uint32_t position, Purpose purpose) {
    const uint32_t x = philox(seed, position, purpose, 0).word[0];
    return (static_cast<double>(x) + 0.5) * 2.3283064365386963e-10;
}

// No Gumbel draw exceeds this (the largest is -log(2^-33) = 22.87).
constexpr float kMaxGumbel = 23.0f;

// 32 random bits to a standard Gumbel variate -log(-log u), accurate where it is large.
OJ_HD float gumbel(uint32_t x) {
    const float scale = 2.3283064365386963e-10f;              // 2^-32
    const float v = (static_cast<float>(~x) + 0.5f) * scale;  // 1 - u
    float e;                                                  // -log u
    if (v < 0.00390625f) {                                    // v + v^2/2 + v^3/3 + v^4/4
        float p = fmaf(0.25f, v, 0.333333333f);
        p = fmaf(p, v, 0.5f);
        p = fmaf(p, v, 1.0f);
        e = p * v;
    } else {
        e = -log_f32((static_cast<float>(x) + 0.5f) * scale);
    }
    return -log_f32(e);
}

// The Gumbel noise of one (seed, position, purpose) over token ids; one Philox block serves four.
class Noise {
public:
    OJ_HD Noise(uint64_t seed, int32_t position, Purpose purpose)
        : seed_(seed), position_(static_cast<uint32_t>(position)), purpose_(purpose) {}

    OJ_HD float at(int32_t id) {
        const uint32_t index = static_cast<uint32_t>(id) >> 2;
        if (index != index_) {
            block_ = philox(seed_, position_, purpose_, index);
            index_ = index;
        }
        // Selected, not indexed: a device would keep an indexed array in memory.
        const uint32_t low = id & 1 ? block_.word[1] : block_.word[0];
        const uint32_t high = id & 1 ? block_.word[3] : block_.word[2];
        return gumbel(id & 2 ? high : low);
    }

private:
    uint64_t seed_;
    uint32_t position_;
    Purpose purpose_;
    uint32_t index_ = 0xffffffffu;
    RandomBlock block_ = {};
};

}  // namespace oj
