// The model's weights by role, as the CPU reads them.
#pragma once

#include <optional>
#include <vector>

#include "cpu/weights.h"
#include "model/model.h"

namespace oj::cpu {

struct AttentionWeights {
    Matrix q, k, v, output;
    const float* q_norm;
    const float* k_norm;
    int kv_layer;  // index into a KV page
};

struct DeltaWeights {
    Matrix qkv, gate, beta, alpha, out;
    const float* a;
    const float* dt;
    const float* norm;
    const float* conv;  // [tap][channel]
    int state_layer;    // index into a slot's state
};

struct LayerWeights {
    LayerKind kind;
    const float* attn_norm;
    const float* ffn_norm;
    AttentionWeights attention;
    DeltaWeights delta;
    Matrix ffn_gate, ffn_up, ffn_down;
};

struct MtpWeights {
    LayerWeights layer;
    Matrix eh_proj, head;
    const float* enorm;
    const float* hnorm;
    const float* head_norm;
    const Tensor* embed;
};

// Owns everything packed; the rest points into the model's file.
class ModelWeights {
public:
    // `draft_ids`: the tokens that drafts are chosen from; empty: all.
    ModelWeights(const Model& model, bool with_mtp, std::vector<int32_t> draft_ids,
                 ThreadPool& pool);

    int n_delta_layers = 0;
    int n_kv_layers = 0;  // attention layers, the MTP block's included

    const Tensor* embed;
    std::vector<LayerWeights> layers;
    const float* output_norm;
    Matrix output;
    std::optional<MtpWeights> mtp;
    std::vector<int32_t> draft_ids;  // of the rows of mtp->head; empty: of all

private:
    LayerWeights layer_weights(const Layer& layer, const Hparams& hparams);

    WeightStore store_;
    std::optional<RowSubset> draft_head_;
    Pages<float> conv_;
};

}  // namespace oj::cpu
