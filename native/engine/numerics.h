// The numeric contract: what every backend computes, at every width, on every instruction set.
//
// One row's result depends on that row, the weights and its own conversation only. Never on the
// other rows of the step, the chunk size, the number of threads or the instruction set.
//
// Matrix products (y = W x, one row of W at a time)
//   * Activations of quantised weights are int8 with one float scale per group: 256 columns for
//     Q4_K, Q5_K, Q6_K and IQ4_XS, 32 columns for Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and IQ4_NL.
//     quantize_scale() and quantize_code() below define them.
//   * Inside a group everything is an exact integer: isum = sum(scale_s * sum(q * a)) over the
//     weight's sub-blocks and imin = sum(min_s * sum(a)) fit 32 bits, so any tiling is equal.
//   * Per group the float chain is
//         p = fma(d, float(isum), -(dmin * float(imin)))   Q4_K, Q5_K
//         p = fma(d, float(isum), m * float(asum))         Q4_1, Q5_1 (asum = sum(a))
//         p = d * float(isum)                              all other types
//         acc = fma(activation_scale, p, acc)
//     over ascending groups of one K segment (k_segment columns) from acc = 0; the segments' sums
//     are added to 0 in ascending order. The segment edges depend on the matrix's columns only.
//   * F32, F16 and BF16 weights keep float activations: inside a segment 32 partial sums, lane
//     k % 32 by fma over ascending k, then lane_tree(); segments as above.
//
// Sums of squares (RMSNorm, L2 norm): 32 partial sums by fma, then lane_tree(); no segments.
//
// DeltaNet, per V head and column v of the state S[k][v], token by token:
//     s = S[k][v] * decay;  m_j = sum over k % 4 == j of fma(s, key[k], m_j), ascending;
//     m = (m_0 + m_1) + (m_2 + m_3);  delta = beta * (value[v] - m);
//     S[k][v] = fma(key[k], delta, s);  o likewise from S[k][v] * query[k]
//   with query already scaled by 1 / sqrt(head size). Prefill, decode, drafts and replay all do
//   this.
//
// Attention: splits of kv_split absolute positions, each from a fresh (max, sum, out); inside a
// split, tiles of kv_page positions ascending with online softmax (p_j = exp(s_j - max), summed by
// lanes i and i + 32, then lane_tree()); splits are folded left to right. A tile of which a row
// sees nothing leaves that row's (max, sum, out) as they are.
// K and V are read only after the KV codec's rounding, the row's own included. What a codec stores
// is finite: a position that a row does not see has weight 0, and 0 * infinity would reach that row
// or not, by the rows it shares a step with.
//   * q8_0: integers inside a group of kv_group head dimensions. The query (after norm, rotation
//     and 1 / sqrt(head size)) becomes code16 with one scale sq per group, once. Over ascending
//     groups, with the key's codes and stored scale kd,
//         isum = sum over the group of code16 * key;  s = fma(sq, kd * float(isum), s)
//     Per tile and group of dimensions, with the values' codes and stored scales vd, the weights
//     w_j = p_j * vd_j (0 where the row does not see) become code16 with one scale sw:
//         isum = sum over the tile of code16_j * value_j;  out = fma(sw, float(isum), out * keep)
//   * f16, f32: s = fma(q, key, s) from 0 over the group, then added to the score, group by group;
//     out = fma(p_j, value_j, out) over ascending positions, after out * keep.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define OJ_NUMERIC static __host__ __device__ __forceinline__
#else
#define OJ_NUMERIC static inline __attribute__((always_inline))
#endif

namespace oj {

constexpr int k_segment = 2048;   // columns of one K segment of every matrix product
constexpr int sum_lanes = 32;     // partial sums of float products and of sums of squares
constexpr int super_group = 256;  // activations of one scale, for 256-element block types
constexpr int small_group = 32;   // activations of one scale, for 32-element block types
constexpr int kv_page = 64;       // positions of one KV page and of one attention tile
constexpr int kv_split = 256;     // positions of one attention split
constexpr int kv_group = 32;      // head dimensions of one KV scale and of one score partial

OJ_NUMERIC float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

OJ_NUMERIC uint32_t float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// The fixed reduction of 32 partial sums: halves are added until one is left.
OJ_NUMERIC float lane_tree(float* lanes) {
    for (int width = sum_lanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i)
            lanes[i] = lanes[i] + lanes[i + width];
    }
    return lanes[0];
}

// ---- storage formats ----

OJ_NUMERIC float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u)
        return bits_to_float(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    // Subnormal halves become exact through a multiplication; normal ones are rebiased by it too.
    float value = bits_to_float(magnitude << 13) * bits_to_float(0x77800000u);  // 2^112
    return bits_to_float(float_to_bits(value) | sign);
}

// Round to nearest even, as the hardware's conversions do.
OJ_NUMERIC uint16_t float_to_half(float value) {
    uint32_t bits = float_to_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (bits >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // rounds to infinity
    if (bits < 0x38800000u) {  // subnormal half: adding 0.5 rounds at 2^-24
        float rounded = bits_to_float(bits) + 0.5f;
        return (uint16_t)(sign | (float_to_bits(rounded) - 0x3f000000u));
    }
    bits += 0xfffu + ((bits >> 13) & 1u);
    return (uint16_t)(sign | ((bits - 0x38000000u) >> 13));
}

OJ_NUMERIC float bfloat_to_float(uint16_t value) {
    return bits_to_float((uint32_t)value << 16);
}

// ---- activations ----

// Largest magnitude of a group -> its scale, and the factor that turns values into codes.
// A group too small to scale is all zeros.
OJ_NUMERIC float quantize_scale(float largest) {
    return largest > 1e-30f ? largest / 127.0f : 0.0f;
}

OJ_NUMERIC float quantize_factor(float largest) {
    return largest > 1e-30f ? 127.0f / largest : 0.0f;
}

// Round to nearest even by the magic addition; |value * factor| is below 2^22.
OJ_NUMERIC int quantize_code(float value, float factor) {
    float shifted = value * factor + 12582912.0f;
    return (int)(float_to_bits(shifted) & 0x7fffffu) - 0x400000;
}

// Queries and attention weights over q8_0 pages: 15-bit codes, |code16| <= 127 * 128, made by
// quantize_code() with this factor.
constexpr float largest_code16 = 16256.0f;

OJ_NUMERIC float quantize16_scale(float largest) {
    return largest > 1e-30f ? largest / largest_code16 : 0.0f;
}

OJ_NUMERIC float quantize16_factor(float largest) {
    return largest > 1e-30f ? largest_code16 / largest : 0.0f;
}

// code16 = 128 * high + low for int8 products: high is -127..127, low -64..63.
OJ_NUMERIC int code16_high(int code) {
    return (code + 64) >> 7;
}

OJ_NUMERIC int code16_low(int code) {
    return code - 128 * code16_high(code);
}

// ---- KV codecs ----

constexpr float half_max = 65504.0f;

// What is beyond a codec's range, infinities included, becomes the end of the range (NaN: its lower
// end), so that no stored key or value is anything but finite.
OJ_NUMERIC float kv_saturate(float value, float limit) {
    return value > -limit ? (value < limit ? value : limit) : -limit;
}

OJ_NUMERIC uint16_t kv_half(float value) {
    return float_to_half(kv_saturate(value, half_max));
}

OJ_NUMERIC float kv_float(float value) {
    return kv_saturate(value, 3.40282347e38f);
}

// q8_0: the scale of kv_group dimensions as half bits, and the codes under that rounded scale.
OJ_NUMERIC uint16_t kv_scale(float largest) {
    return kv_half(largest / 127.0f);
}

OJ_NUMERIC float kv_factor(uint16_t scale) {
    float d = half_to_float(scale);
    return d > 0.0f ? 1.0f / d : 0.0f;
}

OJ_NUMERIC int kv_code(float value, float factor) {
    float scaled = value * factor;
    scaled = scaled > 127.0f ? 127.0f : scaled;
    scaled = scaled < -127.0f ? -127.0f : scaled;
    return quantize_code(scaled, 1.0f);
}

// ---- elementary functions: about one unit in the last place, equal bits everywhere ----

OJ_NUMERIC float exp_f32(float x) {
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = fmaf(x, 1.44269504f, 12582912.0f);
    float n = shifted - 12582912.0f;
    int exponent = (int)(float_to_bits(shifted) & 0x7fffffu) - 0x400000;
    float r = fmaf(n, -0.693145752f, x);  // ln 2 in two parts; the first is exact times n
    r = fmaf(n, -1.42860677e-6f, r);
    float p = 1.98412698e-4f;
    p = fmaf(p, r, 1.38888889e-3f);
    p = fmaf(p, r, 8.33333333e-3f);
    p = fmaf(p, r, 4.16666667e-2f);
    p = fmaf(p, r, 1.66666667e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(r * r, p, r) + 1.0f;
    // Two factors, so that the ends of the range become infinity, subnormals and zero.
    int half = exponent >> 1;
    float low = bits_to_float((uint32_t)(half + 127) << 23);
    float high = bits_to_float((uint32_t)(exponent - half + 127) << 23);
    return p * low * high;
}

// log(1 + e) for e >= 0.
OJ_NUMERIC float log1p_f32(float e) {
    float u = 1.0f + e;
    float lost = (e - (u - 1.0f)) / u;  // what the addition rounded away
    uint32_t bits = float_to_bits(u);
    int exponent = (int)((bits - 0x3f3504f3u) >> 23);  // mantissa in [sqrt(1/2), sqrt(2))
    float mantissa = bits_to_float(bits - ((uint32_t)exponent << 23));
    float f = mantissa - 1.0f;
    float s = f / (2.0f + f);
    float s2 = s * s;
    float p = 2.0f / 11.0f;
    p = fmaf(p, s2, 2.0f / 9.0f);
    p = fmaf(p, s2, 2.0f / 7.0f);
    p = fmaf(p, s2, 2.0f / 5.0f);
    p = fmaf(p, s2, 2.0f / 3.0f);
    p = fmaf(p, s2, 2.0f);
    float n = (float)exponent;
    return fmaf(n, 0.693145752f, fmaf(s, p, fmaf(n, 1.42860677e-6f, lost)));
}

OJ_NUMERIC float sigmoid_f32(float x) {
    return 1.0f / (1.0f + exp_f32(-x));
}

OJ_NUMERIC float silu_f32(float x) {
    return x / (1.0f + exp_f32(-x));
}

OJ_NUMERIC float softplus_f32(float x) {
    return x > 20.0f ? x : log1p_f32(exp_f32(x));
}

// 1 / sqrt with IEEE square root and division (never an approximate instruction).
OJ_NUMERIC float inverse_sqrt(float x) {
    return 1.0f / sqrtf(x);
}

struct SinCos {
    float sine, cosine;
};

// Rotation angle position * frequency in double, so that position 262,143 is as exact as 0.
OJ_NUMERIC SinCos rope_rotation(int position, double frequency) {
    double angle = (double)position * frequency;
    double quarter = floor(fma(angle, 0.63661977236758134308, 0.5));  // 2 / pi
    double r = fma(quarter, -1.57079632679489655800, angle);
    r = fma(quarter, -6.12323399573676603587e-17, r);
    double r2 = r * r;
    // Taylor series: |r| <= pi / 4, so the first term left out is below 1e-16.
    double s = -1.0 / 1307674368000.0;
    s = fma(s, r2, 1.0 / 6227020800.0);
    s = fma(s, r2, -1.0 / 39916800.0);
    s = fma(s, r2, 1.0 / 362880.0);
    s = fma(s, r2, -1.0 / 5040.0);
    s = fma(s, r2, 1.0 / 120.0);
    s = fma(s, r2, -1.0 / 6.0);
    s = fma(s * r2, r, r);
    double c = 1.0 / 20922789888000.0;
    c = fma(c, r2, -1.0 / 87178291200.0);
    c = fma(c, r2, 1.0 / 479001600.0);
    c = fma(c, r2, -1.0 / 3628800.0);
    c = fma(c, r2, 1.0 / 40320.0);
    c = fma(c, r2, -1.0 / 720.0);
    c = fma(c, r2, 1.0 / 24.0);
    c = fma(c, r2, -0.5);
    c = fma(c, r2, 1.0);
    int turn = (int)((long long)quarter & 3);
    double sine = (turn & 1) ? c : s;
    double cosine = (turn & 1) ? s : c;
    SinCos result;
    result.sine = (float)((turn & 2) ? -sine : sine);
    result.cosine = (float)((turn == 1 || turn == 2) ? -cosine : cosine);
    return result;
}

}  // namespace oj
