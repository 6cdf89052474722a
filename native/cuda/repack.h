// Rows of a file into tiles (tile.h), on a device and on the host.
#pragma once

#include "cuda/tile.h"
#include "model/block_chunks.h"

namespace oj::cuda {

// Rows g and g + 8 of a tile's 64 columns.
struct CodePair {
    CodeChunk part[2][2];  // [row][step]
};

// The bits of a code as they are stored: its value where the type is signed.
template <BlockType type>
OJ_HD uint32_t stored_code(const CodeChunk& chunk, int column) {
    constexpr TileFormat f = tile_format(type);
    uint32_t code = chunk.codes[column];
    return f.lookup ? code : code ^ f.offset;
}

template <BlockType type>
OJ_HD void pack_codes(const CodePair& pair, int lane, uint8_t* codes, uint8_t* low) {
    constexpr TileFormat f = tile_format(type);
    uint32_t words[2][4] = {}, lows[2] = {};
    for (int i = 0; i < 4; ++i) {
        for (int s = 0; s < 2; ++s) {
            for (int j = 0; j < 4; ++j) {
                int column = i / 2 * 16 + lane % 4 * 4 + j;
                uint32_t code = stored_code<type>(pair.part[i % 2][s], column);
                uint32_t top = code >> f.high_bits;
                uint32_t rest = code & ((1u << f.high_bits) - 1);
                if (f.code_bits == 8) {
                    words[s][i] |= top << (8 * j);
                } else {
                    words[0][i] |= top << (f.lookup ? 16 * s + 4 * j : 8 * j + 4 * s);
                }
                if (f.high_bits == 1) lows[0] |= rest << (8 * j + 4 * s + i);
                if (f.high_bits == 2) lows[s] |= rest << (8 * j + 2 * i);
            }
        }
    }
    auto* code_words = reinterpret_cast<uint32_t*>(codes);
    for (int s = 0; s < f.code_bits / 4; ++s) {
        for (int i = 0; i < 4; ++i)
            code_words[s * 128 + lane * 4 + i] = words[s][i];
    }
    auto* low_words = reinterpret_cast<uint32_t*>(low);
    for (int s = 0; s < f.high_bits; ++s)
        low_words[lane * f.high_bits + s] = lows[s];
}

// Chunk c of a block of n times 32 columns, rows g and g + 8.
template <BlockType type>
OJ_HD void pack_pair(const CodePair& pair, int n, int c, int g, uint8_t* block) {
    constexpr TileFormat f = tile_format(type);
    for (int t = 0; t < 4; ++t) {
        pack_codes<type>(pair, 4 * g + t, block + c * codes_bytes(f),
                         block + low_at(f, n) + c * low_bytes(f));
    }
    for (int r = 0; r < 2; ++r) {
        const CodeChunk& even = pair.part[r][0];
        const CodeChunk& odd = pair.part[r][1];
        if (f.has_mins) {
            Header& h = reinterpret_cast<Header*>(block + sides_at(f, n))[2 * g + r];
            h.scales[c] = static_cast<uint8_t>((even.scales[0] & 15) | (odd.scales[0] & 15) << 4);
            h.even[c] = static_cast<uint8_t>(even.min | (even.scales[0] >> 4) << 6);
            h.odd[c] = static_cast<uint8_t>(odd.min | (odd.scales[0] >> 4) << 6);
            if (c == 0) h.d = even.d;
            if (c == 0) h.dmin = even.m;
            continue;
        }
        constexpr int subs = f.sub == 0 ? 0 : 32 / f.sub;  // of a step
        uint8_t* scales = block + sides_at(f, n) + c * scales_bytes(f) + (2 * g + r) * 2 * subs;
        for (int i = 0; i < subs; ++i) {
            scales[i] = even.scales[i];
            scales[subs + i] = odd.scales[i];
        }
        for (int s = 0; s < 2; ++s) {
            int group = f.group == super_group ? 0 : 2 * c + s;
            if (group >= n || (f.group == super_group && (c > 0 || s > 0))) continue;
            int at = group * tile_rows + 2 * g + r;
            reinterpret_cast<uint16_t*>(block + d_at(f, n))[at] = pair.part[r][s].d;
            if (f.has_m) reinterpret_cast<uint16_t*>(block + m_at(f, n))[at] = pair.part[r][s].m;
        }
    }
}

// What is packed: n_rows whole rows as in the file, from a multiple of 16 on, and where their first
// tile goes.
struct RepackJob {
    BlockType type;
    const uint8_t* rows;
    int64_t row_bytes;
    int n_rows, cols;
    uint8_t* tiles;

    // Independent pieces of work: one for rows g and g + 8 of every tile and 64 columns.
    OJ_HD int64_t pieces() const {
        return static_cast<int64_t>((n_rows + tile_rows - 1) / tile_rows) * chunks() * 8;
    }
    OJ_HD int chunks() const { return (cols + chunk_columns - 1) / chunk_columns; }
};

template <BlockType type>
OJ_HD void pack_piece(const RepackJob& job, int64_t piece) {
    constexpr TileFormat f = tile_format(type);
    constexpr int block_chunks = block_steps / 2;
    const int g = static_cast<int>(piece % 8);
    const int chunk = static_cast<int>(piece / 8 % job.chunks());
    const int tile = static_cast<int>(piece / 8 / job.chunks());
    const int n_steps = job.cols / 32;
    CodePair pair = {};
    for (int r = 0; r < 2; ++r) {
        const int row = tile * tile_rows + g + 8 * r;
        for (int s = 0; s < 2; ++s) {
            CodeChunk& part = pair.part[r][s];
            if (row < job.n_rows && 2 * chunk + s < n_steps) {
                part = unpack_chunk(type, job.rows + row * job.row_bytes, 2 * chunk + s);
            } else {
                for (uint8_t& code : part.codes)
                    code = static_cast<uint8_t>(f.lookup ? 0 : f.offset);
            }
        }
    }
    const int first = chunk / block_chunks * block_steps;
    const int n = n_steps - first < block_steps ? n_steps - first : block_steps;
    uint8_t* block = job.tiles + tile * packed_tile_bytes(type, job.cols) +
                     chunk / block_chunks * block_bytes(f, block_steps);
    pack_pair<type>(pair, n, chunk % block_chunks, g, block);
}

// Only of quantised types.
OJ_HD void repack_piece(const RepackJob& job, int64_t piece) {
    switch (job.type) {
        case BlockType::Q4_K:
            return pack_piece<BlockType::Q4_K>(job, piece);
        case BlockType::Q5_K:
            return pack_piece<BlockType::Q5_K>(job, piece);
        case BlockType::Q6_K:
            return pack_piece<BlockType::Q6_K>(job, piece);
        case BlockType::IQ4_XS:
            return pack_piece<BlockType::IQ4_XS>(job, piece);
        case BlockType::Q8_0:
            return pack_piece<BlockType::Q8_0>(job, piece);
        case BlockType::Q4_0:
            return pack_piece<BlockType::Q4_0>(job, piece);
        case BlockType::Q4_1:
            return pack_piece<BlockType::Q4_1>(job, piece);
        case BlockType::Q5_0:
            return pack_piece<BlockType::Q5_0>(job, piece);
        case BlockType::Q5_1:
            return pack_piece<BlockType::Q5_1>(job, piece);
        case BlockType::IQ4_NL:
            return pack_piece<BlockType::IQ4_NL>(job, piece);
        default:
            break;
    }
}

}  // namespace oj::cuda
