// Products of a block of weights, 16 rows of 256 columns, with a step's input, by the contract of
// engine/numerics.h: exact integers inside a group of columns, then the float chain over groups.
#pragma once

#include "cuda/layout.h"
#include "cuda/ptx.h"
#include "cuda/tile.h"

namespace oj::cuda {

// Integers of up to 22 bits become floats by an addition: as bits, magic_int + i is the float
// magic_float + i.
constexpr int32_t magic_int = 0x4b400000;
constexpr float magic_float = 12582912.0f;

OJ_DEVICE float from_magic(int32_t bits) {
    return bits_to_float(static_cast<uint32_t>(bits)) - magic_float;
}

// The largest magnitudes of what is multiplied: a code's byte, an activation's code, a scale.
OJ_HD constexpr int64_t largest_code(TileFormat f) {
    return f.offset != 0 ? 128 : 255;
}
constexpr int64_t largest_activation = 127;
// Plain 4-bit codes of super groups are left where they are: 16 times the code in odd steps, the
// code itself in even ones, whose sums are multiplied by this.
OJ_HD constexpr int even_step_weight(TileFormat f) {
    return f.group == super_group && f.code_bits == 4 && f.high_bits == 0 && !f.lookup ? 16 : 1;
}
OJ_HD constexpr int64_t largest_scale(TileFormat f) {
    return f.has_mins ? 63 : f.sub == 16 ? 128 : 32;
}

// A lane's share of whole column groups. Rows behind the last hold whatever was there before; their
// results are not stored.
struct InputLane {
    int n_rows, cols;
    int lane, g, t;

    // A chunk's codes of column group j.
    OJ_HD int codes(int chunk, int j) const {
        return input_code(0, chunk * chunk_columns) + (j * warp_lanes + lane) * 16;
    }
    // What lies between a lane's codes of a chunk and of the next one, of a group and the next one.
    static constexpr int chunk_stride = max_step_rows * chunk_columns;
    static constexpr int group_stride = warp_lanes * 16;

    // Row of result column 2 t + k of column group j.
    OJ_HD int result_row(int j, int k) const { return j * column_rows + 2 * t + k; }
};

// Registers a[0..3] of both steps of a chunk.
template <BlockType type, bool shifts>
OJ_DEVICE void load_codes(const uint8_t* codes, const uint8_t* low, int lane, uint32_t a[2][4]) {
    constexpr TileFormat f = tile_format(type);
    Words4 first = load16(codes + lane * 16);
    const uint32_t words[4] = {first.x, first.y, first.z, first.w};
    if constexpr (f.code_bits == 8) {
        Words4 second = load16(codes + chunk_code_bytes + lane * 16);
        const uint32_t more[4] = {second.x, second.y, second.z, second.w};
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i) {
            a[0][i] = words[i];
            a[1][i] = more[i];
        }
    } else if constexpr (f.lookup) {
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i) {
            OJ_UNROLL_ALL
            for (int s = 0; s < 2; ++s) {
                // iq4_value() of four nibbles: both halves of the table, then a choice by bit 3.
                uint32_t nibbles = words[i] >> (16 * s);
                uint32_t index = nibbles & 0x7777;
                uint32_t below = permute_bytes(0xbfad9881u, 0xf6eaddcfu, index);
                uint32_t above = permute_bytes(0x26190d01u, 0x71594535u, index);
                a[s][i] = permute_bytes(below, above, 0x3210 | (nibbles & 0x8888) >> 1);
            }
        }
    } else {
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i) {
            a[0][i] = shifts ? words[i] << 4 & 0xf0f0f0f0u : words[i] & 0x0f0f0f0fu;
            a[1][i] = words[i] & 0xf0f0f0f0u;
        }
    }
    if constexpr (f.high_bits == 1) {
        uint32_t bits = load4(low + lane * 4);
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i) {
            a[0][i] |= bits << (3 - i) & 0x08080808u;
            a[1][i] |= bits >> (1 + i) & 0x08080808u;
        }
    }
    if constexpr (f.high_bits == 2) {
        Words2 bits = load8(low + lane * 8);
        OJ_UNROLL_ALL
        for (int s = 0; s < 2; ++s) {
            uint32_t word = s == 0 ? bits.x : bits.y;
            a[s][0] |= word << 2 & 0x0c0c0c0cu;
            a[s][1] |= word & 0x0c0c0c0cu;
            a[s][2] |= word >> 2 & 0x0c0c0c0cu;
            a[s][3] |= word >> 4 & 0x0c0c0c0cu;
        }
    }
}

template <BlockType type>
OJ_DEVICE float load_scale(uint32_t half) {
    constexpr float unshift = 1.0f / (1 << code_shift(tile_format(type)));
    return load_half(static_cast<uint16_t>(half)) * unshift;  // exact
}

// Rows g and g + 8 of a block's sides with integer minima.
struct HeaderRow {
    uint32_t halves, even, odd;    // scales of sub-blocks 2 c, 2 c + 1 in byte c
    uint32_t low_mins, high_mins;  // a lane's as the A operand of m16n8k16, of the sums' bytes
};

OJ_DEVICE HeaderRow load_header(const uint8_t* header, int t) {
    Words4 h = load16(header);
    HeaderRow row;
    row.halves = h.x;
    row.even = (h.y & 0x0f0f0f0fu) | (h.z >> 2 & 0x30303030u);
    row.odd = (h.y >> 4 & 0x0f0f0f0fu) | (h.w >> 2 & 0x30303030u);
    const uint32_t mins = permute_bytes(h.z, h.w, t % 2 == 0 ? 0x5140 : 0x7362);
    row.low_mins = mins & (t < 2 ? 0x3f3f3f3fu : 0);
    row.high_mins = mins & (t < 2 ? 0 : 0x3f3f3f3fu);
    return row;
}

template <int groups>
struct BlockScales {
    Words2 scales[groups];  // of result_row(j, 0) and (j, 1)
    uint32_t sums[groups];  // a lane's as the B operand of m16n8k16; of types with minima
};

// Input of a block of 256 columns for `groups` column groups: a lane's registers. Codes are loaded
// some chunks before they are multiplied, because L1 may not have them: as many as there are
// registers for. Scales and sums are loaded a block ahead for up to two groups, and at a block's
// begin for more.
template <BlockType type, int groups>
struct BlockInput {
    static constexpr bool block_ahead = groups <= 2;
    static constexpr int ahead = block_ahead   ? block_steps / 2
                                 : groups == 3 ? ahead_for_three
                                               : ahead_for_more;
    Words4 codes[ahead][groups];
    BlockScales<groups> scales;
};

// Codes of a chunk's column groups; `from` are the lane's of the first one.
template <BlockType type, int groups>
OJ_DEVICE void load_chunk(const int8_t* from, int c, BlockInput<type, groups>& in) {
    OJ_UNROLL_ALL
    for (int j = 0; j < groups; ++j)
        in.codes[c % in.ahead][j] = load16_global(from + j * InputLane::group_stride);
}

template <BlockType type, int groups>
OJ_DEVICE void load_scales(const Input& input, const InputLane& x, int index, int first_group,
                           BlockScales<groups>& to) {
    const int row = x.result_row(first_group, 0);
    const float* scales = input.scales256 + input_scale(row, index);
    const int8_t* sums =
        input.sums32 + input_sum32(first_group * column_rows + x.g, index * super_group) + 4 * x.t;
    OJ_UNROLL_ALL
    for (int j = 0; j < groups; ++j) {
        to.scales[j] = load8_global(scales + j * column_rows);
        if constexpr (tile_format(type).has_mins)
            to.sums[j] = load4_global(sums + j * column_rows * row_sum_bytes);
    }
}

// Scales of a chunk's sub-blocks, [row g, row g + 8][sub-block].
template <BlockType type>
OJ_DEVICE void load_scales(const uint8_t* block, const HeaderRow rows[2], const InputLane& x, int c,
                           int32_t scales[2][4]) {
    constexpr TileFormat f = tile_format(type);
    const uint8_t* sides = block + sides_at(f, block_steps) + c * scales_bytes(f);
    if constexpr (f.has_mins) {
        OJ_UNROLL_ALL
        for (int r = 0; r < 2; ++r) {
            scales[r][0] = byte_of<false>(rows[r].even, c);
            scales[r][1] = byte_of<false>(rows[r].odd, c);
        }
    } else if constexpr (f.sub == 16) {
        Words2 words = load8(sides + x.g * 8);
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i) {
            scales[0][i] = byte_of<true>(words.x, i);
            scales[1][i] = byte_of<true>(words.y, i);
        }
    } else {
        uint32_t word = load4(sides + x.g * 4);
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i)
            scales[i / 2][i % 2] = byte_of<true>(word, i);
    }
}

// Where a block's input is: of block `index` of a row, from column group first_group on.
struct InputAt {
    int index, next_index, first_group;
    const int8_t* codes;  // a lane's
    const int8_t* then;   // of what is multiplied next
};

// Integer sums of a result: of even and odd steps, or one of both where registers are few.
OJ_HD constexpr int n_sums(int groups) {
    return groups <= 3 ? 2 : 1;
}

// Adds a chunk of one tile to a block's integer sums [step][group].
template <BlockType type, int groups>
OJ_DEVICE void add_chunk(const uint8_t* block, const HeaderRow rows[2], const InputLane& x, int c,
                         const Words4 codes[groups], int32_t sum[n_sums(groups)][groups][4]) {
    constexpr TileFormat f = tile_format(type);
    constexpr int n = block_steps;
    constexpr bool is_signed = f.offset != 0;
    uint32_t a[2][4];
    constexpr bool one_sum = n_sums(groups) == 1;
    load_codes<type, one_sum || even_step_weight(f) == 1>(
        block + c * codes_bytes(f), block + low_at(f, n) + c * low_bytes(f), x.lane, a);
    int32_t scales[2][4];
    load_scales<type>(block, rows, x, c, scales);
    OJ_UNROLL_ALL
    for (int j = 0; j < groups; ++j) {
        const Words4 q = codes[j];
        const uint32_t b[2][2] = {{q.x, q.y}, {q.z, q.w}};
        OJ_UNROLL_ALL
        for (int s = 0; s < 2; ++s) {
            int32_t dot[4];
            if constexpr (f.sub == 16) {
                OJ_UNROLL_ALL
                for (int half = 0; half < 2; ++half) {
                    product_k16<is_signed>(dot, a[s] + 2 * half, b[s][half], 0);
                    OJ_UNROLL_ALL
                    for (int i = 0; i < 4; ++i)
                        sum[one_sum ? 0 : s][j][i] += dot[i] * scales[i / 2][2 * s + half];
                }
            } else {
                product_k32<is_signed>(dot, a[s], b[s], 0);
                OJ_UNROLL_ALL
                for (int i = 0; i < 4; ++i)
                    sum[one_sum ? 0 : s][j][i] += dot[i] * scales[i / 2][s];
            }
        }
    }
}

// Adds a block's integer sums of one tile to the chains.
template <BlockType type, int groups>
OJ_DEVICE void add_sums(const uint8_t* block, const HeaderRow rows[2], const InputLane& x,
                        const BlockScales<groups>& in, const int32_t sum[n_sums(groups)][groups][4],
                        float (*acc)[4]) {
    constexpr TileFormat f = tile_format(type);
    float d[2], dmin[2];
    if constexpr (f.has_mins) {
        OJ_UNROLL_ALL
        for (int r = 0; r < 2; ++r) {
            d[r] = load_scale<type>(rows[r].halves & 0xffff);
            dmin[r] = load_half(static_cast<uint16_t>(rows[r].halves >> 16));
        }
    } else {
        uint32_t halves = load4(block + d_at(f, block_steps) + x.g * 4);
        d[0] = load_scale<type>(halves & 0xffff);
        d[1] = load_scale<type>(halves >> 16);
    }
    OJ_UNROLL_ALL
    for (int j = 0; j < groups; ++j) {
        int32_t low[4], high[4];  // the sums' bytes times the minima
        if constexpr (f.has_mins) {
            const uint32_t low_mins[2] = {rows[0].low_mins, rows[1].low_mins};
            const uint32_t high_mins[2] = {rows[0].high_mins, rows[1].high_mins};
            product_k16<false>(low, low_mins, in.sums[j], magic_int);
            product_k16<false>(high, high_mins, in.sums[j], 0);
        }
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i) {
            const int r = i / 2, k = i % 2;
            const float scale = bits_to_float(k == 0 ? in.scales[j].x : in.scales[j].y);
            int32_t dot = sum[0][j][i];
            if constexpr (n_sums(groups) == 2) dot = dot * even_step_weight(f) + sum[1][j][i];
            const float product = static_cast<float>(dot);
            float p;
            if constexpr (f.has_mins) {
                const float min = from_magic(low[i] + 256 * high[i]);
                p = fmaf(d[r], product, -(dmin[r] * min));
            } else {
                p = d[r] * product;
            }
            acc[j][i] = fmaf(scale, p, acc[j][i]);
        }
    }
}

// Adds 256 columns of a super-group type to the chains of some column groups, acc[tile][group]; the
// tiles' blocks follow each other. `in` holds the first of their codes, and after that the first of
// what is multiplied next.
template <BlockType type, int groups, int tiles>
OJ_DEVICE void add_block256(const uint8_t* block, const Input& input, const InputLane& x,
                            const InputAt& at, BlockInput<type, groups>& in, float (*acc)[4]) {
    constexpr TileFormat f = tile_format(type);
    constexpr int n = block_steps;
    static_assert(largest_code(f) * largest_activation * super_group * largest_scale(f) <
                  1ll << 31);
    constexpr int ahead = in.ahead;
    if constexpr (!in.block_ahead) load_scales<type>(input, x, at.index, at.first_group, in.scales);
    int32_t sum[tiles][n_sums(groups)][groups][4] = {};
    HeaderRow rows[tiles][2];
    if constexpr (f.has_mins) {
        OJ_UNROLL_ALL
        for (int i = 0; i < 2 * tiles; ++i) {
            const uint8_t* headers = block + i / 2 * block_bytes(f, n) + sides_at(f, n);
            rows[i / 2][i % 2] = load_header(headers + (2 * x.g + i % 2) * sizeof(Header), x.t);
        }
    }
    [[maybe_unused]] constexpr int chunks_at_once = groups <= 3 ? n / 2 : 2;  // as registers allow
    OJ_UNROLL(chunks_at_once)
    for (int c = 0; c < n / 2; ++c) {
        OJ_UNROLL_ALL
        for (int tile = 0; tile < tiles; ++tile)
            add_chunk<type, groups>(block + tile * block_bytes(f, n), rows[tile], x, c,
                                    in.codes[c % ahead], sum[tile]);
        const int next = c + ahead;
        load_chunk(next < n / 2 ? at.codes + next * x.chunk_stride
                                : at.then + (next - n / 2) * x.chunk_stride,
                   c, in);
    }
    OJ_UNROLL_ALL
    for (int tile = 0; tile < tiles; ++tile)
        add_sums<type, groups>(block + tile * block_bytes(f, n), rows[tile], x, in.scales,
                               sum[tile], acc + tile * groups);
    if constexpr (in.block_ahead)
        load_scales<type>(input, x, at.next_index, at.first_group, in.scales);
}

// Adds n times 32 columns of a small-group type, of which the row's `first` is the first.
template <BlockType type, int groups>
OJ_DEVICE void add_block32(const uint8_t* block, int n, const Input& input, const InputLane& x,
                           int first, float acc[groups][4]) {
    constexpr TileFormat f = tile_format(type);
    constexpr bool is_signed = f.offset != 0;
    static_assert(largest_code(f) * largest_activation * small_group < 1 << 22, "from_magic()");
    OJ_UNROLL(1)
    for (int c = 0; c < chunks_of(n); ++c) {
        uint32_t a[2][4];
        load_codes<type, true>(block + c * codes_bytes(f), block + low_at(f, n) + c * low_bytes(f),
                               x.lane, a);
        float d[2][2], m[2][2];  // [step][row]
        OJ_UNROLL_ALL
        for (int s = 0; s < 2; ++s) {
            if (2 * c + s >= n) break;
            int at = (2 * c + s) * tile_rows * 2 + x.g * 4;
            uint32_t halves = load4(block + d_at(f, n) + at);
            d[s][0] = load_scale<type>(halves & 0xffff);
            d[s][1] = load_scale<type>(halves >> 16);
            if constexpr (f.has_m) {
                halves = load4(block + m_at(f, n) + at);
                m[s][0] = load_half(static_cast<uint16_t>(halves));
                m[s][1] = load_half(static_cast<uint16_t>(halves >> 16));
            }
        }
        OJ_UNROLL_ALL
        for (int j = 0; j < groups; ++j) {
            Words4 q = load16(input.codes32 + x.codes(first / 2 + c, j));
            const uint32_t b[2][2] = {{q.x, q.y}, {q.z, q.w}};
            OJ_UNROLL_ALL
            for (int s = 0; s < 2; ++s) {
                if (2 * c + s >= n) break;
                int32_t dot[4];
                product_k32<is_signed>(dot, a[s], b[s], magic_int);
                OJ_UNROLL_ALL
                for (int k = 0; k < 2; ++k) {
                    int at = input_scale(x.result_row(j, k), first + 2 * c + s);
                    float scale = input.scales32[at];
                    float sum = 0;
                    if constexpr (f.has_m) sum = static_cast<float>(input.sums[at]);
                    OJ_UNROLL_ALL
                    for (int r = 0; r < 2; ++r) {
                        float product = from_magic(dot[2 * r + k]);
                        float p;
                        if constexpr (f.has_m) {
                            p = fmaf(d[s][r], product, m[s][r] * sum);
                        } else {
                            p = d[s][r] * product;
                        }
                        acc[j][2 * r + k] = fmaf(scale, p, acc[j][2 * r + k]);
                    }
                }
            }
        }
    }
}

}  // namespace oj::cuda
