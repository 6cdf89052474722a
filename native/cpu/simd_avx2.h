// The vector operations of the kernels for AVX2 with FMA and F16C.
#pragma once

struct Simd {
    static constexpr int lanes = 8;
    static constexpr int sums = 8;  // integer sums to keep at a time

    using I32 = __m256i;
    using F32 = __m256;
    using U8 = __m256i;
    using Pairs = __m256i;  // two int16 a lane

    static U8 load_codes(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)p); }
    template <int shift>
    static U8 shift_mask(U8 a, int mask) {
        if constexpr (shift > 0) a = _mm256_slli_epi16(a, shift);
        if constexpr (shift < 0) a = _mm256_srli_epi16(a, -shift);
        return _mm256_and_si256(a, _mm256_set1_epi8((char)mask));
    }
    static U8 bit_or(U8 a, U8 b) { return _mm256_or_si256(a, b); }
    static U8 lookup(const uint8_t* table, U8 a) {
        __m128i t = _mm_loadu_si128((const __m128i*)table);
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), a);
    }

    template <int count, int max_code>
    static I32 dot(const U8* codes, const int8_t* x, I32 start) {
        if constexpr (max_code < 64) {
            return dot_small<count, max_code>(codes, x, start);
        } else {
            return dot_bytes<count>(codes, x, start);
        }
    }
    // Pairs of products fit int16; several are added before they are widened.
    template <int count, int max_code>
    static I32 dot_small(const U8* codes, const int8_t* x, I32 start) {
        constexpr int fit = 32767 / (2 * 127 * max_code);
        constexpr int run = fit < count ? fit : count;
        for (int i = 0; i < count; i += run) {
            __m256i pairs = product(codes[i], x + 4 * i);
            for (int j = i + 1; j < i + run && j < count; ++j) {
                pairs = _mm256_add_epi16(pairs, product(codes[j], x + 4 * j));
            }
            start = _mm256_add_epi32(start, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
        return start;
    }
    static __m256i product(U8 codes, const int8_t* x) {
        int32_t four;
        memcpy(&four, x, 4);
        return _mm256_maddubs_epi16(codes, _mm256_set1_epi32(four));
    }
    // Full bytes would saturate int16: widen first.
    template <int count>
    static I32 dot_bytes(const U8* codes, const int8_t* x, I32 start) {
        __m256i zero = _mm256_setzero_si256();
        for (int i = 0; i < count; ++i) {
            int32_t four;
            memcpy(&four, x + 4 * i, 4);
            __m256i wide = _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
            __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi8(codes[i], zero), wide);
            __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi8(codes[i], zero), wide);
            start = _mm256_add_epi32(start, _mm256_hadd_epi32(low, high));
        }
        return start;
    }
    static Pairs load_pairs(const int8_t* p) {
        return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p));
    }
    static I32 dot_pair(I32 sum, Pairs a, const int16_t* x) {
        int32_t two;
        memcpy(&two, x, 4);
        return _mm256_add_epi32(sum, _mm256_madd_epi16(a, _mm256_set1_epi32(two)));
    }

    static I32 set_int(int x) { return _mm256_set1_epi32(x); }
    template <bool is_signed>
    static I32 load_bytes(const uint8_t* p) {
        __m128i bytes = _mm_loadl_epi64((const __m128i*)p);
        return is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
    }
    static I32 multiply_add(I32 sum, I32 a, I32 b) {
        return _mm256_add_epi32(sum, _mm256_mullo_epi32(a, b));
    }
    static I32 add(I32 a, I32 b) { return _mm256_add_epi32(a, b); }
    static F32 to_float(I32 a) { return _mm256_cvtepi32_ps(a); }

    static F32 set(float x) { return _mm256_set1_ps(x); }
    static F32 load(const float* p) { return _mm256_loadu_ps(p); }
    static F32 load_half(const uint16_t* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
    }
    static F32 load_bfloat(const uint16_t* p) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
        return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    }
    static void store(float* p, F32 a) { _mm256_storeu_ps(p, a); }
    static F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
    static F32 sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
    static F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
    static F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
    static F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
    static F32 fms(F32 a, F32 b, F32 c) { return _mm256_fmsub_ps(a, b, c); }
};
