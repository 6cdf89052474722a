// A model file of architecture qwen35 (Qwen3.5, 3.6, 3.8 dense) as the engine and its backends see
// it: checked hyperparameters, weights by role, vocabulary. Nothing here or below needs to know
// about GGUF.
//
// Notation: a weight is row-major [rows][cols] with y = W x, so `rows` are outputs and `cols`
// inputs; a vector has rows == 1. tests/reference/model.py shows what each tensor does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/block_types.h"
#include "model/error.h"
#include "model/hparams.h"
#include "model/vocabulary.h"

namespace oj {

class GgufFile;

// A view of a weight in the mapped file. Copies are cheap; valid while its Model lives.
struct Tensor {
    std::string name;
    BlockType type = BlockType::F32;
    int64_t rows = 0;
    int64_t cols = 0;  // a multiple of the type's block_elements
    const uint8_t* data = nullptr;
    size_t row_bytes = 0;

    size_t bytes() const { return row_bytes * static_cast<size_t>(rows); }
    const uint8_t* row(int64_t r) const { return data + row_bytes * static_cast<size_t>(r); }

    // Norm weights, ssm_a, ssm_dt and ssm_conv1d are always F32.
    const float* f32() const { return reinterpret_cast<const float*>(data); }
};

// The tensors of the other kind are empty (data == nullptr). Fields have the file's names.
struct Layer {
    int32_t index = 0;  // of the block in the file
    LayerKind kind = LayerKind::attention;

    Tensor attn_norm;            // [n_embd]
    Tensor post_attention_norm;  // [n_embd], in front of the FFN
    Tensor ffn_gate;             // [n_ff][n_embd]
    Tensor ffn_up;               // [n_ff][n_embd]
    Tensor ffn_down;             // [n_embd][n_ff]

    // attention. A fused attn_qkv of the file is presented as these three.
    Tensor
        attn_q;  // [2 q_rows][n_embd], for each head head_dim query rows, then head_dim gate rows
    Tensor attn_k;       // [kv_rows][n_embd]
    Tensor attn_v;       // [kv_rows][n_embd]
    Tensor attn_q_norm;  // [head_dim]
    Tensor attn_k_norm;  // [head_dim]
    Tensor attn_output;  // [n_embd][q_rows]

    // delta_net
    Tensor attn_qkv;    // [conv_channels][n_embd]
    Tensor attn_gate;   // [v_channels][n_embd]
    Tensor ssm_beta;    // [n_v_heads][n_embd]
    Tensor ssm_alpha;   // [n_v_heads][n_embd]
    Tensor ssm_conv1d;  // [conv_channels][conv_kernel]
    Tensor ssm_a;       // [n_v_heads], already -exp(A_log)
    Tensor ssm_dt;      // [n_v_heads], added to alpha
    Tensor ssm_norm;    // [state_dim]
    Tensor ssm_out;     // [n_embd][v_channels]
};

// The multi-token-prediction head: one attention layer between eh_proj and a head.
struct Mtp {
    Layer layer;
    Tensor eh_proj;    // [n_embd][2 n_embd], input is embedding, then hidden
    Tensor enorm;      // [n_embd]
    Tensor hnorm;      // [n_embd]
    Tensor head_norm;  // [n_embd]; the model's output_norm when the file has none of its own
    Tensor embed;      // [n_vocab][n_embd]; likewise token_embd
    Tensor head;       // [n_vocab][n_embd]; likewise output
};

// general.sampling.* of the file; nothing where the file says nothing.
struct SamplingDefaults {
    std::string sequence;  // ";"-separated names, empty when absent
    std::optional<int32_t> top_k;
    std::optional<float> top_p;
    std::optional<float> min_p;
    std::optional<float> temperature;
    std::optional<float> repetition_penalty;
    std::optional<int32_t> penalty_last_n;
};

// Immutable once loaded, so usable from any number of threads. Owns the mapping all views point to.
struct Model {
    std::string path;
    std::string name;        // general.name, or the file's name when absent
    int32_t file_type = -1;  // general.file_type (15 is MOSTLY_Q4_K_M), -1 when absent

    Hparams hparams;
    Tensor token_embd;   // [n_vocab][n_embd]
    Tensor output_norm;  // [n_embd]
    Tensor output;       // [n_vocab][n_embd]
    bool tied = false;   // output is token_embd
    std::vector<Layer> layers;
    std::optional<Mtp> mtp;

    Vocabulary vocab;
    SamplingDefaults sampling;

    std::vector<Tensor> tensors;  // all of the above, each once, in file order
    int64_t parameters = 0;       // elements in them
    uint64_t weight_bytes = 0;

    std::shared_ptr<const GgufFile> file;
};

// Opens and checks a file; reads no weights. Throws oj::Error (OJ_ERR_IO, OJ_ERR_FORMAT,
// OJ_ERR_UNSUPPORTED) naming the file and the key or tensor, with nothing left open.
Model load_model(const std::string& path);

// The same from an already parsed container.
Model load_model(std::shared_ptr<const GgufFile> file);

}  // namespace oj
