// Products of a phase's matrices with up to 64 rows of input: units of a tile and a K segment, from
// the stream.
#pragma once

#include "cuda/gemm_block.cuh"
#include "cuda/stream.cuh"
#include "cuda/work.h"

namespace oj::cuda {

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
