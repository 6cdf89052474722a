// exp and log with the same bits on every machine: only IEEE operations and explicit fused
// multiply-adds, so neither libm nor a compiler's contraction can change a token.
// (A product that feeds a sum is always written as fma; CUDA needs no special flag.)
#pragma once

#include <stdint.h>
#include <string.h>

#include <cmath>

#ifdef __CUDACC__
#define OJ_HD __host__ __device__ inline
#else
#define OJ_HD inline
#endif

namespace oj {

OJ_HD uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

OJ_HD float bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

OJ_HD float negative_infinity() { return bits_float(0xff800000u); }

// e^x for x <= 0, about 1e-7 relative; 0 below -87, and for NaN.
OJ_HD float exp_nonpositive(float x) {
    if (!(x >= -87.0f)) return 0.0f;
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    const float magic = 12582912.0f;
    const float n = fmaf(x, 1.44269504f, magic) - magic;
    float r = fmaf(n, -0.693359375f, x);  // x - n ln 2, in two parts
    r = fmaf(n, 2.12194440e-4f, r);
    float p = 1.98412698e-4f;  // Taylor to 1/7!: |r| <= 0.347 leaves 5e-9
    p = fmaf(p, r, 1.38888889e-3f);
    p = fmaf(p, r, 8.33333333e-3f);
    p = fmaf(p, r, 4.16666667e-2f);
    p = fmaf(p, r, 1.66666667e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return p * bits_float(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}

// Natural logarithm of a positive normal number, about 1e-7 relative.
OJ_HD float log_positive(float x) {
    const uint32_t bits = float_bits(x);
    // x = m 2^e with m in [sqrt(1/2), sqrt(2)); 0x3f3504f3 is sqrt(1/2)
    const int32_t e = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
    const float m = bits_float(bits - (static_cast<uint32_t>(e) << 23));
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

}  // namespace oj
