// A step as data: phases in order. In the persistent kernel a block begins a phase when all blocks
// that worked on earlier ones are done; in the control build each phase is a kernel of its own. The
// same functions either way.
#pragma once

#include "cuda/types.h"

namespace oj::cuda {

enum class PhaseKind : int32_t {
    embed,         // x = embedding rows; rotation
    norm_input,    // x += out (if `adds`); input = forms of norm(x)
    multiply,      // products of input
    delta_core,    // convolution, gates, recurrence over a run: core, states, draft records
    delta_out,     // norm and gate of core: input; the convolution's past moves on
    attn_prepare,  // query; keys and values are stored
    attn_splits,   // partials of one wave of splits
    attn_fold,     // totals; after the last wave the gated result: input
    act_input,     // input = silu(gate) * up
    head_input,    // x += out; hidden = norm(x); input = hidden of the logits rows
    choose,        // each logits row's token and log-probability, as if its drafts were accepted
    verify,        // results of every run; hidden rows into slots and records. After the MTP store
                   // pass, which reads the hidden that this overwrites
    mtp_join,      // x = 0; input = [norm(embedding), norm(hidden before)]; draft pass: token,
                   // position and rotation of its rows from `results`
    draft_norm,    // x += out; draft_hidden = norm(x); input
    draft_choose,  // the draft of every drafting run at this depth
};

// Buffers that products go to.
enum class Target : int32_t { qkv, gate, beta, alpha, key, value, up, out, logits, draft_logits };

// How a product that a phase writes or reads lies in its buffer: it depends on the matrix. Who runs
// the phase puts it into Scratch first (set_products).
struct ProductShape {
    Target target;
    int32_t rows, n_segments;
};

struct Phase {
    PhaseKind kind;
    int32_t draft_pass;    // 1: works on Context.draft
    int32_t depth;         // of a draft pass
    int32_t adds;          // norm_input: x += out first
    int32_t kv_only;       // attn_prepare: no queries (MTP store)
    int32_t wave;          // attn_splits, attn_fold: from the SequenceEntry, which repeats the two
    Forms forms;           // of the input that this phase writes
    int32_t product;       // multiply: which of the program's products
    const float* weight;   // norm weight
    const float* weight2;  // mtp_join: of the hidden before
    AttentionParams attention;
    DeltaParams delta;
    int32_t n_matrices;
    Matrix matrices[4];
    Target targets[4];
    int32_t n_products;
    ProductShape products[4];
};

OJ_HD Product& product_of(Scratch& s, Target target) {
    switch (target) {
        case Target::qkv:
            return s.qkv;
        case Target::gate:
            return s.gate;
        case Target::beta:
            return s.beta;
        case Target::alpha:
            return s.alpha;
        case Target::key:
            return s.key;
        case Target::value:
            return s.value;
        case Target::up:
            return s.up;
        case Target::out:
            return s.out;
        case Target::logits:
            return s.logits;
        case Target::draft_logits:
            break;
    }
    return s.draft_logits;
}

OJ_HD void set_products(Scratch& s, const Phase& p) {
    for (int i = 0; i < p.n_products; ++i) {
        Product& product = product_of(s, p.products[i].target);
        product.rows = p.products[i].rows;
        product.n_segments = p.products[i].n_segments;
    }
}

// One step: which phases in which order. The phases are the model's, the order is the step's.
struct SequenceEntry {
    int32_t phase;  // index into Schedule.phases
    int32_t wave;   // Phase.wave of this visit
    // Set by plan_meetings() and plan_runs():
    int32_t n_blocks = 0;    // blocks [0, n_blocks) have work here; the others go past
    int32_t run = -1;        // of a multiply phase: where it is in Schedule.runs
    uint32_t begins_at = 0;  // arrivals at all entries before this one
};

// 16 weight rows and one K segment, or all columns where the product adds its segments itself
// (n_segments 1).
struct alignas(8) Unit {
    int32_t tile;
    int16_t segment, matrix;
};

// What a warp streams and multiplies at a time, resolved, so that the stream finds it with one
// load: a unit, or those of two neighbouring tiles.
struct alignas(16) Bundle {
    const uint8_t* from;      // packed weights of the first tile; rows of float types
    int32_t bytes;            // of each tile; 0 of float types, which are not streamed
    int32_t tile_bytes;       // from a tile to the next one
    int32_t tile;             // the first one
    int16_t product;          // Phase.product; -1: none
    int16_t segment, matrix;  // as in Unit
    int16_t block_bytes;      // of a whole block
    int8_t tiles;
    int8_t piece_blocks;  // that may be copied at once
};

// Products that a step multiplies one after the other, with the same rows.
struct alignas(8) ProductRun {
    int16_t first, end;
    int32_t n_rows;
};

struct Schedule {
    const Phase* phases;
    const SequenceEntry* sequence;
    const ProductRun* runs;  // in the order of the sequence
    const Bundle* bundles;   // each warp's in the order of the products
    // Where a warp's bundles of a product begin: [warp][n_products + 1], the last one their end.
    const int32_t* first_bundles;
    int32_t n_entries, n_runs, n_products;
    int32_t only;  // the one product of the run that is multiplied, or -1
};

}  // namespace oj::cuda
