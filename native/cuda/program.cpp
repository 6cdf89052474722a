#include "cuda/program.h"

#include <initializer_list>
#include <utility>

#include "cuda/tile.h"

namespace oj::cuda {

namespace {

int count_layers(const Model& model, LayerKind kind) {
    int n = 0;
    for (const Layer& layer : model.layers)
        n += layer.kind == kind;
    return n;
}

// Builds a program in the order of execution.
class Builder {
public:
    Builder(const Model& model, const WeightAddresses& weights, Program* program)
        : model_(model), weights_(weights), phases_(program->phases) {}

    int next() const { return static_cast<int>(phases_.size()); }

    void embed() { add(PhaseKind::embed); }

    void layer(const Layer& layer) {
        if (layer.kind == LayerKind::delta_net) {
            delta_net(layer);
        } else {
            attention_in(layer, {{&layer.attn_q, Target::qkv},
                                 {&layer.attn_k, Target::key},
                                 {&layer.attn_v, Target::value}});
            attention_core(layer);
        }
        feed_forward(layer);
    }

    void head_input() {
        Phase& p = add(PhaseKind::head_input);
        p.weight = weights_.vector(model_.output_norm);
        p.forms = forms_of({&model_.output});
        reads(&p, {Target::out});
    }

    void output() { multiply({{&model_.output, Target::logits}}); }

    void choose() { reads(&add(PhaseKind::choose), {Target::logits}); }

    void verify() { add(PhaseKind::verify); }

    void mtp_store() {
        const Layer& layer = model_.mtp->layer;
        mtp_join();
        attention_in(layer, {{&layer.attn_k, Target::key}, {&layer.attn_v, Target::value}});
        Phase& p = add(PhaseKind::attn_prepare);
        p.kv_only = 1;
        reads(&p, {Target::key, Target::value});
        p.attention = attention_params(layer, n_kv_layers_);
    }

    void mtp_draft(int depth, const Tensor& head) {
        draft_pass_ = true;
        depth_ = depth;
        mtp_join();
        int kv_layers = n_kv_layers_;
        layer(model_.mtp->layer);
        n_kv_layers_ = kv_layers;  // every pass has the same one
        Phase& p = add(PhaseKind::draft_norm);
        p.weight = weights_.vector(model_.mtp->head_norm);
        p.forms = forms_of({&head});
        reads(&p, {Target::out});
        multiply({{&head, Target::draft_logits}});
        reads(&add(PhaseKind::draft_choose), {Target::draft_logits});
        draft_pass_ = false;
    }

private:
    using Products = std::initializer_list<std::pair<const Tensor*, Target>>;

    Phase& add(PhaseKind kind) {
        Phase p = {};
        p.kind = kind;
        p.draft_pass = draft_pass_ ? 1 : 0;
        p.depth = depth_;
        phases_.push_back(p);
        return phases_.back();
    }

    static Forms forms_of(std::initializer_list<const Tensor*> readers) {
        Forms forms = {};
        for (const Tensor* tensor : readers) {
            uint32_t elements = block_type_info(tensor->type).block_elements;
            forms.values |= elements == 1;
            forms.group32 |= elements == small_group;
            forms.group256 |= elements == super_group;
        }
        return forms;
    }

    static Forms forms_of(Products products) {
        Forms forms = {};
        for (const auto& product : products) {
            Forms one = forms_of({product.first});
            forms.values |= one.values;
            forms.group32 |= one.group32;
            forms.group256 |= one.group256;
        }
        return forms;
    }

    void reads(Phase* p, std::initializer_list<Target> targets) {
        for (Target target : targets)
            p->products[p->n_products++] = shapes_[static_cast<int>(target)];
    }

    void multiply(Products products) {
        Phase& p = add(PhaseKind::multiply);
        p.product = n_products_++;
        for (const auto& [tensor, target] : products) {
            bool sums = target == Target::logits || target == Target::draft_logits;
            Matrix m = matrix(*tensor, sums);
            p.matrices[p.n_matrices] = m;
            p.targets[p.n_matrices++] = target;
            shapes_[static_cast<int>(target)] = {target, m.rows, m.n_segments};
            p.products[p.n_products++] = shapes_[static_cast<int>(target)];
        }
    }

    Matrix matrix(const Tensor& tensor, bool sums_segments) const {
        Matrix m = {};
        m.data = weights_.matrix(tensor);
        m.type = static_cast<int>(tensor.type);
        m.rows = static_cast<int>(tensor.rows);
        m.cols = static_cast<int>(tensor.cols);
        m.n_tiles = n_tiles(tensor);
        m.tile_bytes = packed_tile_bytes(tensor.type, tensor.cols);
        bool split = !sums_segments && tensor.cols > k_segment;
        m.n_segments = split ? (m.cols + k_segment - 1) / k_segment : 1;
        m.segment_bytes = split ? packed_tile_bytes(tensor.type, k_segment) : m.tile_bytes;
        return m;
    }

    void norm(const Tensor& weight, Forms forms) {
        Phase& p = add(PhaseKind::norm_input);
        p.weight = weights_.vector(weight);
        p.forms = forms;
        if (phases_[phases_.size() - 2].kind == PhaseKind::embed) return;
        p.adds = 1;
        reads(&p, {Target::out});
    }

    void delta_net(const Layer& layer) {
        norm(layer.attn_norm,
             forms_of({&layer.attn_qkv, &layer.attn_gate, &layer.ssm_beta, &layer.ssm_alpha}));
        multiply({{&layer.attn_qkv, Target::qkv},
                  {&layer.attn_gate, Target::gate},
                  {&layer.ssm_beta, Target::beta},
                  {&layer.ssm_alpha, Target::alpha}});
        DeltaParams params = {};
        params.a = weights_.vector(layer.ssm_a);
        params.dt = weights_.vector(layer.ssm_dt);
        params.norm = weights_.vector(layer.ssm_norm);
        params.conv = weights_.vector(layer.ssm_conv1d);
        params.state_layer = n_delta_layers_++;
        Phase& core = add(PhaseKind::delta_core);
        core.delta = params;
        reads(&core, {Target::qkv, Target::beta, Target::alpha});
        Phase& out = add(PhaseKind::delta_out);
        out.delta = params;
        out.forms = forms_of({&layer.ssm_out});
        reads(&out, {Target::qkv, Target::gate});
        multiply({{&layer.ssm_out, Target::out}});
    }

    void attention_in(const Layer& layer, Products products) {
        norm(layer.attn_norm, forms_of(products));
        multiply(products);
    }

    AttentionParams attention_params(const Layer& layer, int kv_layer) const {
        return {weights_.vector(layer.attn_q_norm), weights_.vector(layer.attn_k_norm), kv_layer};
    }

    void attention_core(const Layer& layer) {
        AttentionParams params = attention_params(layer, n_kv_layers_++);
        Phase& prepare = add(PhaseKind::attn_prepare);
        prepare.attention = params;
        reads(&prepare, {Target::qkv, Target::key, Target::value});
        add(PhaseKind::attn_splits).attention = params;
        Phase& fold = add(PhaseKind::attn_fold);
        fold.attention = params;
        fold.forms = forms_of({&layer.attn_output});
        reads(&fold, {Target::qkv});
        multiply({{&layer.attn_output, Target::out}});
    }

    void feed_forward(const Layer& layer) {
        norm(layer.post_attention_norm, forms_of({&layer.ffn_gate, &layer.ffn_up}));
        multiply({{&layer.ffn_gate, Target::gate}, {&layer.ffn_up, Target::up}});
        Phase& p = add(PhaseKind::act_input);
        p.forms = forms_of({&layer.ffn_down});
        reads(&p, {Target::gate, Target::up});
        multiply({{&layer.ffn_down, Target::out}});
    }

    void mtp_join() {
        const Mtp& mtp = *model_.mtp;
        Phase& p = add(PhaseKind::mtp_join);
        p.weight = weights_.vector(mtp.enorm);
        p.weight2 = weights_.vector(mtp.hnorm);
        p.forms = forms_of({&mtp.eh_proj});
        multiply({{&mtp.eh_proj, Target::out}});
    }

    const Model& model_;
    const WeightAddresses& weights_;
    std::vector<Phase>& phases_;
    ProductShape shapes_[10] = {};  // of the products made last, by Target
    int n_kv_layers_ = 0, n_delta_layers_ = 0, n_products_ = 0;
    bool draft_pass_ = false;
    int depth_ = 0;
};

// The attention phases take turns, wave by wave.
void append(const Program& program, PhaseRange range, int waves, std::vector<SequenceEntry>* out) {
    for (int i = range.begin; i < range.end; ++i) {
        if (program.phases[i].kind != PhaseKind::attn_splits) {
            out->push_back({i, 0});
            continue;
        }
        for (int wave = 0; wave < waves; ++wave) {
            out->push_back({i, wave});
            out->push_back({i + 1, wave});
        }
        ++i;
    }
}

}  // namespace

Dims dims_of(const Model& model, bool with_mtp) {
    const Hparams& h = model.hparams;
    Dims d = {};
    d.n_vocab = h.n_vocab;
    d.n_embd = h.n_embd;
    d.n_ff = h.n_ff;
    d.n_heads = h.n_heads;
    d.n_kv_heads = h.n_kv_heads;
    d.head_dim = h.head_dim;
    d.rope_dim = h.rope_dim;
    d.n_k_heads = h.n_k_heads;
    d.n_v_heads = h.n_v_heads;
    d.state_dim = h.state_dim;
    d.conv_kernel = h.conv_kernel;
    d.n_layers = h.n_layers;
    d.n_kv_layers = count_layers(model, LayerKind::attention) + (with_mtp ? 1 : 0);
    d.n_delta_layers = count_layers(model, LayerKind::delta_net);
    d.rms_eps = h.rms_eps;
    return d;
}

int n_tiles(const Tensor& tensor) {
    return static_cast<int>((tensor.rows + tile_rows - 1) / tile_rows);
}

Program make_program(const Model& model, const WeightAddresses& weights, const Tensor* draft_head) {
    Program program = {};
    Builder builder(model, weights, &program);
    builder.embed();
    for (const Layer& layer : model.layers)
        builder.layer(layer);
    program.layers = {0, builder.next()};
    program.head_input = builder.next();
    builder.head_input();
    program.output = builder.next();
    builder.output();
    program.choose = builder.next();
    builder.choose();
    program.store = {builder.next(), builder.next()};
    if (draft_head != nullptr) builder.mtp_store();
    program.store.end = program.verify = builder.next();
    builder.verify();
    for (int depth = 0; draft_head != nullptr && depth < OJ_MAX_DRAFTS; ++depth) {
        int begin = builder.next();
        builder.mtp_draft(depth, *draft_head);
        program.drafts.push_back({begin, builder.next()});
    }
    program.n_products = static_cast<int>(products_of(program).size());
    return program;
}

std::vector<const Phase*> products_of(const Program& program) {
    std::vector<const Phase*> products;
    for (const Phase& p : program.phases) {
        if (p.kind == PhaseKind::multiply) products.push_back(&p);
    }
    return products;
}

std::vector<SequenceEntry> Program::sequence(const StepShape& shape) const {
    std::vector<SequenceEntry> out;
    if (shape.n_rows == 0) {  // only folds
        for (int i = layers.begin; i < layers.end; ++i) {
            PhaseKind kind = phases[i].kind;
            if (kind == PhaseKind::delta_core || kind == PhaseKind::delta_out)
                out.push_back({i, 0});
        }
        out.push_back({verify, 0});
        return out;
    }
    append(*this, layers, shape.waves, &out);
    out.push_back({head_input, 0});
    if (shape.n_logits > 0) {
        out.push_back({output, 0});
        out.push_back({choose, 0});
    }
    append(*this, store, 0, &out);
    out.push_back({verify, 0});
    for (int depth = 0; depth < shape.most_drafts; ++depth)
        append(*this, drafts[depth], shape.draft_waves, &out);
    return out;
}

}  // namespace oj::cuda
