#include "model/model.h"

#include <algorithm>
#include <unordered_set>

#include "model/gguf.h"

namespace oj {
namespace {

// Parts of a file that belong to other uses of the model.
constexpr std::string_view kIgnoredPrefixes[] = {
    "v.",    // vision encoder
    "mm.",   // vision projector
    "mtp.",  // MTP block in another naming
};

std::string shape_text(int64_t rows, int64_t cols) {
    return std::to_string(rows) + " x " + std::to_string(cols);
}

// The first `rows` rows from row `first` on, as a tensor of its own.
Tensor slice(const Tensor& tensor, int64_t first, int64_t rows) {
    Tensor part = tensor;
    part.data = tensor.row(first);
    part.rows = rows;
    return part;
}

// Takes tensors out of the file by name, checking each against the expected shape, and remembers
// which were taken.
class TensorReader {
public:
    explicit TensorReader(const GgufFile& file) : file_(file) {}

    bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }

    Tensor matrix(const std::string& name, int64_t rows, int64_t cols) {
        const GgufTensor* found = file_.find_tensor(name);
        if (!found) {
            throw file_.tensor_error(OJ_ERR_FORMAT, name,
                                     "is missing, expected " + shape_text(rows, cols));
        }
        if (found->dims[1] != rows || found->dims[0] != cols || found->dims[2] != 1 ||
            found->dims[3] != 1) {
            throw file_.tensor_error(OJ_ERR_FORMAT, name,
                                     "its shape is " + shape(*found) + ", expected " +
                                         shape_text(rows, cols) + " by the metadata");
        }
        taken_.insert(found);
        return view(*found);
    }

    // Small tensors that every converter keeps in F32.
    Tensor f32_matrix(const std::string& name, int64_t rows, int64_t cols) {
        Tensor tensor = matrix(name, rows, cols);
        if (tensor.type != BlockType::F32) {
            throw file_.tensor_error(
                OJ_ERR_UNSUPPORTED, name,
                std::string("is of type ") + block_type_info(tensor.type).name + ", expected F32");
        }
        return tensor;
    }

    Tensor vector(const std::string& name, int64_t size) { return f32_matrix(name, 1, size); }

    // Everything taken, in file order. A tensor that nobody took is an error: to ignore it would be
    // to compute something else than the file's model.
    std::vector<Tensor> finish(const Hparams& h) const {
        std::vector<Tensor> all;
        for (const GgufTensor& tensor : file_.tensors()) {
            if (taken_.count(&tensor) != 0) {
                all.push_back(view(tensor));
            } else if (!is_ignored(tensor.name)) {
                throw file_.tensor_error(
                    OJ_ERR_UNSUPPORTED, tensor.name,
                    "is not part of a qwen35 model of " + std::to_string(h.n_layers) + " layers " +
                        (h.has_mtp ? "and an MTP block" : "without MTP block"));
            }
        }
        return all;
    }

private:
    static bool is_ignored(std::string_view name) {
        for (std::string_view prefix : kIgnoredPrefixes) {
            if (name.substr(0, prefix.size()) == prefix) return true;
        }
        return false;
    }

    static Tensor view(const GgufTensor& found) {
        Tensor tensor;
        tensor.name = found.name;
        tensor.type = found.type;
        tensor.rows = found.dims[1];
        tensor.cols = found.dims[0];
        tensor.data = found.data;
        tensor.row_bytes = row_bytes(found.type, found.dims[0]);
        return tensor;
    }

    static std::string shape(const GgufTensor& tensor) {
        std::string text;
        for (uint32_t d = std::max(tensor.n_dims, 2u); d-- > 0;) {
            text += std::to_string(tensor.dims[d]) + (d > 0 ? " x " : "");
        }
        return text;
    }

    const GgufFile& file_;
    std::unordered_set<const GgufTensor*> taken_;
};

void read_attention(TensorReader& reader, const std::string& block, const Hparams& h,
                    Layer& layer) {
    const int64_t q_rows = 2 * int64_t{h.q_rows()}, kv_rows = h.kv_rows();
    if (reader.has(block + "attn_qkv.weight")) {
        const Tensor fused =
            reader.matrix(block + "attn_qkv.weight", q_rows + 2 * kv_rows, h.n_embd);
        layer.attn_q = slice(fused, 0, q_rows);
        layer.attn_k = slice(fused, q_rows, kv_rows);
        layer.attn_v = slice(fused, q_rows + kv_rows, kv_rows);
    } else {
        layer.attn_q = reader.matrix(block + "attn_q.weight", q_rows, h.n_embd);
        layer.attn_k = reader.matrix(block + "attn_k.weight", kv_rows, h.n_embd);
        layer.attn_v = reader.matrix(block + "attn_v.weight", kv_rows, h.n_embd);
    }
    layer.attn_q_norm = reader.vector(block + "attn_q_norm.weight", h.head_dim);
    layer.attn_k_norm = reader.vector(block + "attn_k_norm.weight", h.head_dim);
    layer.attn_output = reader.matrix(block + "attn_output.weight", h.n_embd, h.q_rows());
}

void read_delta_net(TensorReader& reader, const std::string& block, const Hparams& h,
                    Layer& layer) {
    layer.attn_qkv = reader.matrix(block + "attn_qkv.weight", h.conv_channels(), h.n_embd);
    layer.attn_gate = reader.matrix(block + "attn_gate.weight", h.v_channels(), h.n_embd);
    layer.ssm_beta = reader.matrix(block + "ssm_beta.weight", h.n_v_heads, h.n_embd);
    layer.ssm_alpha = reader.matrix(block + "ssm_alpha.weight", h.n_v_heads, h.n_embd);
    layer.ssm_conv1d =
        reader.f32_matrix(block + "ssm_conv1d.weight", h.conv_channels(), h.conv_kernel);
    layer.ssm_a = reader.vector(block + "ssm_a", h.n_v_heads);
    const bool bare = reader.has(block + "ssm_dt") && !reader.has(block + "ssm_dt.bias");
    layer.ssm_dt = reader.vector(block + (bare ? "ssm_dt" : "ssm_dt.bias"), h.n_v_heads);
    layer.ssm_norm = reader.vector(block + "ssm_norm.weight", h.state_dim);
    layer.ssm_out = reader.matrix(block + "ssm_out.weight", h.n_embd, h.v_channels());
}

Layer read_layer(TensorReader& reader, int32_t index, LayerKind kind, const Hparams& h) {
    const std::string block = "blk." + std::to_string(index) + ".";
    Layer layer;
    layer.index = index;
    layer.kind = kind;
    layer.attn_norm = reader.vector(block + "attn_norm.weight", h.n_embd);
    layer.post_attention_norm = reader.vector(block + "post_attention_norm.weight", h.n_embd);
    layer.ffn_gate = reader.matrix(block + "ffn_gate.weight", h.n_ff, h.n_embd);
    layer.ffn_up = reader.matrix(block + "ffn_up.weight", h.n_ff, h.n_embd);
    layer.ffn_down = reader.matrix(block + "ffn_down.weight", h.n_embd, h.n_ff);
    if (kind == LayerKind::attention) {
        read_attention(reader, block, h, layer);
    } else {
        read_delta_net(reader, block, h, layer);
    }
    return layer;
}

Mtp read_mtp(TensorReader& reader, const Model& model) {
    const Hparams& h = model.hparams;
    const std::string nextn = "blk." + std::to_string(h.n_layers) + ".nextn.";
    Mtp mtp;
    mtp.layer = read_layer(reader, h.n_layers, LayerKind::attention, h);
    mtp.eh_proj = reader.matrix(nextn + "eh_proj.weight", h.n_embd, 2 * int64_t{h.n_embd});
    mtp.enorm = reader.vector(nextn + "enorm.weight", h.n_embd);
    mtp.hnorm = reader.vector(nextn + "hnorm.weight", h.n_embd);
    mtp.head_norm = reader.has(nextn + "shared_head_norm.weight")
                        ? reader.vector(nextn + "shared_head_norm.weight", h.n_embd)
                        : model.output_norm;
    mtp.embed = reader.has(nextn + "embed_tokens.weight")
                    ? reader.matrix(nextn + "embed_tokens.weight", h.n_vocab, h.n_embd)
                    : model.token_embd;
    mtp.head = reader.has(nextn + "shared_head_head.weight")
                   ? reader.matrix(nextn + "shared_head_head.weight", h.n_vocab, h.n_embd)
                   : model.output;
    return mtp;
}

void read_tensors(Model& model) {
    const Hparams& h = model.hparams;
    TensorReader reader(*model.file);
    model.token_embd = reader.matrix("token_embd.weight", h.n_vocab, h.n_embd);
    model.output_norm = reader.vector("output_norm.weight", h.n_embd);
    model.tied = !reader.has("output.weight");
    model.output =
        model.tied ? model.token_embd : reader.matrix("output.weight", h.n_vocab, h.n_embd);
    for (int32_t i = 0; i < h.n_layers; ++i) {
        model.layers.push_back(read_layer(reader, i, h.layer_kinds[static_cast<size_t>(i)], h));
    }
    if (h.has_mtp) model.mtp = read_mtp(reader, model);

    model.tensors = reader.finish(h);
    for (const Tensor& tensor : model.tensors) {
        model.parameters += tensor.rows * tensor.cols;
        model.weight_bytes += tensor.bytes();
    }
}

// Values out of a plausible range are refused rather than sampled with.
std::optional<float> sampling_float(const GgufFile& file, const char* key, double most) {
    const std::optional<double> value = file.find_float(key);
    if (!value) return std::nullopt;
    if (!(*value >= 0 && *value <= most)) {
        throw file.key_error(OJ_ERR_FORMAT, key,
                             std::to_string(*value) + ", expected 0 to " + std::to_string(most));
    }
    return static_cast<float>(*value);
}

std::optional<int32_t> sampling_int(const GgufFile& file, const char* key) {
    const std::optional<int64_t> value = file.find_int(key);
    if (!value) return std::nullopt;
    if (*value < -1 || *value > INT32_MAX) {
        throw file.key_error(
            OJ_ERR_FORMAT, key,
            std::to_string(*value) + ", expected -1 to " + std::to_string(INT32_MAX));
    }
    return static_cast<int32_t>(*value);
}

SamplingDefaults read_sampling(const GgufFile& file) {
    SamplingDefaults s;
    s.sequence = file.find_string("general.sampling.sequence").value_or(std::string_view());
    s.top_k = sampling_int(file, "general.sampling.top_k");
    s.top_p = sampling_float(file, "general.sampling.top_p", 1);
    s.min_p = sampling_float(file, "general.sampling.min_p", 1);
    s.temperature = sampling_float(file, "general.sampling.temp", 100);
    s.repetition_penalty = sampling_float(file, "general.sampling.penalty_repeat", 100);
    s.penalty_last_n = sampling_int(file, "general.sampling.penalty_last_n");
    return s;
}

}  // namespace

Model load_model(const std::string& path) {
    return load_model(std::shared_ptr<const GgufFile>(GgufFile::open(path)));
}

Model load_model(std::shared_ptr<const GgufFile> file) {
    Model model;
    model.file = std::move(file);
    model.path = model.file->path();
    check_architecture(*model.file);
    model.vocab = Vocabulary(*model.file);
    model.hparams = read_hparams(*model.file, model.vocab.size());
    read_tensors(model);

    const std::string_view file_name =
        std::string_view(model.path).substr(model.path.find_last_of('/') + 1);
    model.name = model.file->find_string("general.name").value_or(file_name);
    model.file_type = static_cast<int32_t>(model.file->find_int("general.file_type").value_or(-1));
    model.sampling = read_sampling(*model.file);
    return model;
}

}  // namespace oj
