// What the phases of a step work on: plain data that host and device share. Pointers are device
// pointers unless stated. Nothing here allocates or owns.
#pragma once

#include <stdint.h>

#include "engine/numerics.h"
#include "engine/sampling.h"
#include "openjet.h"

namespace oj::cuda {

constexpr int max_step_rows = 64;   // rows of one launch
constexpr int block_threads = 256;  // of every kernel
constexpr int block_warps = block_threads / 32;
constexpr int phase_shared_bytes = 24320;  // shared memory of a phase, beside the weight ring
constexpr int tile_rows = 16;              // weight rows of a tile: M of an mma
constexpr int column_rows = 8;             // activation rows of a column group: N of an mma
constexpr int group_rows = 8;              // neighbouring rows of a run that read the same KV tiles

// What phases can work on; check_cuda() refuses the rest.
constexpr int max_norm_columns = 5440;  // of a row that a block normalises
constexpr int max_taps = 4;             // of the convolution

// The model's sizes (Hparams, flat).
struct Dims {
    int n_vocab, n_embd, n_ff;
    int n_heads, n_kv_heads, head_dim, rope_dim;
    int n_k_heads, n_v_heads, state_dim, conv_kernel;
    int n_layers, n_kv_layers, n_delta_layers;  // n_kv_layers: the MTP block's included
    float rms_eps;

    OJ_HD int q_rows() const { return n_heads * head_dim; }
    OJ_HD int kv_rows() const { return n_kv_heads * head_dim; }
    OJ_HD int k_channels() const { return n_k_heads * state_dim; }
    OJ_HD int v_channels() const { return n_v_heads * state_dim; }
    OJ_HD int conv_channels() const { return 2 * k_channels() + v_channels(); }
};

// A weight matrix, packed (tile.h): n_tiles tiles of 16 rows and all columns, tile_bytes each.
// Float types (F32, F16, BF16) are rows as in the file, tile_bytes = 16 rows.
struct Matrix {
    const uint8_t* data;
    int type;  // BlockType
    int rows, cols;
    int n_tiles;
    int64_t tile_bytes;
    int64_t segment_bytes;  // of a tile's whole K segments; tile_bytes if n_segments is 1
    // Products of this matrix: out[segment][row][rows], segments of k_segment columns to be added
    // in ascending order by whoever reads them (add_segments); n_segments is 1 where the product
    // adds them itself.
    int n_segments;
};

// Products of a matrix for every row of the step: at(segment, r)[o].
struct Product {
    float* data;
    int rows;        // outputs o
    int n_segments;  // as in its Matrix

    OJ_HD float* at(int segment, int r) const {
        return data + (static_cast<int64_t>(segment) * max_step_rows + r) * rows;
    }
};

// The next matrix products' inputs, in the order of layout.h. What is behind the step's last row
// does not matter.
struct Input {
    float* values;     // [row][cols]: only where a float matrix reads them
    int8_t* codes256;  // of super groups: input_code()
    float* scales256;  // input_scale()
    int8_t* sums32;    // input_sum32()
    int8_t* codes32;   // of small groups: input_code()
    float* scales32;   // input_scale()
    int16_t* sums;     // of codes32: input_scale()
};

// Which of these a phase must write.
struct Forms {
    int values, group256, group32;
};

struct AttentionParams {
    const float* q_norm;
    const float* k_norm;
    int kv_layer;  // index into a KV page
};

struct DeltaParams {
    const float* a;
    const float* dt;
    const float* norm;
    const float* conv;  // [tap][channel]
    int state_layer;    // index into a slot's state
};

// ---- one step ----

struct Row {
    int32_t token;
    int32_t position;  // -1: a draft pass's row of a run that drafts no more; it stores nothing
    int32_t run;
    int32_t logits_row;  // row of logits and of `head_input`, or -1
};

// Consecutive rows of one conversation at consecutive positions: the first n_certain advance the
// slot's state, the others are drafts, recorded for a later fold.
struct Run {
    int32_t slot;
    int32_t first_row, n_rows, n_certain;  // n_rows may be 0: only a fold
    int32_t position;                      // of the first row
    int32_t fold;         // recorded rows of the step before that are history now: replayed first
    int32_t record_from;  // which of the slot's two record buffers those are in (0 or 1)
    int32_t record_to;    // where this step's drafts are recorded
    int32_t first_page;   // index into StepView.pages
    int32_t n_pages;
    int32_t n_sampled;  // trailing rows whose next token is chosen, or 0
    int32_t draft_source;
    int32_t n_draft;  // MTP drafts wanted; the device lowers it to the room in the pages
    int32_t coupled;
    int32_t first_penalty, n_penalty;  // into penalty_ids, penalty_counts
    int32_t first_bias;                // into bias_ids, bias_values; count in sampling.n_bias
    int32_t first_mask;  // into mask_rows, n_sampled entries; -1: none. An entry is an offset into
                         // mask_bits in words, or -1 for a row without a mask
    oj_sampling sampling;  // its pointers are not used
};

struct RowGroup {
    int32_t first_row, n_rows;  // at most group_rows, of one run
};

// One step's description, packed by the host into one upload.
struct StepView {
    int32_t n_rows, n_runs, n_groups, n_logits;
    int32_t n_sampled;    // rows whose next token is chosen
    int32_t wave_splits;  // attention splits that one wave computes and then folds
    int32_t keep_logits;
    int32_t n_drafting;  // runs with n_draft > 0
    int32_t most_drafts;
    Row* rows;  // of a draft pass: token and position are written by the phase before
    const Run* runs;
    const RowGroup* groups;
    const int32_t* drafting;  // [n_drafting] run indices
    const int32_t* sampled;   // [n_sampled] row indices
    const int32_t* pages;
    const int32_t* penalty_ids;
    const int32_t* penalty_counts;
    const int32_t* bias_ids;
    const float* bias_values;
    const int32_t* mask_rows;
    const uint32_t* mask_bits;
};

// ---- memory ----

// Recurrent states: per slot `floats` of one state: per DeltaNet layer the last conv_kernel - 1 raw
// inputs of the convolution [tap][channel] and S of every V head [k][v] (row k, 128 columns v),
// then the post-norm hidden of the last history row.
struct StatesView {
    float* slots;
    int64_t slot_floats, layer_floats, conv_floats, head_floats;
    // Draft records, two buffers a slot: [slot][buffer][layer][OJ_MAX_DRAFTS][record_row], a row
    // being raw [channels], decay [n_v_heads], beta [n_v_heads]; then hidden
    // [OJ_MAX_DRAFTS][n_embd]. The convolution of a recorded row is computed again.
    float* records;
    int64_t record_floats, record_layer_floats, record_row_floats;

    OJ_HD float* slot(int s) const { return slots + s * slot_floats; }
    OJ_HD float* conv(int s, int layer) const { return slot(s) + layer * layer_floats; }
    OJ_HD float* head(int s, int layer, int h) const {
        return conv(s, layer) + conv_floats + h * head_floats;
    }
    OJ_HD float* hidden(int s, int n_delta_layers) const {
        return slot(s) + n_delta_layers * layer_floats;
    }
    OJ_HD float* record(int s, int buffer, int layer, int row) const {
        return records + (static_cast<int64_t>(s) * 2 + buffer) * record_floats +
               layer * record_layer_floats + row * record_row_floats;
    }
    OJ_HD float* record_hidden(int s, int buffer, int n_delta_layers, int row, int n_embd) const {
        return record(s, buffer, n_delta_layers, 0) + static_cast<int64_t>(row) * n_embd;
    }
};

// KV pages (kv_page.h has the order inside a block).
struct KvView {
    uint8_t* data;
    int64_t page_bytes, layer_bytes, head_bytes, block_bytes;  // block: keys or values of one head
    int codec;                                                 // oj_kv_codec

    OJ_HD uint8_t* keys(int page, int layer, int head) const {
        return data + page * page_bytes + layer * layer_bytes + head * head_bytes;
    }
    OJ_HD uint8_t* values(int page, int layer, int head) const {
        return keys(page, layer, head) + block_bytes;
    }
};

// Where the blocks that choose one row's token together leave what each found in its part of the
// vocabulary.
constexpr int max_team = 32;
struct TeamPart {
    int64_t sum;
    float value;
    int32_t id;
};
struct alignas(128) TeamMemory {
    uint32_t arrived;               // blocks, over all meetings; 0 when choosing begins
    TeamPart parts[2][max_team];    // of this meeting and the one before, by parity
    uint64_t bins[3][kSelectBins];  // of rounds of selections in turn: the next round's are 0
};

// Buffers of a step, sized once: for max_step_rows, where not stated otherwise.
struct Scratch {
    float* x;                        // residual stream [row][n_embd]
    float* hidden;                   // post-norm hidden [row][n_embd]
    float* rotation;                 // cosines, then sines, [rope_dim / 2] each, per row
    Input input;                     // of the next matrix products
    Product qkv, gate, beta, alpha;  // DeltaNet in; attention: qkv = q and gate of every head
    Product key, value;
    Product up, out;      // FFN gate is `gate`; out: what is added to x next
    Product logits;       // [logits row][n_vocab], one segment; without keep_logits only sampled
                          // rows have one
    float* query;         // [row][n_heads][head_dim], normed, rotated, scaled (f16, f32 codecs)
    int8_t* query_codes;  // q8_0: hi, lo in fragment order (attention.h)
    float* query_scales;  // [row][n_heads][head_dim / 32]
    float* partials;      // attention: [row][head][split of the wave][max, sum, out[head_dim]]
    float* totals;        // attention: folded splits [row][head][max, sum, out[head_dim]]
    float* core;          // DeltaNet: o of every V head, before norm and gate, [row][v_channels]
    // sampling and drafts
    float* scores;         // [sampled row][n_vocab], of a draft pass [drafting run]: where qkv,
                           // gate, up and partials are when nobody chooses
    TeamMemory* teams;     // [logits row], or of a draft pass [drafting run]
    int32_t* chosen;       // [logits row] token that the row chooses or accepts
    oj_logprob* logprobs;  // [logits row]
    float* drawn_scores;   // [slot][OJ_MAX_DRAFTS][n_vocab] of drawn drafts, until verified
    Distribution* drawn;   // [slot][OJ_MAX_DRAFTS]
    Product draft_logits;  // [drafting run][draft head rows], one segment
    float* draft_hidden;   // [drafting run][n_embd], chained
    float* kept_drafts;    // [run * OJ_MAX_DRAFTS + depth][n_vocab], with keep_logits; may be null
    oj_seq_result* results;  // [run]
};

// Everything a phase needs besides its own parameters.
struct Context {
    Dims dims;
    StepView step;   // the rows of the plan
    StepView draft;  // one row for each drafting run, in the order of step.drafting, each a run of
                     // its own: what an MTP draft pass works on
    Scratch scratch;
    StatesView states;
    KvView kv;
    const double* frequencies;  // [rope_dim / 2]
    const uint8_t* embed;       // token_embd blocks, host memory that the device can read
    int embed_type;
    int64_t embed_row_bytes;
    const int32_t* draft_ids;  // ids of the draft head's rows, or null: all
    int n_draft_ids;
    uint32_t* fault;  // GridBarrier.fault
};

}  // namespace oj::cuda
