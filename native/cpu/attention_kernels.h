// One KV tile under a few query vectors: scores, online softmax, weighted sum of values.
// Included like gemm_kernels.h.
#pragma once

struct CodecQ8 {
    static constexpr bool has_scales = true;
    using Code = int8_t;
    static Simd::F32 load(const int8_t* p) { return Simd::load_int8(p); }
};
struct CodecF16 {
    static constexpr bool has_scales = false;
    using Code = uint16_t;
    static Simd::F32 load(const uint16_t* p) { return Simd::load_half(p); }
};
struct CodecF32 {
    static constexpr bool has_scales = false;
    using Code = float;
    static Simd::F32 load(const float* p) { return Simd::load(p); }
};

template <class Codec>
const typename Codec::Code* codes_of(const uint8_t* block, int dim) {
    return (const typename Codec::Code*)(block +
                                         (Codec::has_scales ? 2 * kv_page * dim / kv_group : 0));
}

// Few queries take more positions at a time, so that enough chains are in flight.
template <int queries>
constexpr int tile_registers = queries <= 2 ? 4 : 2;

template <class Codec, int queries>
inline void tile_scores(const AttentionTile& tile, float (*scores)[kv_page]) {
    constexpr int n = tile_registers<queries>;
    const auto* codes = codes_of<Codec>(tile.keys, tile.dim);
    const uint16_t* scales = (const uint16_t*)tile.keys;
    for (int position = 0; position < kv_page; position += n * Simd::lanes) {
        Simd::F32 total[queries][n];
        for (auto& row : total) {
            for (Simd::F32& t : row)
                t = Simd::set(0.0f);
        }
        for (int group = 0; group < tile.dim; group += kv_group) {
            Simd::F32 sum[queries][n];
            for (auto& row : sum) {
                for (Simd::F32& s : row)
                    s = Simd::set(0.0f);
            }
            for (int d = group; d < group + kv_group; ++d) {
                Simd::F32 key[n];
                for (int i = 0; i < n; ++i) {
                    key[i] = Codec::load(codes + d * kv_page + position + i * Simd::lanes);
                }
                for (int q = 0; q < queries; ++q) {
                    Simd::F32 query = Simd::set(tile.query[q][d]);
                    for (int i = 0; i < n; ++i)
                        sum[q][i] = Simd::fma(query, key[i], sum[q][i]);
                }
            }
            for (int i = 0; i < n; ++i) {
                Simd::F32 scale = Simd::set(1.0f);
                if constexpr (Codec::has_scales) {
                    scale = Simd::load_half(scales + group / kv_group * kv_page + position +
                                            i * Simd::lanes);
                }
                for (int q = 0; q < queries; ++q) {
                    total[q][i] = Simd::fma(scale, sum[q][i], total[q][i]);
                }
            }
        }
        for (int q = 0; q < queries; ++q) {
            for (int i = 0; i < n; ++i) {
                Simd::store(scores[q] + position + i * Simd::lanes, total[q][i]);
            }
        }
    }
}

// Turns the scores of the visible positions into weights (others into 0) and rescales the state.
inline void softmax_tile(float* scores, int visible, int dim, float* state) {
    float largest = state[0];
    for (int j = 0; j < visible; ++j)
        largest = scores[j] > largest ? scores[j] : largest;
    for (int j = 0; j < kv_page; ++j)
        scores[j] = j < visible ? scores[j] : largest;
    for (int j = 0; j < kv_page; ++j) {
        float weight = exp_f32(scores[j] - largest);
        scores[j] = j < visible ? weight : 0.0f;
    }
    float lanes[sum_lanes];
    for (int i = 0; i < sum_lanes; ++i)
        lanes[i] = scores[i] + scores[i + sum_lanes];
    float keep = exp_f32(state[0] - largest);
    state[0] = largest;
    state[1] = fmaf(state[1], keep, lane_tree(lanes));
    for (int d = 0; d < dim; ++d)
        state[2 + d] *= keep;
}

template <class Codec, int queries>
inline void add_values(const AttentionTile& tile, const float (*weights)[kv_page], int positions) {
    constexpr int registers = kv_group / Simd::lanes;  // of a group of dimensions
    const auto* codes = codes_of<Codec>(tile.values, tile.dim);
    const uint16_t* scales = (const uint16_t*)tile.values;
    for (int group = 0; group < tile.dim; group += kv_group) {
        float scaled[queries][kv_page];
        for (int j = 0; j < kv_page; j += Simd::lanes) {
            Simd::F32 scale = Simd::set(1.0f);
            if constexpr (Codec::has_scales) {
                scale = Simd::load_half(scales + group / kv_group * kv_page + j);
            }
            for (int q = 0; q < queries; ++q) {
                Simd::store(scaled[q] + j, Simd::mul(Simd::load(weights[q] + j), scale));
            }
        }
        Simd::F32 out[queries][registers];
        for (int q = 0; q < queries; ++q) {
            for (int i = 0; i < registers; ++i) {
                out[q][i] = Simd::load(tile.state[q] + 2 + group + i * Simd::lanes);
            }
        }
        for (int j = 0; j < positions; ++j) {
            for (int i = 0; i < registers; ++i) {
                Simd::F32 value = Codec::load(codes + j * tile.dim + group + i * Simd::lanes);
                for (int q = 0; q < queries; ++q) {
                    out[q][i] = Simd::fma(Simd::set(scaled[q][j]), value, out[q][i]);
                }
            }
        }
        for (int q = 0; q < queries; ++q) {
            for (int i = 0; i < registers; ++i) {
                Simd::store(tile.state[q] + 2 + group + i * Simd::lanes, out[q][i]);
            }
        }
    }
}

template <class Codec, int queries>
void attend_queries(const AttentionTile& tile) {
    float weights[queries][kv_page];
    tile_scores<Codec, queries>(tile, weights);
    int positions = 0;
    for (int q = 0; q < queries; ++q) {
        positions = tile.visible[q] > positions ? tile.visible[q] : positions;
        // A query that sees nothing here keeps its state bit for bit: its weights are zero.
        if (tile.visible[q] > 0) {
            softmax_tile(weights[q], tile.visible[q], tile.dim, tile.state[q]);
        } else {
            for (float& weight : weights[q])
                weight = 0.0f;
        }
    }
    add_values<Codec, queries>(tile, weights, positions);
}

template <class Codec>
void attend(const AttentionTile& tile) {
    switch (tile.queries) {
        case 1:
            return attend_queries<Codec, 1>(tile);
        case 2:
            return attend_queries<Codec, 2>(tile);
        case 3:
            return attend_queries<Codec, 3>(tile);
        default:
            return attend_queries<Codec, 4>(tile);
    }
}

void fold_split(float* total, const float* part, int dim) {
    float largest = part[0] > total[0] ? part[0] : total[0];
    float keep = exp_f32(total[0] - largest);
    float add = exp_f32(part[0] - largest);
    total[0] = largest;
    total[1] = fmaf(total[1], keep, part[1] * add);
    for (int d = 2; d < 2 + dim; ++d)
        total[d] = fmaf(total[d], keep, part[d] * add);
}
