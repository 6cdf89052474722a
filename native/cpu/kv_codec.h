// How keys and values lie in a KV page, and what one position takes. Nothing else knows a codec.
//
// A page holds kv_page positions of every attention layer and KV head: per layer and head a block
// of keys, then a block of values.
//
//     keys    scales [dim / 32][64] half (q8_0 only), then codes [dim][64]: one dimension of all
//             positions together, so that a score needs no sum across lanes
//     values  scales [dim / 32][64] half (q8_0 only), then codes [64][dim]
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
        store(block, position, key, position, kv_page);
    }
    void store_value(uint8_t* block, int position, const float* value) const {
        store(block, position, value, position * dim, 1);
    }

private:
    // Writes element i to code first + i * stride.
    void store(uint8_t* block, int position, const float* x, int first, int stride) const {
        uint8_t* codes = block + scales_bytes;
        for (int group = 0; group < dim; group += kv_group) {
            float factor = 1.0f;
            if (kind == OJ_KV_Q8_0) {
                float largest = 0.0f;
                for (int i = group; i < group + kv_group; ++i) {
                    largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
                }
                uint16_t scale = kv_scale(largest);
                factor = kv_factor(scale);
                reinterpret_cast<uint16_t*>(block)[group / kv_group * kv_page + position] = scale;
            }
            for (int i = group; i < group + kv_group; ++i) {
                int at = first + i * stride;
                if (kind == OJ_KV_Q8_0) {
                    reinterpret_cast<int8_t*>(codes)[at] =
                        static_cast<int8_t>(kv_code(x[i], factor));
                } else if (kind == OJ_KV_F16) {
                    reinterpret_cast<uint16_t*>(codes)[at] = kv_half(x[i]);
                } else {
                    reinterpret_cast<float*>(codes)[at] = kv_float(x[i]);
                }
            }
        }
    }
};

}  // namespace oj::cpu
