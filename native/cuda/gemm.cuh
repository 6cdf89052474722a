// Products of a phase's matrices with up to 64 rows of input, by the contract of engine/numerics.h:
// exact integers inside a group of columns, then the float chain over the groups of a K segment.
#pragma once

#include "cuda/layout.h"
#include "cuda/stream.cuh"
#include "cuda/work.h"

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
// registers for, which is a whole block of up to three groups. Scales and sums are loaded a block
// ahead for up to two groups, and at a block's begin for more.
template <BlockType type, int groups>
struct BlockInput {
    static constexpr bool block_ahead = groups <= 2;
    static constexpr int ahead = groups <= 3 ? block_steps / 2 : 2;
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

// Where a bundle's results go: out[row][o].
struct UnitTarget {
    float* out;  // of the segment, of the first tile's first o
    int rows;    // o of the whole matrix
    int valid;   // o from there to the end of the last tile or of the matrix

    OJ_HD float* at(int row, int o) const { return out + static_cast<int64_t>(row) * rows + o; }
};

// Adds a segment's chains [tile][group] to the units' results, or begins them.
template <int groups, int tiles>
OJ_DEVICE void put_segment(const InputLane& x, const UnitTarget& target, bool begins,
                           float (*acc)[4]) {
    const int first = not_hoisted(2 * x.t);  // else 4 addresses a group are kept all the time
    OJ_UNROLL_ALL
    for (int tj = 0; tj < tiles * groups; ++tj) {
        OJ_UNROLL_ALL
        for (int i = 0; i < 4; ++i) {
            int row = tj % groups * column_rows + first + i % 2;
            int o = tj / groups * tile_rows + x.g + i / 2 * 8;
            if (row < x.n_rows && o < target.valid) {
                float* out = target.at(row, o);
                *out = (begins ? 0.0f : *out) + acc[tj][i];
            }
            acc[tj][i] = 0.0f;
        }
    }
}

// Units of a quantised matrix: a tile's or two tiles' columns [first, last), from the stream.
template <BlockType type, int groups>
OJ_DEVICE void multiply_unit32(const Input& from, const InputLane& x, int first, int last,
                               Ring& ring, const UnitTarget& target) {
    constexpr TileFormat f = tile_format(type);
    const Input input = from;  // its pointers, as far as they are used, in registers
    float acc[groups][4] = {};
    OJ_UNROLL(1)
    for (int column = first; column < last; column += super_group) {
        int n = (last - column) / 32;
        n = n < block_steps ? n : block_steps;
        const int bytes = block_bytes(f, n);
        const uint8_t* block = take_piece(ring, bytes);
        add_block32<type, groups>(block, n, input, x, column / 32, acc);
        release<block_bytes(f, block_steps)>(ring, bytes);
        const int next = column + super_group;
        if (next % k_segment == 0 || next >= last)
            put_segment<groups, 1>(x, target, next - first <= k_segment, acc);
    }
}

template <BlockType type, int groups, int tiles>
OJ_DEVICE void multiply_unit256(const Input& from, const InputLane& x, int first, int last,
                                Ring& ring, const UnitTarget& target) {
    constexpr int bytes = tiles * block_bytes(tile_format(type), block_steps);
    constexpr int usual_piece = 2 * block_bytes(tile_format(type), block_steps);
    constexpr int block_stride = block_steps / 2 * InputLane::chunk_stride;
    constexpr int segment_blocks = k_segment / super_group;
    const Input input = from;  // its pointers, as far as they are used, in registers
    float acc[tiles * groups][4] = {};
    constexpr int at_once = groups <= 3 ? groups : 4;  // as registers allow
    static_assert(tiles == 1 || at_once == groups, "acc[tile][group]");
    BlockInput<type, at_once> in;
    const int8_t* here = input.codes256 + x.codes(first / chunk_columns, 0);
    OJ_UNROLL_ALL
    for (int c = 0; c < in.ahead; ++c)
        load_chunk(here + c * x.chunk_stride, c, in);
    int index = first / super_group;
    const int first_index = index, end = last / super_group;
    if constexpr (in.block_ahead) load_scales<type>(input, x, index, 0, in.scales);
    while (index < end) {
        const int most = tiles == 2 ? 1 : blocks_of_piece(usual_piece / 2, 2, ring.bytes);
        const int blocks = end - index < most ? end - index : most;
        const uint8_t* block = take_piece(ring, blocks * bytes);
        OJ_UNROLL(1)
        for (int left = blocks; left > 0; --left) {
            const int next = index + 1 < end ? index + 1 : index;
            const int8_t* next_here = here + (next - index) * block_stride;
            OJ_UNROLL_ALL
            for (int j = 0; j < groups; j += at_once) {
                if (j * column_rows >= x.n_rows) break;
                const int8_t* codes = here + j * x.group_stride;
                const bool more = (j + at_once) * column_rows < x.n_rows;
                add_block256<type, at_once, tiles>(
                    block, input, x,
                    {index, next, j, codes, more ? codes + at_once * x.group_stride : next_here},
                    in, acc + j);
            }
            block += bytes;
            here = next_here;
            ++index;
            if (index % segment_blocks == 0 || index >= end)
                put_segment<groups, tiles>(x, target, index - first_index <= segment_blocks, acc);
        }
        release<usual_piece>(ring, blocks * bytes);
    }
}

template <BlockType type, int groups, int tiles = 1>
OJ_DEVICE void multiply_packed(const Input& input, const InputLane& x, int first, int last,
                               Ring& ring, const UnitTarget& target) {
    if constexpr (tile_format(type).group == super_group) {
        multiply_unit256<type, groups, tiles>(input, x, first, last, ring, target);
    } else {
        multiply_unit32<type, groups>(input, x, first, last, ring, target);
    }
}

// Numbers of column groups that are compiled: more of them for the types of common files.
template <BlockType type>
OJ_DEVICE void multiply_type(const Input& input, const InputLane& x, int first, int last, int tiles,
                             Ring& ring, const UnitTarget& target) {
    if constexpr (is_common(type) &&
                  pairs_together(whole_block_bytes(type), 1, most_block_shared / block_warps)) {
        if (tiles == 2) {
            if constexpr (most_pair_groups == 2) {
                if (x.n_rows > column_rows)
                    return multiply_packed<type, 2, 2>(input, x, first, last, ring, target);
            }
            return multiply_packed<type, 1, 2>(input, x, first, last, ring, target);
        }
    }
    if constexpr (is_common(type)) {
        if (x.n_rows <= column_rows)
            return multiply_packed<type, 1>(input, x, first, last, ring, target);
    }
    if (x.n_rows <= 2 * column_rows)
        return multiply_packed<type, 2>(input, x, first, last, ring, target);
    if constexpr (is_common(type)) {
        if (x.n_rows <= 3 * column_rows)
            return multiply_packed<type, 3>(input, x, first, last, ring, target);
    }
    return multiply_packed<type, 8>(input, x, first, last, ring, target);
}

// ---- float weights: rows as in the file ----

template <BlockType type>
OJ_DEVICE float load_weight(const uint8_t* row, int column) {
    if constexpr (type == BlockType::F32) {
        return reinterpret_cast<const float*>(row)[column];
    } else {
        uint16_t bits = reinterpret_cast<const uint16_t*>(row)[column];
        return type == BlockType::F16 ? half_to_float(bits) : bfloat_to_float(bits);
    }
}

// Rows are multiplied few at a time: float matrices of this architecture have few outputs.
template <BlockType type>
OJ_DEVICE void multiply_float(const Input& input, const InputLane& x, int first, int last,
                              const uint8_t* tile, const UnitTarget& target) {
    constexpr int together = 4;
    const int64_t row_bytes = static_cast<int64_t>(x.cols) * (type == BlockType::F32 ? 4 : 2);
    for (int o = 0; o < target.valid; ++o) {
        const uint8_t* weights = tile + o * row_bytes;
        for (int row = 0; row < x.n_rows; row += together) {
            float total[together] = {};
            for (int segment = first; segment < last; segment += k_segment) {
                float acc[together] = {};
                int end = segment + k_segment < last ? segment + k_segment : last;
                OJ_UNROLL(4)
                for (int column = segment + x.lane; column < end; column += warp_lanes) {
                    float weight = load_weight<type>(weights, column);
                    OJ_UNROLL_ALL
                    for (int i = 0; i < together; ++i) {
                        int64_t at = static_cast<int64_t>(row + i) * x.cols + column;
                        acc[i] = fmaf(weight, input.values[at], acc[i]);
                    }
                }
                OJ_UNROLL_ALL
                for (int i = 0; i < together; ++i)
                    total[i] = total[i] + warp_sum(acc[i]);
            }
            OJ_UNROLL_ALL
            for (int i = 0; i < together; ++i) {
                if (x.lane == i && row + i < x.n_rows) *target.at(row + i, o) = total[i];
            }
        }
    }
}

// ---- the phase ----

OJ_DEVICE void multiply_bundle(const Context& c, const Phase& p, const Bundle& bundle,
                               const InputLane& x, Ring& ring) {
    const Matrix& m = p.matrices[bundle.matrix];
    const Input& input = c.scratch.input;
    int first = bundle.segment * k_segment;
    int last = m.n_segments == 1 || first + k_segment > m.cols ? m.cols : first + k_segment;
    Product product = product_of(const_cast<Scratch&>(c.scratch), p.targets[bundle.matrix]);
    product.rows = m.rows;
    const int o = bundle.tile * tile_rows, n = bundle.tiles * tile_rows;
    UnitTarget target = {product.at(bundle.segment, 0) + o, m.rows,
                         m.rows - o < n ? m.rows - o : n};
    switch (static_cast<BlockType>(m.type)) {
        case BlockType::Q4_K:
            return multiply_type<BlockType::Q4_K>(input, x, first, last, bundle.tiles, ring,
                                                  target);
        case BlockType::Q5_K:
            return multiply_type<BlockType::Q5_K>(input, x, first, last, bundle.tiles, ring,
                                                  target);
        case BlockType::Q6_K:
            return multiply_type<BlockType::Q6_K>(input, x, first, last, bundle.tiles, ring,
                                                  target);
        case BlockType::IQ4_XS:
            return multiply_type<BlockType::IQ4_XS>(input, x, first, last, bundle.tiles, ring,
                                                    target);
        case BlockType::Q8_0:
            return multiply_type<BlockType::Q8_0>(input, x, first, last, bundle.tiles, ring,
                                                  target);
        case BlockType::Q4_0:
            return multiply_type<BlockType::Q4_0>(input, x, first, last, bundle.tiles, ring,
                                                  target);
        case BlockType::Q4_1:
            return multiply_type<BlockType::Q4_1>(input, x, first, last, bundle.tiles, ring,
                                                  target);
        case BlockType::Q5_0:
            return multiply_type<BlockType::Q5_0>(input, x, first, last, bundle.tiles, ring,
                                                  target);
        case BlockType::Q5_1:
            return multiply_type<BlockType::Q5_1>(input, x, first, last, bundle.tiles, ring,
                                                  target);
        case BlockType::IQ4_NL:
            return multiply_type<BlockType::IQ4_NL>(input, x, first, last, bundle.tiles, ring,
                                                    target);
        case BlockType::F32:
            return multiply_float<BlockType::F32>(input, x, first, last, bundle.from, target);
        case BlockType::F16:
            return multiply_float<BlockType::F16>(input, x, first, last, bundle.from, target);
        case BlockType::BF16:
            return multiply_float<BlockType::BF16>(input, x, first, last, bundle.from, target);
    }
}

// Every warp multiplies its bundles, without waiting for other warps, with at least one row. `p` is
// the multiply phase that the warp's stream has come to; fill() goes on with it.
OJ_PHASE void phase_multiply(const Context& c, const Schedule& schedule, Stream& stream,
                             const Phase& p) {
    const int n_rows = multiply_rows(p, p.draft_pass != 0 ? c.draft : c.step);
    const int cols = p.matrices[0].cols;
    bool is_full = true;  // the ring: nothing has been taken since it was filled
    for (Bundle bundle; take_bundle(schedule, stream, p.product, bundle); is_full = false) {
        if (!is_full) fill(schedule, stream);
        Ring ring = stream.ring;
        const int lane = not_hoisted(lane_index());  // else every type's addresses are kept at once
        multiply_bundle(c, p, bundle, {n_rows, cols, lane, lane / 4, lane % 4}, ring);
        keep(stream.ring, ring);
    }
}

}  // namespace oj::cuda
