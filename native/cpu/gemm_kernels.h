// Products of one weight tile with a batch of activation rows, by the contract of
// engine/numerics.h. Included by kernels_*.cpp inside their anonymous namespace, after `Simd`.
#pragma once

constexpr int parts = tile_rows / Simd::lanes;  // registers of one value per weight row
constexpr int step_bytes = 4 * Simd::lanes;     // of one part

alignas(16) constexpr uint8_t iq4_codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                               129, 141, 153, 166, 181, 197, 217, 241};

// The codes of a chunk for one part: eight registers of 4 columns.
template <const TileFormat& format>
inline void load_chunk(const uint8_t* codes, const uint8_t* high, Simd::U8* out) {
    if constexpr (format.code_bits == 8) {
        for (int i = 0; i < steps; ++i)
            out[i] = Simd::load_codes(codes + 64 * i);
        return;
    }
    for (int i = 0; i < steps / 2; ++i) {
        Simd::U8 both = Simd::load_codes(codes + 64 * i);
        out[2 * i] = Simd::shift_mask<0>(both, 15);
        out[2 * i + 1] = Simd::shift_mask<-4>(both, 15);
    }
    if constexpr (format.lookup) {
        for (int i = 0; i < steps; ++i)
            out[i] = Simd::lookup(iq4_codes, out[i]);
    }
    if constexpr (format.high_bits == 1) {
        Simd::U8 bits = Simd::load_codes(high);
        out[0] = Simd::bit_or(out[0], Simd::shift_mask<4>(bits, 16));
        out[1] = Simd::bit_or(out[1], Simd::shift_mask<3>(bits, 16));
        out[2] = Simd::bit_or(out[2], Simd::shift_mask<2>(bits, 16));
        out[3] = Simd::bit_or(out[3], Simd::shift_mask<1>(bits, 16));
        out[4] = Simd::bit_or(out[4], Simd::shift_mask<0>(bits, 16));
        out[5] = Simd::bit_or(out[5], Simd::shift_mask<-1>(bits, 16));
        out[6] = Simd::bit_or(out[6], Simd::shift_mask<-2>(bits, 16));
        out[7] = Simd::bit_or(out[7], Simd::shift_mask<-3>(bits, 16));
    }
    if constexpr (format.high_bits == 2) {
        for (int half = 0; half < 2; ++half) {
            Simd::U8 bits = Simd::load_codes(high + 64 * half);
            Simd::U8* o = out + 4 * half;
            o[0] = Simd::bit_or(o[0], Simd::shift_mask<4>(bits, 48));
            o[1] = Simd::bit_or(o[1], Simd::shift_mask<2>(bits, 48));
            o[2] = Simd::bit_or(o[2], Simd::shift_mask<0>(bits, 48));
            o[3] = Simd::bit_or(o[3], Simd::shift_mask<-2>(bits, 48));
        }
    }
}

template <const TileFormat& format>
constexpr int max_code() {
    if (format.code_bits == 8 || format.lookup) return 255;
    return (16 << format.high_bits) - 1;
}

// Weights come from memory once, in order: asks for what is read `prefetch_bytes` from now. Without
// it the reading and the arithmetic of several rows take turns instead of overlapping.
constexpr int prefetch_bytes = 4096;

inline void prefetch(const uint8_t* from, int bytes) {
    for (int i = 0; i < bytes; i += 64)
        __builtin_prefetch(from + prefetch_bytes + i);
}

// A block of a super-group type: integer sums over 256 columns, then one float step.
template <const TileFormat& format, int rows>
inline void block256(const uint8_t* block, int part, const ActivationView& x, int first, int group,
                     Simd::F32* acc) {
    constexpr int n = block_chunks;
    constexpr int subs = chunk_columns / format.sub;  // of a chunk
    constexpr int count = steps / subs;               // steps of a sub-block
    Simd::I32 sum[rows];
    for (int r = 0; r < rows; ++r)
        sum[r] = Simd::set_int(0);
    constexpr int chunk_bytes = (int)block_bytes(format, n) / n;
    for (int c = 0; c < n; ++c) {
        Simd::U8 codes[steps];
        prefetch(block + c * chunk_bytes, chunk_bytes);
        load_chunk<format>(block + codes_bytes(format, c) + part * step_bytes,
                           block + high_at(format, n) + high_bytes(format, c) + part * step_bytes,
                           codes);
        for (int s = 0; s < subs; ++s) {
            int sub = c * subs + s;
            Simd::I32 scale = Simd::load_bytes<format.signed_scales>(
                block + scales_at(format, n) + sub * tile_rows + part * Simd::lanes);
            const int16_t* sums = format.sub == 16 ? x.sums16 : x.sums32;
            for (int r = 0; r < rows; ++r) {
                const int8_t* q = x.codes256 + (int64_t)(first + r) * x.cols + group * super_group;
                int start = 0;
                if constexpr (format.offset != 0) {
                    start =
                        -format.offset *
                        sums[((int64_t)(first + r) * x.cols + group * super_group) / format.sub +
                             sub];
                }
                Simd::I32 dot = Simd::dot<count, max_code<format>()>(
                    codes + s * count, q + sub * format.sub, Simd::set_int(start));
                sum[r] = Simd::multiply_add(sum[r], dot, scale);
            }
        }
    }
    const uint16_t* halves = (const uint16_t*)(block + d_at(format, n));
    Simd::F32 d = Simd::load_half(halves + part * Simd::lanes);
    for (int r = 0; r < rows; ++r) {
        int64_t row = first + r;
        Simd::F32 p;
        if constexpr (format.has_mins) {
            Simd::F32 dmin = Simd::load_half(halves + tile_rows + part * Simd::lanes);
            Simd::I32 min = Simd::set_int(0);
            const int16_t* sums = x.sums32 + (row * x.cols + group * super_group) / chunk_columns;
            for (int pair = 0; pair < n / 2; ++pair) {
                const uint8_t* bytes =
                    block + mins_at(format, n) + (pair * tile_rows + part * Simd::lanes) * 2;
                Simd::Pairs mins = Simd::load_pairs((const int8_t*)bytes);  // 0..63
                min = Simd::dot_pair(min, mins, sums + 2 * pair);
            }
            p = Simd::fms(d, Simd::to_float(sum[r]), Simd::mul(dmin, Simd::to_float(min)));
        } else {
            p = Simd::mul(d, Simd::to_float(sum[r]));
        }
        float scale = x.scales256[row * (x.cols / super_group) + group];
        acc[r] = Simd::fma(Simd::set(scale), p, acc[r]);
    }
}

// A block of n chunks of a small-group type: one float step per 32 columns.
template <const TileFormat& format, int rows>
inline void block32(const uint8_t* block, int n, int part, const ActivationView& x, int first,
                    int chunk, Simd::F32* acc) {
    constexpr int chunk_bytes = (int)block_bytes(format, block_chunks) / block_chunks;
    for (int c = 0; c < n; ++c) {
        Simd::U8 codes[steps];
        prefetch(block + c * chunk_bytes, chunk_bytes);
        load_chunk<format>(block + codes_bytes(format, c) + part * step_bytes,
                           block + high_at(format, n) + high_bytes(format, c) + part * step_bytes,
                           codes);
        const uint16_t* halves =
            (const uint16_t*)(block + d_at(format, n)) + c * tile_rows + part * Simd::lanes;
        Simd::F32 d = Simd::load_half(halves);
        for (int r = 0; r < rows; ++r) {
            int64_t at = (int64_t)(first + r) * x.cols / chunk_columns + chunk + c;
            Simd::I32 dot = Simd::dot<steps, max_code<format>()>(
                codes, x.codes32 + at * chunk_columns, Simd::set_int(-format.offset * x.sums[at]));
            Simd::F32 p;
            if constexpr (format.has_m) {
                Simd::F32 m = Simd::load_half(halves + n * tile_rows);
                p = Simd::fma(d, Simd::to_float(dot), Simd::mul(m, Simd::set((float)x.sums[at])));
            } else {
                p = Simd::mul(d, Simd::to_float(dot));
            }
            acc[r] = Simd::fma(Simd::set(x.scales32[at]), p, acc[r]);
        }
    }
}

// One part of a tile under `rows` activation rows, all segments.
template <const TileFormat& format, int rows>
inline void product_part(const uint8_t* tile, int part, const ActivationView& x, int first,
                         float* out) {
    int chunks = x.cols / chunk_columns;
    constexpr int segment_chunks = k_segment / chunk_columns;
    Simd::F32 total[rows];
    for (int r = 0; r < rows; ++r)
        total[r] = Simd::set(0.0f);
    for (int segment = 0; segment < chunks; segment += segment_chunks) {
        Simd::F32 acc[rows];
        for (int r = 0; r < rows; ++r)
            acc[r] = Simd::set(0.0f);
        int end = segment + segment_chunks < chunks ? segment + segment_chunks : chunks;
        for (int chunk = segment; chunk < end; chunk += block_chunks) {
            if constexpr (format.group == super_group) {
                block256<format, rows>(tile, part, x, first, chunk / block_chunks, acc);
                tile += block_bytes(format, block_chunks);
            } else {
                int n = end - chunk < block_chunks ? end - chunk : block_chunks;
                block32<format, rows>(tile, n, part, x, first, chunk, acc);
                tile += block_bytes(format, n);
            }
        }
        for (int r = 0; r < rows; ++r)
            total[r] = Simd::add(total[r], acc[r]);
    }
    for (int r = 0; r < rows; ++r)
        Simd::store(out + r * tile_rows + part * Simd::lanes, total[r]);
}

template <const TileFormat& format, int rows>
inline int product_rows(const uint8_t* tile, const ActivationView& x, int first, int left,
                        float* out) {
    int done = 0;
    for (; left - done >= rows; done += rows) {
        for (int part = 0; part < parts; ++part) {
            product_part<format, rows>(tile, part, x, first + done, out + done * tile_rows);
        }
    }
    return done;
}

template <const TileFormat& format>
void tile_product(const uint8_t* tile, int, const ActivationView& x, int first, int rows,
                  float* out) {
    int done = product_rows<format, 8>(tile, x, first, rows, out);
    done += product_rows<format, 4>(tile, x, first + done, rows - done, out + done * tile_rows);
    done += product_rows<format, 2>(tile, x, first + done, rows - done, out + done * tile_rows);
    product_rows<format, 1>(tile, x, first + done, rows - done, out + done * tile_rows);
}

// ---- float weights: rows as the file has them ----

constexpr int sum_registers = sum_lanes / Simd::lanes;

inline float tree(const Simd::F32* lanes) {
    alignas(64) float all[sum_lanes];
    for (int i = 0; i < sum_registers; ++i)
        Simd::store(all + i * Simd::lanes, lanes[i]);
    return lane_tree(all);
}

struct LoadF32 {
    using Element = float;
    static Simd::F32 load(const float* p) { return Simd::load(p); }
};
struct LoadF16 {
    using Element = uint16_t;
    static Simd::F32 load(const uint16_t* p) { return Simd::load_half(p); }
};
struct LoadBF16 {
    using Element = uint16_t;
    static Simd::F32 load(const uint16_t* p) { return Simd::load_bfloat(p); }
};

template <class Load, int rows>
inline void float_rows(const typename Load::Element* weights, const ActivationView& x, int first,
                       float* out) {
    float total[rows] = {};
    for (int segment = 0; segment < x.cols; segment += k_segment) {
        Simd::F32 acc[rows][sum_registers];
        for (int r = 0; r < rows; ++r) {
            for (int i = 0; i < sum_registers; ++i)
                acc[r][i] = Simd::set(0.0f);
        }
        int end = segment + k_segment < x.cols ? segment + k_segment : x.cols;
        for (int k = segment; k < end; k += sum_lanes) {
            for (int i = 0; i < sum_registers; ++i) {
                int at = k + i * Simd::lanes;
                Simd::F32 w = Load::load(weights + at);
                for (int r = 0; r < rows; ++r) {
                    Simd::F32 v = Simd::load(x.values + (int64_t)(first + r) * x.cols + at);
                    acc[r][i] = Simd::fma(w, v, acc[r][i]);
                }
            }
        }
        for (int r = 0; r < rows; ++r)
            total[r] += tree(acc[r]);
    }
    for (int r = 0; r < rows; ++r)
        out[r * tile_rows] = total[r];
}

template <class Load>
void float_product(const uint8_t* tile, int valid, const ActivationView& x, int first, int rows,
                   float* out) {
    for (int lane = 0; lane < valid; ++lane) {
        auto* weights = (const typename Load::Element*)tile + (int64_t)lane * x.cols;
        int r = 0;
        for (; rows - r >= 4; r += 4) {
            float_rows<Load, 4>(weights, x, first + r, out + r * tile_rows + lane);
        }
        for (; r < rows; ++r)
            float_rows<Load, 1>(weights, x, first + r, out + r * tile_rows + lane);
    }
}
