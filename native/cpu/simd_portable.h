// The vector operations of the kernels in plain C++: the definition the other two must equal.
#pragma once

struct Simd {
    static constexpr int lanes = 16;
    static constexpr int sums = 8;  // integer sums to keep at a time

    struct I32 {
        int32_t v[lanes];
    };
    struct F32 {
        float v[lanes];
    };
    struct U8 {
        uint8_t v[4 * lanes];
    };
    struct Pairs {
        int16_t v[2 * lanes];
    };

    static U8 load_codes(const uint8_t* p) {
        U8 r;
        memcpy(r.v, p, sizeof r.v);
        return r;
    }
    template <int shift>  // left when positive, right when negative; then masked
    static U8 shift_mask(U8 a, int mask) {
        for (uint8_t& x : a.v)
            x = (uint8_t)((shift >= 0 ? x << shift : x >> -shift) & mask);
        return a;
    }
    static U8 bit_or(U8 a, U8 b) {
        for (int i = 0; i < 4 * lanes; ++i)
            a.v[i] |= b.v[i];
        return a;
    }
    static U8 lookup(const uint8_t* table, U8 a) {
        for (uint8_t& x : a.v)
            x = table[x];
        return a;
    }

    // start + sum over `count` steps of codes[i] (4 unsigned bytes a lane) . x[4 i ..] (4 signed)
    template <int count, int max_code>
    static I32 dot(const U8* codes, const int8_t* x, I32 start) {
        for (int i = 0; i < count; ++i) {
            for (int lane = 0; lane < lanes; ++lane) {
                for (int k = 0; k < 4; ++k)
                    start.v[lane] += codes[i].v[4 * lane + k] * x[4 * i + k];
            }
        }
        return start;
    }
    // Two signed bytes a lane.
    static Pairs load_pairs(const int8_t* p) {
        Pairs r;
        for (int i = 0; i < 2 * lanes; ++i)
            r.v[i] = p[i];
        return r;
    }
    // sum + a lane's two values times x[0] and x[1]
    static I32 dot_pair(I32 sum, Pairs a, const int16_t* x) {
        for (int i = 0; i < lanes; ++i)
            sum.v[i] += a.v[2 * i] * x[0] + a.v[2 * i + 1] * x[1];
        return sum;
    }

    static I32 set_int(int x) {
        I32 r;
        for (int32_t& y : r.v)
            y = x;
        return r;
    }
    template <bool is_signed>
    static I32 load_bytes(const uint8_t* p) {
        I32 r;
        for (int i = 0; i < lanes; ++i)
            r.v[i] = is_signed ? (int8_t)p[i] : p[i];
        return r;
    }
    static I32 multiply_add(I32 sum, I32 a, I32 b) {
        for (int i = 0; i < lanes; ++i)
            sum.v[i] += a.v[i] * b.v[i];
        return sum;
    }
    static I32 add(I32 a, I32 b) {
        for (int i = 0; i < lanes; ++i)
            a.v[i] += b.v[i];
        return a;
    }
    static F32 to_float(I32 a) {
        F32 r;
        for (int i = 0; i < lanes; ++i)
            r.v[i] = (float)a.v[i];
        return r;
    }

    static F32 set(float x) {
        F32 r;
        for (float& y : r.v)
            y = x;
        return r;
    }
    static F32 load(const float* p) {
        F32 r;
        memcpy(r.v, p, sizeof r.v);
        return r;
    }
    static F32 load_half(const uint16_t* p) {
        F32 r;
        for (int i = 0; i < lanes; ++i)
            r.v[i] = half_to_float(p[i]);
        return r;
    }
    static F32 load_bfloat(const uint16_t* p) {
        F32 r;
        for (int i = 0; i < lanes; ++i)
            r.v[i] = bfloat_to_float(p[i]);
        return r;
    }
    static void store(float* p, F32 a) { memcpy(p, a.v, sizeof a.v); }
    static F32 add(F32 a, F32 b) {
        for (int i = 0; i < lanes; ++i)
            a.v[i] += b.v[i];
        return a;
    }
    static F32 sub(F32 a, F32 b) {
        for (int i = 0; i < lanes; ++i)
            a.v[i] -= b.v[i];
        return a;
    }
    static F32 max(F32 a, F32 b) {
        for (int i = 0; i < lanes; ++i)
            a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
        return a;
    }
    static F32 mul(F32 a, F32 b) {
        for (int i = 0; i < lanes; ++i)
            a.v[i] *= b.v[i];
        return a;
    }
    static F32 fma(F32 a, F32 b, F32 c) {
        for (int i = 0; i < lanes; ++i)
            c.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
        return c;
    }
    // a * b - c
    static F32 fms(F32 a, F32 b, F32 c) {
        for (int i = 0; i < lanes; ++i)
            c.v[i] = fmaf(a.v[i], b.v[i], -c.v[i]);
        return c;
    }
};
