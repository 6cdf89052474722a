// The vector operations of the kernels for AVX-512 with VNNI.
#pragma once

struct Simd {
    static constexpr int lanes = 16;
    static constexpr int sums = 16;  // integer sums to keep at a time

    using I32 = __m512i;
    using F32 = __m512;
    using U8 = __m512i;
    using Pairs = __m512i;  // two int16 a lane

    static U8 load_codes(const uint8_t* p) { return _mm512_loadu_si512(p); }
    template <int shift>
    static U8 shift_mask(U8 a, int mask) {
        if constexpr (shift > 0) a = _mm512_slli_epi16(a, shift);
        if constexpr (shift < 0) a = _mm512_srli_epi16(a, -shift);
        return _mm512_and_si512(a, _mm512_set1_epi8((char)mask));
    }
    static U8 bit_or(U8 a, U8 b) { return _mm512_or_si512(a, b); }
    static U8 lookup(const uint8_t* table, U8 a) {
        __m128i t = _mm_loadu_si128((const __m128i*)table);
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), a);
    }

    template <int count, int max_code>
    static I32 dot(const U8* codes, const int8_t* x, I32 start) {
        for (int i = 0; i < count; ++i) {
            int32_t four;
            memcpy(&four, x + 4 * i, 4);
            start = _mm512_dpbusd_epi32(start, codes[i], _mm512_set1_epi32(four));
        }
        return start;
    }
    static Pairs load_pairs(const int8_t* p) {
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)p));
    }
    static I32 dot_pair(I32 sum, Pairs a, const int16_t* x) {
        int32_t two;
        memcpy(&two, x, 4);
        return _mm512_dpwssd_epi32(sum, a, _mm512_set1_epi32(two));
    }

    static I32 set_int(int x) { return _mm512_set1_epi32(x); }
    template <bool is_signed>
    static I32 load_bytes(const uint8_t* p) {
        __m128i bytes = _mm_loadu_si128((const __m128i*)p);
        return is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    }
    static I32 multiply_add(I32 sum, I32 a, I32 b) {
        return _mm512_add_epi32(sum, _mm512_mullo_epi32(a, b));
    }
    static I32 add(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
    static F32 to_float(I32 a) { return _mm512_cvtepi32_ps(a); }

    static F32 set(float x) { return _mm512_set1_ps(x); }
    static F32 load(const float* p) { return _mm512_loadu_ps(p); }
    static F32 load_half(const uint16_t* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
    }
    static F32 load_bfloat(const uint16_t* p) {
        __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
        return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
    }
    static void store(float* p, F32 a) { _mm512_storeu_ps(p, a); }
    static F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
    static F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
    static F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
    static F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
    static F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
    static F32 fms(F32 a, F32 b, F32 c) { return _mm512_fmsub_ps(a, b, c); }
};
