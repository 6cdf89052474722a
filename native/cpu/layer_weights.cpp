#include "cpu/layer_weights.h"

namespace oj::cpu {

namespace {

int count_delta_layers(const Model& model) {
    int n = 0;
    for (const Layer& layer : model.layers)
        n += layer.kind == LayerKind::delta_net;
    return n;
}

size_t conv_floats(const Hparams& hparams) {
    return static_cast<size_t>(hparams.conv_kernel) * hparams.conv_channels();
}

}  // namespace

ModelWeights::ModelWeights(const Model& model, bool with_mtp, std::vector<int32_t> ids,
                           ThreadPool& pool)
    : embed(&model.token_embd),
      output_norm(model.output_norm.f32()),
      draft_ids(std::move(ids)),
      store_(model, with_mtp, draft_ids.empty(), pool),
      conv_(conv_floats(model.hparams) * count_delta_layers(model), "convolution weights") {
    for (const Layer& layer : model.layers)
        layers.push_back(layer_weights(layer, model.hparams));
    output = store_.matrix(model.output);
    if (!with_mtp) return;
    const Mtp& from = *model.mtp;
    MtpWeights to;
    to.layer = layer_weights(from.layer, model.hparams);
    to.eh_proj = store_.matrix(from.eh_proj);
    to.head = draft_ids.empty() ? store_.matrix(from.head)
                                : draft_head_.emplace(from.head, draft_ids, pool).matrix();
    to.enorm = from.enorm.f32();
    to.hnorm = from.hnorm.f32();
    to.head_norm = from.head_norm.f32();
    to.embed = &from.embed;
    mtp = to;
}

LayerWeights ModelWeights::layer_weights(const Layer& layer, const Hparams& hparams) {
    LayerWeights w = {};
    w.kind = layer.kind;
    w.attn_norm = layer.attn_norm.f32();
    w.ffn_norm = layer.post_attention_norm.f32();
    w.ffn_gate = store_.matrix(layer.ffn_gate);
    w.ffn_up = store_.matrix(layer.ffn_up);
    w.ffn_down = store_.matrix(layer.ffn_down);
    if (layer.kind == LayerKind::attention) {
        AttentionWeights& a = w.attention;
        a.q = store_.matrix(layer.attn_q);
        a.k = store_.matrix(layer.attn_k);
        a.v = store_.matrix(layer.attn_v);
        a.output = store_.matrix(layer.attn_output);
        a.q_norm = layer.attn_q_norm.f32();
        a.k_norm = layer.attn_k_norm.f32();
        a.kv_layer = n_kv_layers++;
        return w;
    }
    DeltaWeights& d = w.delta;
    d.qkv = store_.matrix(layer.attn_qkv);
    d.gate = store_.matrix(layer.attn_gate);
    d.beta = store_.matrix(layer.ssm_beta);
    d.alpha = store_.matrix(layer.ssm_alpha);
    d.out = store_.matrix(layer.ssm_out);
    d.a = layer.ssm_a.f32();
    d.dt = layer.ssm_dt.f32();
    d.norm = layer.ssm_norm.f32();
    d.state_layer = n_delta_layers++;

    int channels = hparams.conv_channels(), taps = hparams.conv_kernel;
    float* conv = conv_.data() + conv_floats(hparams) * d.state_layer;
    for (int c = 0; c < channels; ++c) {
        for (int t = 0; t < taps; ++t) {
            conv[static_cast<size_t>(t) * channels + c] = layer.ssm_conv1d.f32()[c * taps + t];
        }
    }
    d.conv = conv;
    return w;
}

}  // namespace oj::cpu
