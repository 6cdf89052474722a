// The layers of the model over a batch of rows. Every function here is run by all threads of a job
// together, starts with its inputs visible to all of them and ends with a barrier.
#pragma once

#include "cpu/batch.h"
#include "cpu/gemm.h"
#include "cpu/kv_pool.h"
#include "cpu/layer_weights.h"
#include "cpu/scratch.h"
#include "cpu/states.h"

namespace oj::cpu {

// What the layers work on.
struct Machine {
    const Hparams& h;
    const Kernels& kernels;
    Scratch& scratch;
    States& states;
    const KvPool& kv;
    const double* frequencies;  // [rope_dim / 2], radians a position
};

// scratch.rotation of every row. No barrier.
void rotate_rows(Worker& worker, const Machine& m, const Batch& batch);

// scratch.input = forms of norm(scratch.x).
void norm_rows(Worker& worker, const Machine& m, const float* weight, int rows, Forms forms);

// Rows of scratch.input that were written as floats get their int8 forms.
void quantize_rows(Worker& worker, const Machine& m, int rows, int cols, Forms forms);

// One layer: scratch.x -> scratch.x.
void layer(Worker& worker, const Machine& m, const LayerWeights& w, const Batch& batch);

// The parts of a layer; each adds its result to scratch.x.
void attention(Worker& worker, const Machine& m, const LayerWeights& w, const Batch& batch);
void delta_net(Worker& worker, const Machine& m, const LayerWeights& w, const Batch& batch);
void feed_forward(Worker& worker, const Machine& m, const LayerWeights& w, int rows);

// Only what later rows need of an attention layer: the rows' keys and values.
void attention_kv(Worker& worker, const Machine& m, const LayerWeights& w, const Batch& batch);

// Advances a slot's state over the first `n` of its recorded draft rows (all DeltaNet layers).
struct Fold {
    int slot;
    int n;
};
void fold_drafts(Worker& worker, const Machine& m, const std::vector<Fold>& folds);

}  // namespace oj::cpu
