#include "model/hparams.h"

#include <string>

#include "model/gguf.h"

namespace oj {
namespace {

// Limits far above any dense model of the family and low enough that products of two fit int64 and
// derived row counts fit int32.
constexpr int64_t kMaxBlocks = 1024;
constexpr int64_t kMaxContext = 1 << 24;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxConvKernel = 16;

std::string full_name(const char* key) {
    return std::string("qwen35.") + key;
}

class Reader {
public:
    explicit Reader(const GgufFile& file) : file_(file) {}

    [[noreturn]] void fail(const char* key, const std::string& problem) const {
        throw file_.key_error(OJ_ERR_FORMAT, full_name(key), problem);
    }

    [[noreturn]] void unsupported(const char* key, const std::string& problem) const {
        throw file_.key_error(OJ_ERR_UNSUPPORTED, full_name(key), problem);
    }

    int32_t count(const char* key, int64_t most) const {
        return in_range(key, file_.get_int(full_name(key)), 1, most);
    }

    int32_t count_or(const char* key, int64_t least, int64_t most, int32_t absent) const {
        const std::optional<int64_t> value = file_.find_int(full_name(key));
        return value ? in_range(key, *value, least, most) : absent;
    }

    float real(const char* key, double above, double most) const {
        const double value = file_.get_float(full_name(key));
        if (!(value > above && value <= most)) {
            fail(key, std::to_string(value) + ", expected more than " + std::to_string(above) +
                          " and at most " + std::to_string(most));
        }
        return static_cast<float>(value);
    }

    // A count that may be stored once or for each block. Entries of blocks for which `used` is
    // false do not matter (some writers store 0 KV heads for DeltaNet blocks); the others must be
    // equal. Gives 0 when the key is absent.
    int32_t uniform_count(const char* key, int64_t most, const std::vector<bool>& used) const {
        const std::vector<int64_t> values = file_.find_ints(full_name(key), used.size());
        if (values.empty()) return 0;
        if (values.size() == 1) return in_range(key, values[0], 1, most);
        if (values.size() != used.size()) {
            fail(key, std::to_string(values.size()) + " entries, expected one or " +
                          std::to_string(used.size()) + " (blocks)");
        }
        int32_t common = 0;
        for (size_t block = 0; block < used.size(); ++block) {
            if (!used[block]) continue;
            const int32_t value = in_range(key, values[block], 1, most);
            if (common != 0 && value != common) {
                unsupported(key, "block " + std::to_string(block) + " has " +
                                     std::to_string(value) + ", an earlier one " +
                                     std::to_string(common) + "; expected the same in all");
            }
            common = value;
        }
        return common;
    }

    const GgufFile& file() const { return file_; }

private:
    int32_t in_range(const char* key, int64_t value, int64_t least, int64_t most) const {
        if (value < least || value > most) {
            fail(key, std::to_string(value) + ", expected " + std::to_string(least) + " to " +
                          std::to_string(most));
        }
        return static_cast<int32_t>(value);
    }

    const GgufFile& file_;
};

bool has_tensors(const GgufFile& file, const std::string& prefix) {
    for (const GgufTensor& tensor : file.tensors()) {
        if (tensor.name.substr(0, prefix.size()) == prefix) return true;
    }
    return false;
}

// Sets n_layers and has_mtp. Fine-tunes may keep the key of an MTP block whose tensors they
// dropped, with the block still counted or not: such a file has no MTP block.
void count_blocks(const Reader& reader, int32_t n_blocks, Hparams& h) {
    const int32_t n_mtp = reader.count_or("nextn_predict_layers", 0, kMaxBlocks, 0);
    if (n_mtp > 1) {
        reader.unsupported("nextn_predict_layers",
                           std::to_string(n_mtp) + " MTP blocks, expected 0 or 1");
    }
    const std::string last = "blk." + std::to_string(n_blocks - 1) + ".";
    h.has_mtp = n_mtp == 1 && has_tensors(reader.file(), last + "nextn.");
    const bool dropped = n_mtp == 1 && !has_tensors(reader.file(), last);
    h.n_layers = n_blocks - (h.has_mtp || dropped ? 1 : 0);
    if (h.n_layers < 1) {
        reader.fail("block_count", std::to_string(n_blocks) +
                                       ", which is only the MTP block; expected at least one more");
    }
}

void read_layer_kinds(const Reader& reader, int32_t n_blocks, Hparams& h) {
    const char* const key = "attention.recurrent_layers";
    const std::vector<int64_t> recurrent =
        reader.file().find_ints(full_name(key), static_cast<uint64_t>(n_blocks));
    if (!recurrent.empty() && recurrent.size() != static_cast<size_t>(n_blocks)) {
        reader.fail(key, std::to_string(recurrent.size()) + " entries, expected " +
                             std::to_string(n_blocks) + " (blocks)");
    }
    if (!recurrent.empty() && h.has_mtp && recurrent.back() != 0) {
        reader.fail(key, "the MTP block is marked as recurrent, expected attention");
    }
    const int32_t interval = reader.count_or("full_attention_interval", 1, kMaxBlocks, 4);
    for (int32_t i = 0; i < h.n_layers; ++i) {
        const bool delta =
            recurrent.empty() ? (i + 1) % interval != 0 : recurrent[static_cast<size_t>(i)] != 0;
        h.layer_kinds.push_back(delta ? LayerKind::delta_net : LayerKind::attention);
    }
}

void read_attention(const Reader& reader, int32_t n_blocks, Hparams& h) {
    std::vector<bool> used(static_cast<size_t>(n_blocks), h.has_mtp);
    for (size_t i = 0; i < h.layer_kinds.size(); ++i) {
        used[i] = h.layer_kinds[i] == LayerKind::attention;
    }
    h.n_heads = reader.uniform_count("attention.head_count", kMaxHeads, used);
    if (h.n_heads == 0) reader.fail("attention.head_count", "is missing");
    h.n_kv_heads = reader.uniform_count("attention.head_count_kv", kMaxHeads, used);
    if (h.n_kv_heads == 0) h.n_kv_heads = h.n_heads;
    if (h.n_heads % h.n_kv_heads != 0) {
        reader.fail("attention.head_count_kv", std::to_string(h.n_kv_heads) +
                                                   " does not divide attention.head_count " +
                                                   std::to_string(h.n_heads));
    }
    h.head_dim = reader.count("attention.key_length", kMaxHeadDim);
    const int32_t v_dim = reader.count_or("attention.value_length", 1, kMaxHeadDim, h.head_dim);
    if (v_dim != h.head_dim) {
        reader.fail("attention.value_length", std::to_string(v_dim) +
                                                  ", expected attention.key_length " +
                                                  std::to_string(h.head_dim));
    }
}

// Rotary pair i takes the position of axis time, height or width by i % 3 as long as i is inside
// that axis's section, else of a fourth axis whose position is 0. In text the three are the same,
// so sections only matter when a pair falls to the fourth.
void check_sections(const Reader& reader, const Hparams& h) {
    const char* const key = "rope.dimension_sections";
    std::vector<int64_t> sections = reader.file().find_ints(full_name(key), 4);
    if (sections.size() == 3) sections.push_back(0);  // as some writers leave the fourth out
    if (sections.size() != 4) {
        reader.fail(key, std::to_string(sections.size()) + " entries, expected 4");
    }
    int64_t sum = 0;
    for (int64_t section : sections) {
        if (section < 0 || section > kMaxHeadDim) {
            reader.fail(key, "section of " + std::to_string(section) + " rotary pairs");
        }
        sum += section;
    }
    if (sum != h.rope_dim / 2) {
        reader.fail(key, "sections of together " + std::to_string(sum) +
                             " rotary pairs, expected " + std::to_string(h.rope_dim / 2) +
                             " (half of rope.dimension_count)");
    }
    for (int64_t pair = 0; pair < sum; ++pair) {
        if (pair >= 3 * sections[static_cast<size_t>(pair % 3)]) {
            reader.unsupported(key, "rotary pair " + std::to_string(pair) +
                                        " belongs to none of the first three sections");
        }
    }
}

void read_rope(const Reader& reader, Hparams& h) {
    h.rope_dim = reader.count("rope.dimension_count", kMaxHeadDim);
    if (h.rope_dim % 2 != 0 || h.rope_dim > h.head_dim) {
        reader.fail("rope.dimension_count", std::to_string(h.rope_dim) +
                                                ", expected an even number up to "
                                                "attention.key_length " +
                                                std::to_string(h.head_dim));
    }
    h.rope_base = reader.real("rope.freq_base", 1, 1e12);
    check_sections(reader, h);

    const double factor = reader.file().find_float(full_name("rope.scaling.factor")).value_or(0);
    if (factor != 0 && factor != 1) {
        reader.unsupported("rope.scaling.factor",
                           "RoPE scaling is not supported; expected 1 or no such key");
    }
    const double attn_factor =
        reader.file().find_float(full_name("rope.scaling.attn_factor")).value_or(1);
    if (attn_factor != 1) {
        reader.unsupported("rope.scaling.attn_factor",
                           "RoPE scaling is not supported; expected 1 or no such key");
    }
}

void read_delta_net(const Reader& reader, Hparams& h) {
    h.n_k_heads = reader.count("ssm.group_count", kMaxHeads);
    h.n_v_heads = reader.count("ssm.time_step_rank", kMaxHeads);
    h.state_dim = reader.count("ssm.state_size", kMaxHeadDim);
    h.conv_kernel = reader.count("ssm.conv_kernel", kMaxConvKernel);
    const int32_t inner = reader.count("ssm.inner_size", kMaxWidth);
    if (h.n_v_heads % h.n_k_heads != 0) {
        reader.fail("ssm.time_step_rank", std::to_string(h.n_v_heads) +
                                              " V heads, expected a multiple of ssm.group_count " +
                                              std::to_string(h.n_k_heads));
    }
    if (inner != h.v_channels()) {
        reader.fail("ssm.inner_size", std::to_string(inner) +
                                          ", expected ssm.time_step_rank x ssm.state_size = " +
                                          std::to_string(h.v_channels()));
    }
}

}  // namespace

void check_architecture(const GgufFile& file) {
    const char* const key = "general.architecture";
    const std::string_view name = file.get_string(key);
    if (name != "qwen35") {
        throw file.key_error(OJ_ERR_UNSUPPORTED, key,
                             quoted(name) +
                                 " is not supported; this engine runs 'qwen35', the "
                                 "dense models of Qwen3.5, 3.6 and 3.8");
    }
    const std::optional<int64_t> parts = file.find_int("split.count");
    if (parts && *parts > 1) {
        throw file.key_error(OJ_ERR_UNSUPPORTED, "split.count",
                             "this is one of " + std::to_string(*parts) +
                                 " parts; merge them into one file first "
                                 "(llama-gguf-split --merge)");
    }
    const std::string reordered = full_name("ssm.v_head_reordered");
    if (!file.find_bool(reordered).value_or(true)) {
        throw file.key_error(OJ_ERR_UNSUPPORTED, reordered,
                             "false: the V heads are in grouped order, which would give wrong "
                             "text; convert the model again with a current converter");
    }
}

Hparams read_hparams(const GgufFile& file, int32_t n_vocab) {
    const Reader reader(file);
    Hparams h;
    h.n_vocab = n_vocab;
    h.n_ctx_train = reader.count("context_length", kMaxContext);
    h.n_embd = reader.count("embedding_length", kMaxWidth);
    h.rms_eps = reader.real("attention.layer_norm_rms_epsilon", 0, 0.1);
    const int32_t n_blocks = reader.count("block_count", kMaxBlocks);
    count_blocks(reader, n_blocks, h);
    read_layer_kinds(reader, n_blocks, h);
    const std::vector<bool> all(static_cast<size_t>(n_blocks), true);
    h.n_ff = reader.uniform_count("feed_forward_length", kMaxWidth, all);
    if (h.n_ff == 0) reader.fail("feed_forward_length", "is missing");
    read_attention(reader, n_blocks, h);
    read_rope(reader, h);
    read_delta_net(reader, h);
    return h;
}

}  // namespace oj
