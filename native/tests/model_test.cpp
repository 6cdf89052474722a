// Loading a model: every variant of the family that we accept, and an error naming the key or
// tensor for every kind of file that we do not.
#include <cstdio>
#include <functional>

#include "gguf_builder.h"

namespace oj::test {
namespace {

int failures = 0;

void expect(bool ok, const char* what) {
    if (ok) return;
    std::printf("FAILED: %s\n", what);
    ++failures;
}

struct Refusal {
    const char* what;
    std::function<void(GgufBuilder&)> spoil;
    int code;
    const char* names;     // in the message: what is at fault
    const char* explains;  // in the message: found or expected
};

// Shorthand for the many cases in which one key has one wrong value.
Refusal wrong_u32(const char* key, uint32_t value, const char* explains) {
    return {key, [=](GgufBuilder& f) { f.set_u32(key, value); }, OJ_ERR_FORMAT, key, explains};
}

Refusal missing_key(const char* key) {
    return {key, [=](GgufBuilder& f) { f.remove_key(key); }, OJ_ERR_FORMAT, key, "is missing"};
}

Refusal missing_tensor(const char* name) {
    return {name, [=](GgufBuilder& f) { f.remove_tensor(name); }, OJ_ERR_FORMAT, name,
            "is missing"};
}

Refusal wrong_dims(const char* name, std::vector<uint64_t> dims, const char* explains) {
    return {name, [=](GgufBuilder& f) { f.tensor(name).dims = dims; }, OJ_ERR_FORMAT, name,
            explains};
}

std::vector<Refusal> container_refusals() {
    return {
        {"version 1", [](GgufBuilder& f) { f.version = 1; }, OJ_ERR_UNSUPPORTED, "header",
         "version 1"},
        {"big endian", [](GgufBuilder& f) { f.version = 0x03000000; }, OJ_ERR_UNSUPPORTED, "header",
         "big-endian"},
        {"repeated key", [](GgufBuilder& f) { f.repeat_key(0); }, OJ_ERR_FORMAT,
         "'general.architecture'", "twice"},
        {"repeated tensor", [](GgufBuilder& f) { f.add_tensor("output_norm.weight", {32}); },
         OJ_ERR_FORMAT, "'output_norm.weight'", "twice"},
        {"array of arrays",
         [](GgufBuilder& f) {
             f.set("x", GgufType::array,
                   GgufBuilder::pod(GgufType::array) + GgufBuilder::pod<uint64_t>(0));
         },
         OJ_ERR_FORMAT, "'x'", "arrays of arrays"},
        {"array longer than the file",
         [](GgufBuilder& f) {
             f.set("x", GgufType::array,
                   GgufBuilder::pod(GgufType::u64) + GgufBuilder::pod<uint64_t>(1ull << 61));
         },
         OJ_ERR_FORMAT, "'x'", "hold at most"},
        {"string longer than the file",
         [](GgufBuilder& f) {
             f.set("x", GgufType::string, GgufBuilder::pod<uint64_t>(UINT64_MAX));
         },
         OJ_ERR_FORMAT, "'x'", "truncated"},
        {"unknown value type",
         [](GgufBuilder& f) { f.set("x", static_cast<GgufType>(13), "0123"); }, OJ_ERR_FORMAT,
         "'x'", "type 13"},
        {"bool of 2", [](GgufBuilder& f) { f.set("x", GgufType::boolean, "\2"); }, OJ_ERR_FORMAT,
         "'x'", "value 2"},
        {"empty key", [](GgufBuilder& f) { f.set_u32("", 1); }, OJ_ERR_FORMAT, "key 33 of 33",
         "0 bytes"},
        {"alignment of 24", [](GgufBuilder& f) { f.set_u32("general.alignment", 24); },
         OJ_ERR_FORMAT, "'general.alignment'", "power of two"},
        {"alignment unlike the layout", [](GgufBuilder& f) { f.set_u32("general.alignment", 64); },
         OJ_ERR_FORMAT, "tensor '", "expected"},
        {"overlapping tensors",
         [](GgufBuilder& f) { f.tensor("output_norm.weight").offset_error = -32; }, OJ_ERR_FORMAT,
         "'output_norm.weight'", "offset"},
        {"tensor out of the file",
         [](GgufBuilder& f) { f.tensor("output_norm.weight").offset_error = 1ll << 40; },
         OJ_ERR_FORMAT, "'output_norm.weight'", "offset"},
        {"bytes after the last tensor", [](GgufBuilder& f) { f.trailer = std::string(33, 'x'); },
         OJ_ERR_FORMAT, "data section", "33 bytes follow"},
        {"unknown tensor type", [](GgufBuilder& f) { f.tensor("output.weight").type = 99; },
         OJ_ERR_UNSUPPORTED, "'output.weight'", "unknown (99)"},
        {"tensor type we do not read", [](GgufBuilder& f) { f.tensor("output.weight").type = 10; },
         OJ_ERR_UNSUPPORTED, "'output.weight'", "Q2_K (10)"},
        wrong_dims("output.weight", {}, "0 dimensions"),
        wrong_dims("output.weight", {32, 12, 1, 1, 1}, "5 dimensions"),
        wrong_dims("output.weight", {32, 0}, "size 0"),
        wrong_dims("output.weight", {1ull << 32, 1ull << 32}, "more bytes than the file"),
        wrong_dims("output.weight", {1ull << 62, 1ull << 62, 1ull << 62},
                   "more bytes than the file"),
        wrong_dims("output.weight", {UINT64_MAX, 2}, "size 18446744073709551615"),
        wrong_dims("blk.0.ffn_gate.weight", {48, 64}, "multiple of 32"),
    };
}

std::vector<Refusal> metadata_refusals() {
    return {
        {"another architecture",
         [](GgufBuilder& f) { f.set_string("general.architecture", "llama"); }, OJ_ERR_UNSUPPORTED,
         "'llama'", "qwen35"},
        {"one part of several", [](GgufBuilder& f) { f.set_u32("split.count", 3); },
         OJ_ERR_UNSUPPORTED, "'split.count'", "merge"},
        {"V heads in grouped order",
         [](GgufBuilder& f) { f.set_bool("qwen35.ssm.v_head_reordered", false); },
         OJ_ERR_UNSUPPORTED, "'qwen35.ssm.v_head_reordered'", "grouped"},
        missing_key("general.architecture"),
        missing_key("qwen35.block_count"),
        missing_key("qwen35.context_length"),
        missing_key("qwen35.embedding_length"),
        missing_key("qwen35.feed_forward_length"),
        missing_key("qwen35.attention.head_count"),
        missing_key("qwen35.attention.key_length"),
        missing_key("qwen35.attention.layer_norm_rms_epsilon"),
        missing_key("qwen35.rope.dimension_count"),
        {"no sections", [](GgufBuilder& f) { f.remove_key("qwen35.rope.dimension_sections"); },
         OJ_ERR_FORMAT, "'qwen35.rope.dimension_sections'", "0 entries"},
        missing_key("qwen35.rope.freq_base"),
        missing_key("qwen35.ssm.conv_kernel"),
        missing_key("qwen35.ssm.inner_size"),
        missing_key("qwen35.ssm.state_size"),
        missing_key("qwen35.ssm.time_step_rank"),
        missing_key("qwen35.ssm.group_count"),
        missing_key("tokenizer.ggml.model"),
        missing_key("tokenizer.ggml.pre"),
        missing_key("tokenizer.ggml.tokens"),
        missing_key("tokenizer.ggml.token_type"),
        missing_key("tokenizer.ggml.merges"),
        missing_key("tokenizer.ggml.eos_token_id"),
        wrong_u32("qwen35.block_count", 0, "expected 1 to"),
        wrong_u32("qwen35.block_count", 4000000000u, "expected 1 to"),
        {"2 MTP blocks", [](GgufBuilder& f) { f.set_u32("qwen35.nextn_predict_layers", 2); },
         OJ_ERR_UNSUPPORTED, "'qwen35.nextn_predict_layers'", "expected 0 or 1"},
        wrong_u32("qwen35.embedding_length", 0, "expected 1 to"),
        wrong_u32("qwen35.feed_forward_length", 0, "expected 1 to"),
        wrong_u32("qwen35.attention.head_count", 0, "expected 1 to"),
        wrong_u32("qwen35.attention.head_count_kv", 3, "does not divide"),
        wrong_u32("qwen35.attention.value_length", 8, "key_length"),
        wrong_u32("qwen35.rope.dimension_count", 7, "even number"),
        wrong_u32("qwen35.rope.dimension_count", 18, "up to attention.key_length 16"),
        wrong_u32("qwen35.full_attention_interval", 0, "expected 1 to"),
        wrong_u32("qwen35.ssm.conv_kernel", 0, "expected 1 to"),
        {"3 K heads for 4 V heads", [](GgufBuilder& f) { f.set_u32("qwen35.ssm.group_count", 3); },
         OJ_ERR_FORMAT, "'qwen35.ssm.time_step_rank'", "ssm.group_count 3"},
        wrong_u32("qwen35.ssm.inner_size", 31, "= 32"),
        wrong_u32("qwen35.ssm.state_size", 4000000000u, "expected 1 to"),
        wrong_u32("tokenizer.ggml.eos_token_id", 12, "vocabulary of 12"),
        wrong_u32("qwen35.rope.freq_base", 10000, "expected f32"),
        {"float for a count", [](GgufBuilder& f) { f.set_f32("qwen35.block_count", 5); },
         OJ_ERR_FORMAT, "'qwen35.block_count'", "expected an integer"},
        {"epsilon that is not a number",
         [](GgufBuilder& f) {
             f.set_f32("qwen35.attention.layer_norm_rms_epsilon", std::strtof("nan", nullptr));
         },
         OJ_ERR_FORMAT, "'qwen35.attention.layer_norm_rms_epsilon'", "nan"},
        {"sections that leave a pair unrotated",
         [](GgufBuilder& f) { f.set_i32s("qwen35.rope.dimension_sections", {1, 1, 1, 1}); },
         OJ_ERR_UNSUPPORTED, "'qwen35.rope.dimension_sections'", "pair 3"},
        {"sections of another sum",
         [](GgufBuilder& f) { f.set_i32s("qwen35.rope.dimension_sections", {2, 2, 1, 0}); },
         OJ_ERR_FORMAT, "'qwen35.rope.dimension_sections'", "expected 4"},
        {"RoPE scaling", [](GgufBuilder& f) { f.set_f32("qwen35.rope.scaling.factor", 4); },
         OJ_ERR_UNSUPPORTED, "'qwen35.rope.scaling.factor'", "not supported"},
        {"KV heads that differ between attention layers",
         [](GgufBuilder& f) { f.set_i32s("qwen35.attention.head_count_kv", {0, 0, 0, 1, 2}); },
         OJ_ERR_UNSUPPORTED, "'qwen35.attention.head_count_kv'", "block 4"},
        {"recurrent MTP block",
         [](GgufBuilder& f) { f.set_i32s("qwen35.attention.recurrent_layers", {1, 1, 1, 0, 1}); },
         OJ_ERR_FORMAT, "'qwen35.attention.recurrent_layers'", "MTP"},
        {"another tokenizer", [](GgufBuilder& f) { f.set_string("tokenizer.ggml.model", "llama"); },
         OJ_ERR_UNSUPPORTED, "'tokenizer.ggml.model'", "'gpt2'"},
        {"too few token types",
         [](GgufBuilder& f) { f.set_i32s("tokenizer.ggml.token_type", {1, 1}); }, OJ_ERR_FORMAT,
         "'tokenizer.ggml.token_type'", "12"},
        {"impossible token type",
         [](GgufBuilder& f) {
             f.set_i32s("tokenizer.ggml.token_type", {1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 4, 7});
         },
         OJ_ERR_FORMAT, "'tokenizer.ggml.token_type'", "token 11"},
        {"sampling probability above 1",
         [](GgufBuilder& f) { f.set_f32("general.sampling.top_p", 2); }, OJ_ERR_FORMAT,
         "'general.sampling.top_p'", "expected 0 to 1"},
    };
}

std::vector<Refusal> tensor_refusals() {
    return {
        missing_tensor("token_embd.weight"),
        missing_tensor("output_norm.weight"),
        missing_tensor("blk.0.attn_norm.weight"),
        missing_tensor("blk.1.attn_qkv.weight"),
        missing_tensor("blk.2.ssm_dt.bias"),
        missing_tensor("blk.3.attn_k.weight"),
        missing_tensor("blk.4.nextn.eh_proj.weight"),
        missing_tensor("blk.4.ffn_down.weight"),
        wrong_dims("token_embd.weight", {32, 11}, "11 x 32, expected 12 x 32"),
        wrong_dims("blk.0.ffn_up.weight", {64, 32}, "32 x 64, expected 64 x 32"),
        wrong_dims("blk.0.ssm_conv1d.weight", {4, 1, 64}, "64 x 1 x 4, expected 64 x 4"),
        wrong_dims("blk.3.attn_q.weight", {32, 32}, "expected 64 x 32"),
        wrong_dims("blk.4.nextn.eh_proj.weight", {32, 64}, "expected 32 x 64"),
        {"norm weights in half precision",
         [](GgufBuilder& f) { f.tensor("output_norm.weight").type = 1; }, OJ_ERR_UNSUPPORTED,
         "'output_norm.weight'", "expected F32"},
        {"a tensor of no known role",
         [](GgufBuilder& f) { f.add_tensor("blk.3.attn_q.bias", {64}); }, OJ_ERR_UNSUPPORTED,
         "'blk.3.attn_q.bias'", "not part of"},
        {"a block beyond block_count",
         [](GgufBuilder& f) { f.add_tensor("blk.5.attn_norm.weight", {32}); }, OJ_ERR_UNSUPPORTED,
         "'blk.5.attn_norm.weight'", "4 layers"},
        {"an MTP block that the metadata denies",
         [](GgufBuilder& f) {
             f.set_u32("qwen35.nextn_predict_layers", 0);
             f.set_i32s("qwen35.attention.recurrent_layers", {1, 1, 1, 0, 0});
         },
         OJ_ERR_UNSUPPORTED, "'blk.4.nextn.eh_proj.weight'", "without MTP block"},
    };
}

void check_refusals(const std::vector<Refusal>& refusals) {
    for (const Refusal& refusal : refusals) {
        GgufBuilder file = micro_model();
        refusal.spoil(file);
        std::string message = "(loaded)";
        int code = OJ_OK;
        try {
            load_bytes(file.build(), "dir/micro.gguf");
        } catch (const Error& error) {
            message = error.what();
            code = error.code();
        }
        const auto has = [&](const char* part) { return message.find(part) != std::string::npos; };
        if (code != refusal.code || !has("dir/micro.gguf: ") || !has(refusal.names) ||
            !has(refusal.explains)) {
            std::printf("FAILED: %s: code %d, %s\n", refusal.what, code, message.c_str());
            ++failures;
        }
    }
}

void check_whole_model() {
    const Bytes bytes = micro_model().build();
    const Model model = load_bytes(bytes, "dir/micro.gguf");
    const Hparams& h = model.hparams;
    expect(model.name == "micro" && model.file_type == 0, "general keys");
    expect(h.n_layers == 4 && h.has_mtp && model.layers.size() == 4,
           "layers without the MTP block");
    expect(h.n_vocab == 12 && h.n_embd == 32 && h.n_ff == 64 && h.n_ctx_train == 4096, "widths");
    expect(h.q_rows() == 32 && h.kv_rows() == 16 && h.rope_dim == 8 && h.rope_base == 1e7f,
           "attention");
    expect(h.k_channels() == 16 && h.v_channels() == 32 && h.conv_channels() == 64, "DeltaNet");
    for (int i = 0; i < 4; ++i) {
        const bool delta = model.layers[static_cast<size_t>(i)].kind == LayerKind::delta_net;
        expect(delta == (i != 3), "every fourth layer is attention");
    }
    const Layer& layer = model.layers[0];
    expect(layer.attn_qkv.type == BlockType::IQ4_NL && layer.attn_qkv.rows == 64 &&
               layer.attn_qkv.row_bytes == 18 && layer.attn_q.data == nullptr,
           "tensors of a DeltaNet layer");
    expect(model.mtp && model.mtp->layer.index == 4 && model.mtp->eh_proj.cols == 64, "MTP block");
    expect(model.mtp->embed.data == model.token_embd.data &&
               model.mtp->head.data == model.output.data &&
               model.mtp->head_norm.name == "blk.4.nextn.shared_head_norm.weight",
           "the MTP block shares what it does not have");
    expect(!model.tied && model.output.name == "output.weight", "untied output");
    expect(model.tensors.size() == 71 && model.tensors[0].name == "token_embd.weight",
           "all tensors in file order");
    expect(model.sampling.top_k == 20 && model.sampling.top_p == 0.95f && !model.sampling.min_p,
           "sampling defaults");
}

void check_vocabulary() {
    const Bytes bytes = micro_model().build();
    const Model model = load_bytes(bytes, "micro.gguf");
    const Vocabulary& vocab = model.vocab;
    expect(vocab.size() == 12 && vocab.pre() == "qwen35", "vocabulary");
    expect(vocab.bytes(4) == " ab" && vocab.bytes(5) == "\n" && vocab.bytes(6) == "\xe4",
           "normal tokens are decoded");
    expect(vocab.text(4) == "\u0120ab", "texts are as in the file");
    expect(vocab.bytes(9) == "<|im_end|>" && vocab.type(9) == TokenType::control, "control token");
    expect(vocab.bytes(10) == "<think>" && vocab.type(10) == TokenType::user_defined,
           "user-defined token");
    expect(vocab.bytes(11).empty(), "unused tokens are empty");
    expect(vocab.eos_id() == 9 && vocab.bos_id() == 7 && vocab.pad_id() == -1, "special ids");
    expect(vocab.eog_ids() == std::vector<int32_t>{7, 9} && vocab.is_eog(7) && !vocab.is_eog(8),
           "end-of-generation ids");
    expect(vocab.merges().size() == 2 && vocab.merges()[1] == "\u0120 ab", "merges");
    expect(vocab.chat_template() == "{{ messages }}", "chat template");
}

void check_variants() {
    const auto load = [](const GgufBuilder& file, const auto& check) {
        const Bytes bytes = file.build();
        try {
            check(load_bytes(bytes, "variant.gguf"));
        } catch (const Error& error) {
            expect(false, error.what());
        }
    };
    MicroOptions plain;
    plain.mtp = false;
    plain.tied = true;
    load(micro_model(plain), [](const Model& model) {
        expect(!model.mtp && model.tied && model.output.data == model.token_embd.data,
               "no MTP block, tied output");
    });

    MicroOptions fused;
    fused.fused_qkv = true;
    load(micro_model(fused), [](const Model& model) {
        const Layer& layer = model.layers[3];
        expect(layer.attn_q.rows == 64 && layer.attn_k.data == layer.attn_q.row(64) &&
                   layer.attn_v.data == layer.attn_k.row(16) && layer.attn_v.rows == 16,
               "fused attn_qkv is presented as its parts");
    });

    GgufBuilder ollama = micro_model();
    ollama.set_i32s("qwen35.rope.dimension_sections", {2, 1, 1});
    ollama.set_i32s("qwen35.attention.head_count_kv", {0, 0, 0, 1, 1});
    ollama.set_bool("qwen35.ssm.v_head_reordered", true);
    ollama.tensor("blk.1.ssm_dt.bias").name = "blk.1.ssm_dt";
    ollama.add_tensor("v.patch_embd.weight", {32, 3}, BlockType::F16);
    ollama.add_tensor("mm.0.weight", {32, 3});
    load(ollama, [](const Model& model) {
        expect(model.hparams.n_kv_heads == 1, "KV heads by layer");
        expect(model.layers[1].ssm_dt.rows == 1, "ssm_dt without .bias");
        expect(model.tensors.size() == 71, "vision tensors are left out");
    });

    // Fine-tunes that dropped the MTP block: its key is left, its tensors are not.
    for (uint32_t block_count : {5, 4}) {
        MicroOptions without;
        without.mtp = false;
        GgufBuilder dropped = micro_model(without);
        dropped.set_u32("qwen35.block_count", block_count);
        dropped.set_u32("qwen35.nextn_predict_layers", 1);
        load(dropped, [](const Model& model) {
            expect(!model.mtp && model.hparams.n_layers == 4, "dropped MTP block");
        });
    }

    GgufBuilder listed = micro_model();
    listed.remove_key("qwen35.full_attention_interval");
    listed.set_i32s("qwen35.attention.recurrent_layers", {1, 1, 1, 0, 0});
    load(listed, [](const Model& model) {
        expect(model.layers[3].kind == LayerKind::attention, "layer kinds by list");
    });

    GgufBuilder wide = micro_model();
    wide.version = 2;
    wide.alignment = 128;
    wide.set_u32("general.alignment", 128);
    load(wide, [](const Model& model) {
        expect(model.output_norm.data - model.token_embd.data == 512, "version 2, alignment 128");
    });
}

}  // namespace
}  // namespace oj::test

int main() {
    using namespace oj::test;
    check_whole_model();
    check_vocabulary();
    check_variants();
    check_refusals(container_refusals());
    check_refusals(metadata_refusals());
    check_refusals(tensor_refusals());
    if (failures == 0) std::puts("ok");
    return failures == 0 ? 0 : 1;
}
