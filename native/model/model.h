// A model file of architecture qwen35 (Qwen3.5, 3.6, 3.8 dense) as the engine and its backends see
// it: checked hyperparameters, weights by role, vocabulary. Nothing here or below needs to know
// about GGUF.
//
// Notation: a weight is row-major [rows][cols] with y = W x, so `rows` are outputs and `cols`
// inputs; a vector has rows == 1. What each tensor does is in docs/architecture.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/block_types.h"
#include "model/error.h"
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

// All counts are positive and small enough for any product of two of them to fit int64; the
// divisibility that the model needs has been checked.
struct Hparams {
    int32_t n_vocab = 0;
    int32_t n_ctx_train = 0;
    int32_t n_embd = 0;
    int32_t n_ff = 0;
    int32_t n_layers = 0;  // without the MTP block

    // Attention and MTP layers. Query head h uses KV head h / (n_heads / n_kv_heads).
    int32_t n_heads = 0;
    int32_t n_kv_heads = 0;
    int32_t head_dim = 0;

    // RoPE on the first rope_dim dimensions of a head, pairs (d, d + rope_dim / 2), angle
    // position * rope_scale * rope_base^(-2d / rope_dim). For text the multi-axis sections of the
    // file make no difference; a file where they would is refused.
    int32_t rope_dim = 0;
    float rope_base = 0;
    float rope_scale = 1;

    // DeltaNet layers. V head j uses Q and K head j % n_k_heads.
    int32_t n_k_heads = 0;
    int32_t n_v_heads = 0;
    int32_t state_dim = 0;    // of a Q, K or V head; a head's state is state_dim x state_dim
    int32_t conv_kernel = 0;  // taps; the last one is the current token's

    float rms_eps = 0;

    int32_t q_rows() const { return n_heads * head_dim; }
    int32_t kv_rows() const { return n_kv_heads * head_dim; }
    int32_t k_channels() const { return n_k_heads * state_dim; }
    int32_t v_channels() const { return n_v_heads * state_dim; }
    int32_t conv_channels() const { return 2 * k_channels() + v_channels(); }  // q | k | v
};

enum class LayerKind { delta_net, attention };

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
    Tensor attn_q;  // [2 q_rows][n_embd], for each head head_dim query rows, then head_dim gate rows
    Tensor attn_k;  // [kv_rows][n_embd]
    Tensor attn_v;  // [kv_rows][n_embd]
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
    std::string name;  // general.name, or the file's name when absent
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

    uint64_t weight_bytes = 0;  // of the tensors above, each counted once

    std::shared_ptr<const GgufFile> file;
};

// Opens and checks a file; reads no weights. Throws oj::Error (OJ_ERR_IO, OJ_ERR_FORMAT,
// OJ_ERR_UNSUPPORTED) naming the file and the key or tensor, with nothing left open.
Model load_model(const std::string& path);

// The same from an already parsed container.
Model load_model(std::shared_ptr<const GgufFile> file);

}  // namespace oj
