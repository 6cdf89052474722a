// The inner loops, compiled once per instruction set from the same source (kernels_*.cpp), with
// equal bits everywhere. Nothing here allocates, blocks or knows about threads.
#pragma once

#include <cstdint>

#include "cpu/tile.h"
#include "engine/sampling.h"

namespace oj::cpu {

// Activations of many rows as matrix products read them (engine/numerics.h). Row r of an array with
// `n` entries per row starts at [r * n].
struct ActivationView {
    int cols;
    const float* values;     // [cols]
    const int8_t* codes256;  // [cols] codes of super groups
    const float* scales256;  // [cols / 256]
    const int16_t* sums16;   // [cols / 16] sums of 16 codes256
    const int16_t* sums32;   // [cols / 32] sums of 32 codes256
    const int8_t* codes32;   // [cols] codes of small groups
    const float* scales32;   // [cols / 32]
    const int16_t* sums;     // [cols / 32] sums of 32 codes32
};

constexpr int max_tile_batch = 64;  // activation rows of one tile call
constexpr int max_queries = 4;      // query vectors that read a KV tile together

// out[i][lane] for `rows` activation rows from `first` and the 16 weight rows of a tile, of which
// the first `valid` exist.
using TileProduct = void (*)(const uint8_t* tile, int valid, const ActivationView& x, int first,
                             int rows, float* out);

// One token of the DeltaNet recurrence for one V head.
struct DeltaToken {
    const float* query;  // normalised and scaled by 1 / sqrt(dim)
    const float* key;    // normalised
    const float* value;
    float* out;  // nullptr: only the state is wanted
    float decay;
    float beta;
};

// One query head of a row, scaled by 1 / sqrt(dim).
struct Query {
    const float* values;   // [dim]; read by the f16 and f32 codecs
    const int16_t* codes;  // [dim] code16; read by q8_0
    const float* scales;   // [dim / kv_group] of the codes
};

// One attention tile (64 positions of one KV head) under up to max_queries queries.
struct AttentionTile {
    const uint8_t* keys;  // KV codec blocks (kv_codec.h)
    const uint8_t* values;
    int dim;
    int queries;
    Query query[max_queries];
    int visible[max_queries];   // leading positions each may see, 0..64
    float* state[max_queries];  // running [max, sum, out[dim]] of the split
};

struct Kernels {
    const char* name;

    TileProduct product(BlockType type) const { return products[static_cast<int>(type)]; }
    TileProduct products[32];

    // Codes, scales and sums of one row.
    void (*quantize256)(const float* x, int n, int8_t* codes, float* scales, int16_t* sums16,
                        int16_t* sums32);
    void (*quantize32)(const float* x, int n, int8_t* codes, float* scales, int16_t* sums);
    // code16 and scales of one query, by groups of kv_group.
    void (*quantize16)(const float* x, int n, int16_t* codes, float* scales);

    // out = x / rms(x) * weight; out may be x.
    void (*rms_norm)(const float* x, const float* weight, int n, float eps, float* out);
    // x = x / |x| * scale, eps inside the root.
    void (*l2_norm)(float* x, int n, float eps, float scale);
    // out = silu(gate) * up.
    void (*silu_mul)(const float* gate, const float* up, int n, float* out);
    // out = x * sigmoid(gate).
    void (*sigmoid_mul)(const float* x, const float* gate, int n, float* out);
    // out = silu(sum over taps t of weight[t][i] * in[t][i]), ascending t.
    void (*conv_silu)(const float* const* in, const float* weight, int weight_stride, int taps,
                      int n, float* out);

    // Advances columns [first, first + delta_columns) of one head's state through the tokens.
    void (*delta)(float* state, int dim, int first, const DeltaToken* tokens, int n);

    // By KV codec.
    void (*attend[3])(const AttentionTile& tile);
    // total = total folded with part, both [max, sum, out[dim]].
    void (*fold_split)(float* total, const float* part, int dim);

    // engine/sampling.h
    void (*verify)(const SampledRows& rows, SampleWorkspace work, oj_seq_result* result);
    int32_t (*draft)(const float* logits, int32_t n_vocab, const oj_sampling& sampling,
                     const Penalties& penalties, int32_t position, SampleWorkspace work,
                     Distribution* q);
};

// A head's state S[k][v] is stored in strips of 16 columns: [v / 16][k][v % 16].
constexpr int strip_columns = 16;
constexpr int delta_columns = 32;

// The best instruction set of this machine, or the one OPENJET_CPU_ISA names (portable, avx2,
// avx512). Throws oj::Error when that is unknown or not available here.
const Kernels& select_kernels();

extern const Kernels kernels_portable;
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;

}  // namespace oj::cpu
