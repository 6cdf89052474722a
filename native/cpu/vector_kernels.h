// Norms, quantisation, gates and the short convolution of one row. Included like gemm_kernels.h.
#pragma once

// Compared as integers: magnitudes order the same way and compilers vectorise it.
inline float largest_magnitude(const float* x, int n) {
    int32_t largest = 0;
    for (int i = 0; i < n; ++i) {
        int32_t magnitude = (int32_t)(float_to_bits(x[i]) & 0x7fffffffu);
        largest = magnitude > largest ? magnitude : largest;
    }
    return bits_to_float((uint32_t)largest);
}

inline float quantize_group(const float* x, int n, int8_t* codes) {
    float largest = largest_magnitude(x, n);
    float factor = quantize_factor(largest);
    for (int i = 0; i < n; ++i)
        codes[i] = (int8_t)quantize_code(x[i], factor);
    return quantize_scale(largest);
}

inline float quantize16_group(const float* x, int n, int16_t* codes) {
    float largest = largest_magnitude(x, n);
    float factor = quantize16_factor(largest);
    for (int i = 0; i < n; ++i)
        codes[i] = (int16_t)quantize_code(x[i], factor);
    return quantize16_scale(largest);
}

inline int16_t sum_codes(const int8_t* codes, int n) {
    int sum = 0;
    for (int i = 0; i < n; ++i)
        sum += codes[i];
    return (int16_t)sum;
}

void quantize256(const float* x, int n, int8_t* codes, float* scales, int16_t* sums16,
                 int16_t* sums32) {
    for (int i = 0; i < n; i += super_group) {
        scales[i / super_group] = quantize_group(x + i, super_group, codes + i);
    }
    for (int i = 0; i < n; i += 16)
        sums16[i / 16] = sum_codes(codes + i, 16);
    for (int i = 0; i < n / 32; ++i)
        sums32[i] = (int16_t)(sums16[2 * i] + sums16[2 * i + 1]);
}

void quantize32(const float* x, int n, int8_t* codes, float* scales, int16_t* sums) {
    for (int i = 0; i < n; i += small_group) {
        scales[i / small_group] = quantize_group(x + i, small_group, codes + i);
        sums[i / small_group] = sum_codes(codes + i, small_group);
    }
}

void quantize16(const float* x, int n, int16_t* codes, float* scales) {
    for (int i = 0; i < n; i += kv_group)
        scales[i / kv_group] = quantize16_group(x + i, kv_group, codes + i);
}

inline float sum_squares(const float* x, int n) {
    Simd::F32 acc[sum_registers];
    for (int i = 0; i < sum_registers; ++i)
        acc[i] = Simd::set(0.0f);
    for (int k = 0; k < n; k += sum_lanes) {
        for (int i = 0; i < sum_registers; ++i) {
            Simd::F32 v = Simd::load(x + k + i * Simd::lanes);
            acc[i] = Simd::fma(v, v, acc[i]);
        }
    }
    return tree(acc);
}

void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
    float scale = inverse_sqrt(sum_squares(x, n) / (float)n + eps);
    for (int i = 0; i < n; ++i)
        out[i] = x[i] * scale * weight[i];
}

void l2_norm(float* x, int n, float eps, float scale) {
    float factor = inverse_sqrt(sum_squares(x, n) + eps) * scale;
    for (int i = 0; i < n; ++i)
        x[i] = x[i] * factor;
}

void silu_mul(const float* gate, const float* up, int n, float* out) {
    for (int i = 0; i < n; ++i)
        out[i] = silu_f32(gate[i]) * up[i];
}

void sigmoid_mul(const float* x, const float* gate, int n, float* out) {
    for (int i = 0; i < n; ++i)
        out[i] = x[i] * sigmoid_f32(gate[i]);
}

void conv_silu(const float* const* in, const float* weight, int weight_stride, int taps, int n,
               float* out) {
    for (int i = 0; i < n; ++i)
        out[i] = weight[i] * in[0][i];
    for (int t = 1; t < taps; ++t) {
        const float* w = weight + (int64_t)t * weight_stride;
        for (int i = 0; i < n; ++i)
            out[i] = fmaf(w[i], in[t][i], out[i]);
    }
    for (int i = 0; i < n; ++i)
        out[i] = silu_f32(out[i]);
}
