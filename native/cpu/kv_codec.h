// How keys and values lie in a KV page, and what one position takes. Nothing else knows a codec.
//
// A page holds kv_page positions of every attention layer and KV head: per layer and head a block
// of keys, then a block of values.
//
//     keys    f16, f32: [dim][64], one dimension of all positions together, so that a score needs
//             no sum across lanes; q8_0: scales [dim / 32][64] half, codes [dim / 2][64][2]
//     values  f16, f32: [64][dim]; q8_0: scales [dim / 32][64] half, codes [64 / 2][dim][2]
//
// The pairs of q8_0 are what Simd::dot_pair multiplies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/numerics.h"
#include "openjet.h"

namespace oj::cpu {

struct KvCodec {
    oj_kv_codec kind;
    int dim;
    int code_bytes;
    size_t scales_bytes;  // of one keys or values block
    size_t block_bytes;   // of one keys or values block

    KvCodec(oj_kv_codec codec, int head_dim) : kind(codec), dim(head_dim) {
        code_bytes = codec == OJ_KV_Q8_0 ? 1 : codec == OJ_KV_F16 ? 2 : 4;
        scales_bytes = codec == OJ_KV_Q8_0 ? size_t{2} * kv_page * dim / kv_group : 0;
        block_bytes = scales_bytes + size_t{kv_page} * dim * code_bytes;
    }

    size_t head_bytes() const { return 2 * block_bytes; }  // keys and values of one head and page

    void store_key(uint8_t* block, int position, const float* key) const {
        store(block, position, key, [this, position](int d) {
            return (d / run() * kv_page + position) * run() + d % run();
        });
    }
    void store_value(uint8_t* block, int position, const float* value) const {
        store(block, position, value, [this, position](int d) {
            return (position / run() * dim + d) * run() + position % run();
        });
    }

private:
    // Dimensions of a key, positions of a value, that lie side by side.
    int run() const { return kind == OJ_KV_Q8_0 ? 2 : 1; }

    // Element d becomes code at(d).
    template <class At>
    void store(uint8_t* block, int position, const float* x, At at) const {
        uint8_t* codes = block + scales_bytes;
        for (int group = 0; group < dim; group += kv_group) {
            if (kind == OJ_KV_Q8_0) {
                uint16_t scale = kv_scale(largest_of(x + group));
                float factor = kv_factor(scale);
                reinterpret_cast<uint16_t*>(block)[group / kv_group * kv_page + position] = scale;
                for (int d = group; d < group + kv_group; ++d)
                    reinterpret_cast<int8_t*>(codes)[at(d)] =
                        static_cast<int8_t>(kv_code(x[d], factor));
                continue;
            }
            for (int d = group; d < group + kv_group; ++d) {
                if (kind == OJ_KV_F16) {
                    reinterpret_cast<uint16_t*>(codes)[at(d)] = kv_half(x[d]);
                } else {
                    reinterpret_cast<float*>(codes)[at(d)] = kv_float(x[d]);
                }
            }
        }
    }

    static float largest_of(const float* x) {
        float largest = 0.0f;
        for (int i = 0; i < kv_group; ++i)
            largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        return largest;
    }
};

}  // namespace oj::cpu
