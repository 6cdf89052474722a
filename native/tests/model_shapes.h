// Models that are only shapes: tensors with types and sizes whose data is never read.
#pragma once

#include <memory>
#include <string>

#include "model/model.h"

namespace oj::test {

class ShapeBuilder {
public:
    ShapeBuilder(Hparams hparams, bool mixed) : mixed_(mixed) { model_.hparams = hparams; }

    Model build() {
        Hparams& h = model_.hparams;
        model_.path = "shape.gguf";
        model_.token_embd = matrix("token_embd", h.n_vocab, h.n_embd, BlockType::Q4_K);
        model_.output = matrix("output", h.n_vocab, h.n_embd, BlockType::Q6_K);
        model_.output_norm = vector("output_norm", h.n_embd);
        for (int i = 0; i < h.n_layers; ++i)
            model_.layers.push_back(layer(i, h.layer_kinds[i]));
        if (h.has_mtp) {
            Mtp mtp;
            mtp.layer = layer(h.n_layers, LayerKind::attention);
            mtp.eh_proj = matrix("eh_proj", h.n_embd, 2 * h.n_embd, BlockType::Q4_K);
            mtp.enorm = vector("enorm", h.n_embd);
            mtp.hnorm = vector("hnorm", h.n_embd);
            mtp.head_norm = vector("head_norm", h.n_embd);
            mtp.embed = model_.token_embd;
            mtp.head = model_.output;
            model_.mtp = mtp;
        }
        return std::move(model_);
    }

private:
    Tensor tensor(const std::string& name, int64_t rows, int64_t cols, BlockType type) {
        Tensor t;
        t.name = name;
        t.type = type;
        t.rows = rows;
        t.cols = cols;
        t.row_bytes = row_bytes(type, cols);
        next_ += t.bytes() + 64;
        t.data = reinterpret_cast<const uint8_t*>(next_);  // unique, never read
        return t;
    }

    Tensor vector(const std::string& name, int64_t n) { return tensor(name, 1, n, BlockType::F32); }

    // Q4_K_M's recipe, or every type in turn.
    Tensor matrix(const std::string& name, int64_t rows, int64_t cols, BlockType type) {
        constexpr BlockType types[] = {BlockType::Q4_K, BlockType::Q8_0,  BlockType::F32,
                                       BlockType::Q6_K, BlockType::Q5_1,  BlockType::BF16,
                                       BlockType::Q5_K, BlockType::IQ4_NL};
        if (mixed_) type = types[turn_++ % 8];
        return tensor(name, rows, cols, type);
    }

    Layer layer(int i, LayerKind kind) {
        const Hparams& h = model_.hparams;
        int n = h.n_layers + (h.has_mtp ? 1 : 0), eighth = n / 8;
        bool more = i < eighth || i >= 7 * n / 8 || (i - eighth) % 3 == 2;
        BlockType fine = more ? BlockType::Q6_K : BlockType::Q4_K, plain = BlockType::Q4_K;
        std::string p = "blk." + std::to_string(i) + ".";
        Layer l;
        l.index = i;
        l.kind = kind;
        l.attn_norm = vector(p + "attn_norm", h.n_embd);
        l.post_attention_norm = vector(p + "post_attention_norm", h.n_embd);
        l.ffn_gate = matrix(p + "ffn_gate", h.n_ff, h.n_embd, plain);
        l.ffn_up = matrix(p + "ffn_up", h.n_ff, h.n_embd, plain);
        l.ffn_down = matrix(p + "ffn_down", h.n_embd, h.n_ff, fine);
        if (kind == LayerKind::attention) {
            l.attn_q = matrix(p + "attn_q", 2 * h.q_rows(), h.n_embd, plain);
            l.attn_k = matrix(p + "attn_k", h.kv_rows(), h.n_embd, plain);
            l.attn_v = matrix(p + "attn_v", h.kv_rows(), h.n_embd, fine);
            l.attn_output = matrix(p + "attn_output", h.n_embd, h.q_rows(), plain);
            l.attn_q_norm = vector(p + "attn_q_norm", h.head_dim);
            l.attn_k_norm = vector(p + "attn_k_norm", h.head_dim);
            return l;
        }
        l.attn_qkv = matrix(p + "attn_qkv", h.conv_channels(), h.n_embd, fine);
        l.attn_gate = matrix(p + "attn_gate", h.v_channels(), h.n_embd, plain);
        l.ssm_beta = matrix(p + "ssm_beta", h.n_v_heads, h.n_embd, plain);
        l.ssm_alpha = matrix(p + "ssm_alpha", h.n_v_heads, h.n_embd, plain);
        l.ssm_out = matrix(p + "ssm_out", h.n_embd, h.v_channels(), plain);
        l.ssm_conv1d = tensor(p + "ssm_conv1d", h.conv_channels(), h.conv_kernel, BlockType::F32);
        l.ssm_a = vector(p + "ssm_a", h.n_v_heads);
        l.ssm_dt = vector(p + "ssm_dt", h.n_v_heads);
        l.ssm_norm = vector(p + "ssm_norm", h.state_dim);
        return l;
    }

    Model model_;
    bool mixed_;
    int turn_ = 0;
    uintptr_t next_ = 64;
};

inline Hparams shape_of(int n_embd, int n_layers, int n_ff, int n_heads, int n_kv_heads,
                        int n_k_heads, int n_v_heads, int n_vocab) {
    Hparams h;
    h.n_vocab = n_vocab;
    h.n_ctx_train = 262144;
    h.n_embd = n_embd;
    h.n_ff = n_ff;
    h.n_layers = n_layers;
    for (int i = 0; i < n_layers; ++i)
        h.layer_kinds.push_back(i % 4 == 3 ? LayerKind::attention : LayerKind::delta_net);
    h.has_mtp = true;
    h.n_heads = n_heads;
    h.n_kv_heads = n_kv_heads;
    h.head_dim = 256;
    h.rope_dim = 64;
    h.rope_base = 1e7f;
    h.n_k_heads = n_k_heads;
    h.n_v_heads = n_v_heads;
    h.state_dim = 128;
    h.conv_kernel = 4;
    h.rms_eps = 1e-6f;
    return h;
}

// Qwen3.8-27B in Q4_K_M.
inline Model shape_27b() {
    return ShapeBuilder(shape_of(5120, 64, 17408, 24, 4, 16, 48, 248320), false).build();
}

// Hidden 256, four layers, every block type.
inline Model shape_mixed() {
    return ShapeBuilder(shape_of(256, 4, 768, 2, 1, 2, 6, 500), true).build();
}

}  // namespace oj::test
