// One KV tile under a few query vectors: scores, online softmax, weighted sum of values.
// Included like gemm_kernels.h.
#pragma once

// Few queries take more positions at a time, so that enough chains are in flight.
template <int queries>
constexpr int tile_registers = queries <= 2 ? 4 : 2;

// The largest of 1, 2 and 4 that is at most `most`.
constexpr int at_a_time(int most) {
    return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

template <class Register, int queries, int n>
inline void fill(Register (&registers)[queries][n], Register x) {
    for (auto& row : registers) {
        for (Register& r : row)
            r = x;
    }
}

// f16 and f32 pages.
template <class Load>
struct FloatTile {
    using Element = typename Load::Element;

    template <int queries>
    static void scores(const AttentionTile& tile, float (*scores)[kv_page]) {
        constexpr int n = tile_registers<queries>;
        const Element* keys = (const Element*)tile.keys;
        for (int position = 0; position < kv_page; position += n * Simd::lanes) {
            Simd::F32 total[queries][n];
            fill(total, Simd::set(0.0f));
            for (int group = 0; group < tile.dim; group += kv_group) {
                Simd::F32 sum[queries][n];
                fill(sum, Simd::set(0.0f));
                for (int d = group; d < group + kv_group; ++d) {
                    Simd::F32 key[n];
                    for (int i = 0; i < n; ++i)
                        key[i] = Load::load(keys + d * kv_page + position + i * Simd::lanes);
                    for (int q = 0; q < queries; ++q) {
                        Simd::F32 query = Simd::set(tile.query[q].values[d]);
                        for (int i = 0; i < n; ++i)
                            sum[q][i] = Simd::fma(query, key[i], sum[q][i]);
                    }
                }
                for (int q = 0; q < queries; ++q) {
                    for (int i = 0; i < n; ++i)
                        total[q][i] = Simd::add(total[q][i], sum[q][i]);
                }
            }
            for (int q = 0; q < queries; ++q) {
                for (int i = 0; i < n; ++i)
                    Simd::store(scores[q] + position + i * Simd::lanes, total[q][i]);
            }
        }
    }

    template <int queries>
    static void add_values(const AttentionTile& tile, const float (*weights)[kv_page],
                           int positions) {
        constexpr int n = kv_group / Simd::lanes;
        const Element* values = (const Element*)tile.values;
        for (int group = 0; group < tile.dim; group += kv_group) {
            Simd::F32 out[queries][n];
            for (int q = 0; q < queries; ++q) {
                for (int i = 0; i < n; ++i)
                    out[q][i] = Simd::load(tile.state[q] + 2 + group + i * Simd::lanes);
            }
            for (int j = 0; j < positions; ++j) {
                for (int i = 0; i < n; ++i) {
                    Simd::F32 value = Load::load(values + j * tile.dim + group + i * Simd::lanes);
                    for (int q = 0; q < queries; ++q)
                        out[q][i] = Simd::fma(Simd::set(weights[q][j]), value, out[q][i]);
                }
            }
            for (int q = 0; q < queries; ++q) {
                if (tile.visible[q] == 0) continue;
                for (int i = 0; i < n; ++i)
                    Simd::store(tile.state[q] + 2 + group + i * Simd::lanes, out[q][i]);
            }
        }
    }
};

// q8_0 pages: exact integers inside a group of dimensions.
struct IntegerTile {
    static const uint16_t* scales_of(const uint8_t* block) { return (const uint16_t*)block; }
    static const int8_t* codes_of(const uint8_t* block, int dim) {
        return (const int8_t*)(block + 2 * kv_page * dim / kv_group);
    }

    static constexpr int n = 2;  // registers of positions or dimensions at a time

    // sum[q][i] = sum over `count` steps, `stride` bytes apart, of pairs . codes[q]. A few chains,
    // so that more sums are in flight than there are queries; whole rounds of them are read.
    template <int queries>
    static void dot_pairs(const int8_t* pairs, int stride, int count, const int16_t* const* codes,
                          Simd::I32 (*sum)[n]) {
        constexpr int chains = at_a_time(Simd::sums / (queries * n));
        Simd::I32 chain[chains][queries][n];
        for (auto& sums : chain)
            fill(sums, Simd::set_int(0));
        for (int step = 0; step < count; step += chains) {
            for (int c = 0; c < chains; ++c) {
                const int8_t* at = pairs + (step + c) * stride;
                for (int i = 0; i < n; ++i) {
                    Simd::Pairs pair = Simd::load_pairs(at + 2 * i * Simd::lanes);
                    for (int q = 0; q < queries; ++q) {
                        chain[c][q][i] =
                            Simd::dot_pair(chain[c][q][i], pair, codes[q] + 2 * (step + c));
                    }
                }
            }
        }
        for (int q = 0; q < queries; ++q) {
            for (int i = 0; i < n; ++i) {
                sum[q][i] = chain[0][q][i];
                for (int c = 1; c < chains; ++c)
                    sum[q][i] = Simd::add(sum[q][i], chain[c][q][i]);
            }
        }
    }

    template <int queries>
    static void scores(const AttentionTile& tile, float (*scores)[kv_page]) {
        const int8_t* keys = codes_of(tile.keys, tile.dim);
        const uint16_t* scales = scales_of(tile.keys);
        for (int group = 0; group < tile.dim; group += kv_group) {
            const int16_t* codes[queries];
            for (int q = 0; q < queries; ++q)
                codes[q] = tile.query[q].codes + group;
            for (int position = 0; position < kv_page; position += n * Simd::lanes) {
                Simd::I32 sum[queries][n];
                dot_pairs<queries>(keys + group * kv_page + 2 * position, 2 * kv_page, kv_group / 2,
                                   codes, sum);
                for (int i = 0; i < n; ++i) {
                    int j = position + i * Simd::lanes;
                    Simd::F32 scale = Simd::load_half(scales + group / kv_group * kv_page + j);
                    for (int q = 0; q < queries; ++q) {
                        Simd::F32 score = group == 0 ? Simd::set(0.0f) : Simd::load(scores[q] + j);
                        Simd::F32 query = Simd::set(tile.query[q].scales[group / kv_group]);
                        Simd::F32 dot = Simd::mul(scale, Simd::to_float(sum[q][i]));
                        Simd::store(scores[q] + j, Simd::fma(query, dot, score));
                    }
                }
            }
        }
    }

    // The scale and the codes of weights times the scales of one group of dimensions.
    static float quantize_weights(const float* weights, const uint16_t* scales, int16_t* codes) {
        float scaled[kv_page];
        for (int j = 0; j < kv_page; j += Simd::lanes) {
            Simd::F32 scale = Simd::load_half(scales + j);
            Simd::store(scaled + j, Simd::mul(Simd::load(weights + j), scale));
        }
        return quantize16_group(scaled, kv_page, codes);
    }

    template <int queries>
    static void add_values(const AttentionTile& tile, const float (*weights)[kv_page],
                           int positions) {
        const int8_t* values = codes_of(tile.values, tile.dim);
        for (int group = 0; group < tile.dim; group += kv_group) {
            const uint16_t* scales = scales_of(tile.values) + group / kv_group * kv_page;
            int16_t quantized[queries][kv_page];
            const int16_t* codes[queries];
            float weight_scale[queries];
            for (int q = 0; q < queries; ++q) {
                weight_scale[q] = quantize_weights(weights[q], scales, quantized[q]);
                codes[q] = quantized[q];
            }
            for (int d = group; d < group + kv_group; d += n * Simd::lanes) {
                Simd::I32 sum[queries][n];
                dot_pairs<queries>(values + 2 * d, 2 * tile.dim, (positions + 1) / 2, codes, sum);
                for (int q = 0; q < queries; ++q) {
                    if (tile.visible[q] == 0) continue;
                    for (int i = 0; i < n; ++i) {
                        float* out = tile.state[q] + 2 + d + i * Simd::lanes;
                        Simd::F32 scale = Simd::set(weight_scale[q]);
                        Simd::F32 dot = Simd::to_float(sum[q][i]);
                        Simd::store(out, Simd::fma(scale, dot, Simd::load(out)));
                    }
                }
            }
        }
    }
};

inline float largest_score(const float* scores, float start) {
    Simd::F32 largest = Simd::set(start);
    for (int j = 0; j < kv_page; j += Simd::lanes)
        largest = Simd::max(Simd::load(scores + j), largest);
    float lanes[Simd::lanes];
    Simd::store(lanes, largest);
    for (int width = Simd::lanes / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; ++i)
            lanes[i] = lanes[i + width] > lanes[i] ? lanes[i + width] : lanes[i];
    }
    return lanes[0];
}

// Turns the scores of the visible positions into weights (others into 0) and rescales the state.
inline void softmax_tile(float* scores, int visible, int dim, float* state) {
    for (int j = visible; j < kv_page; ++j)
        scores[j] = -INFINITY;
    float largest = largest_score(scores, state[0]);
    for (int j = 0; j < kv_page; ++j)
        scores[j] = exp_f32(scores[j] - largest);
    for (int j = visible; j < kv_page; ++j)
        scores[j] = 0.0f;
    float lanes[sum_lanes];
    for (int i = 0; i < sum_lanes; ++i)
        lanes[i] = scores[i] + scores[i + sum_lanes];
    float keep = exp_f32(state[0] - largest);
    state[0] = largest;
    state[1] = fmaf(state[1], keep, lane_tree(lanes));
    for (int d = 0; d < dim; ++d)
        state[2 + d] *= keep;
}

template <class Tile, int queries>
void attend_queries(const AttentionTile& tile) {
    float weights[queries][kv_page];
    Tile::template scores<queries>(tile, weights);
    int positions = 0;
    for (int q = 0; q < queries; ++q) {
        positions = tile.visible[q] > positions ? tile.visible[q] : positions;
        // A query that sees nothing here keeps its state bit for bit.
        if (tile.visible[q] > 0) {
            softmax_tile(weights[q], tile.visible[q], tile.dim, tile.state[q]);
        } else {
            for (float& weight : weights[q])
                weight = 0.0f;
        }
    }
    Tile::template add_values<queries>(tile, weights, positions);
}

template <class Tile>
void attend(const AttentionTile& tile) {
    switch (tile.queries) {
        case 1:
            return attend_queries<Tile, 1>(tile);
        case 2:
            return attend_queries<Tile, 2>(tile);
        case 3:
            return attend_queries<Tile, 3>(tile);
        default:
            return attend_queries<Tile, 4>(tile);
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
