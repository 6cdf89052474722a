// What the metadata of a qwen35 file says about the model, checked.
#pragma once

#include <cstdint>
#include <vector>

namespace oj {

class GgufFile;

enum class LayerKind { delta_net, attention };

// All counts are positive and small enough for any product of two of them to fit int64; the
// divisibility that the model needs has been checked.
struct Hparams {
    int32_t n_vocab = 0;
    int32_t n_ctx_train = 0;
    int32_t n_embd = 0;
    int32_t n_ff = 0;
    int32_t n_layers = 0;                // without the MTP block
    std::vector<LayerKind> layer_kinds;  // n_layers
    bool has_mtp = false;                // block n_layers is an MTP block, and is in the file

    // Attention and MTP layers. Query head h uses KV head h / (n_heads / n_kv_heads).
    int32_t n_heads = 0;
    int32_t n_kv_heads = 0;
    int32_t head_dim = 0;

    // RoPE on the first rope_dim dimensions of a head, pairs (d, d + rope_dim / 2), angle
    // position * rope_base^(-2d / rope_dim). For text the multi-axis sections of the file make no
    // difference; a file where they would is refused, and so is RoPE scaling.
    int32_t rope_dim = 0;
    float rope_base = 0;

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

// Throws oj::Error unless the file is a whole qwen35 model in a layout we run.
void check_architecture(const GgufFile& file);

// Throws oj::Error naming the key that is missing, impossible or not supported. `n_vocab` is the
// vocabulary's size.
Hparams read_hparams(const GgufFile& file, int32_t n_vocab);

}  // namespace oj
