// Builds GGUF files in memory, right ones and wrong ones, and a very small qwen35 model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/block_types.h"
#include "model/gguf.h"
#include "model/model.h"

namespace oj::test {

// Bytes in an allocation of exactly their size, so that AddressSanitizer sees a read past the end.
class Bytes {
public:
    explicit Bytes(size_t size)
        : data_(static_cast<uint8_t*>(std::malloc(size + !size))), size_(size) {}
    Bytes(const uint8_t* data, size_t size) : Bytes(size) { std::memcpy(data_.get(), data, size); }

    uint8_t* data() { return data_.get(); }
    const uint8_t* data() const { return data_.get(); }
    size_t size() const { return size_; }

private:
    struct Free {
        void operator()(uint8_t* data) const { std::free(data); }
    };
    std::unique_ptr<uint8_t, Free> data_;
    size_t size_;
};

struct TensorSpec {
    std::string name;
    std::vector<uint64_t> dims;  // GGUF order
    uint32_t type = 0;           // ggml id
    int64_t offset_error = 0;    // added to the right offset
};

class GgufBuilder {
public:
    // Keys. A second value for a name replaces the first; `repeat_key` adds it once more.
    void set_u32(const std::string& name, uint32_t value) { set(name, GgufType::u32, pod(value)); }
    void set_f32(const std::string& name, float value) { set(name, GgufType::f32, pod(value)); }
    void set_bool(const std::string& name, bool value) {
        set(name, GgufType::boolean, std::string(1, value ? '\1' : '\0'));
    }
    void set_string(const std::string& name, const std::string& value) {
        set(name, GgufType::string, pod<uint64_t>(value.size()) + value);
    }
    void set_strings(const std::string& name, const std::vector<std::string>& values) {
        std::string bytes = pod(GgufType::string) + pod<uint64_t>(values.size());
        for (const std::string& value : values)
            bytes += pod<uint64_t>(value.size()) + value;
        set(name, GgufType::array, bytes);
    }
    void set_i32s(const std::string& name, const std::vector<int32_t>& values) {
        std::string bytes = pod(GgufType::i32) + pod<uint64_t>(values.size());
        for (int32_t value : values)
            bytes += pod(value);
        set(name, GgufType::array, bytes);
    }
    void set(const std::string& name, GgufType type, const std::string& bytes) {
        for (Key& key : keys_) {
            if (key.name == name) {
                key.bytes = pod(type) + bytes;
                return;
            }
        }
        keys_.push_back({name, pod(type) + bytes});
    }
    void remove_key(const std::string& name) {
        keys_.erase(std::remove_if(keys_.begin(), keys_.end(),
                                   [&](const Key& key) { return key.name == name; }),
                    keys_.end());
    }
    void repeat_key(size_t index) { keys_.push_back(keys_[index]); }

    void add_tensor(const std::string& name, std::vector<uint64_t> dims,
                    BlockType type = BlockType::F32) {
        tensors_.push_back({name, std::move(dims), static_cast<uint32_t>(type)});
    }
    TensorSpec& tensor(const std::string& name) {
        for (TensorSpec& spec : tensors_) {
            if (spec.name == name) return spec;
        }
        std::abort();  // a mistake in the test
    }
    void remove_tensor(const std::string& name) {
        tensors_.erase(tensors_.begin() + (&tensor(name) - tensors_.data()));
    }

    uint32_t version = 3;
    uint64_t alignment = 32;  // what the file is laid out with; the key is separate
    std::string trailer;      // after the last tensor

    Bytes build() const {
        std::string out =
            "GGUF" + pod(version) + pod<uint64_t>(tensors_.size()) + pod<uint64_t>(keys_.size());
        for (const Key& key : keys_)
            out += pod<uint64_t>(key.name.size()) + key.name + key.bytes;
        uint64_t offset = 0;
        for (const TensorSpec& spec : tensors_) {
            out += pod<uint64_t>(spec.name.size()) + spec.name;
            out += pod(static_cast<uint32_t>(spec.dims.size()));
            for (uint64_t dim : spec.dims)
                out += pod(dim);
            out += pod(spec.type) + pod(offset + static_cast<uint64_t>(spec.offset_error));
            offset = padded(offset + data_bytes(spec));
        }
        out.resize(padded(out.size()) + offset);
        out += trailer;
        return Bytes(reinterpret_cast<const uint8_t*>(out.data()), out.size());
    }

    template <typename T>
    static std::string pod(T value) {
        std::string bytes(sizeof value, '\0');
        std::memcpy(bytes.data(), &value, sizeof value);
        return bytes;
    }

private:
    struct Key {
        std::string name;
        std::string bytes;  // type and value
    };

    uint64_t padded(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }

    // 0 for the wrong specs, whose data is never looked at.
    static uint64_t data_bytes(const TensorSpec& spec) {
        const BlockTypeInfo* type = find_block_type(spec.type);
        uint64_t elements = 1;
        for (uint64_t dim : spec.dims)
            elements *= dim;
        if (!type || elements > (1 << 24)) return 0;
        return elements / type->block_elements * type->block_bytes;
    }

    std::vector<Key> keys_;
    std::vector<TensorSpec> tensors_;
};

struct MicroOptions {
    bool mtp = true;
    bool tied = false;
    bool fused_qkv = false;
};

// A qwen35 model small enough for thousands of loads a second: 4 layers (the last one attention)
// of width 32, 2 Q/K and 4 V heads of 8, 2 query heads and 1 KV head of 16, 12 tokens.
inline GgufBuilder micro_model(const MicroOptions& options = {}) {
    GgufBuilder file;
    const auto set = [&](const char* key, uint32_t value) {
        file.set_u32(std::string("qwen35.") + key, value);
    };
    file.set_string("general.architecture", "qwen35");
    file.set_string("general.name", "micro");
    file.set_u32("general.file_type", 0);
    set("block_count", options.mtp ? 5 : 4);
    if (options.mtp) set("nextn_predict_layers", 1);
    set("context_length", 4096);
    set("embedding_length", 32);
    set("feed_forward_length", 64);
    set("attention.head_count", 2);
    set("attention.head_count_kv", 1);
    set("attention.key_length", 16);
    set("attention.value_length", 16);
    file.set_f32("qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
    set("rope.dimension_count", 8);
    file.set_i32s("qwen35.rope.dimension_sections", {2, 1, 1, 0});
    file.set_f32("qwen35.rope.freq_base", 1e7f);
    set("ssm.conv_kernel", 4);
    set("ssm.inner_size", 32);
    set("ssm.state_size", 8);
    set("ssm.time_step_rank", 4);
    set("ssm.group_count", 2);
    set("full_attention_interval", 4);
    file.set_u32("general.sampling.top_k", 20);
    file.set_f32("general.sampling.top_p", 0.95f);

    file.set_string("tokenizer.ggml.model", "gpt2");
    file.set_string("tokenizer.ggml.pre", "qwen35");
    file.set_strings("tokenizer.ggml.tokens",
                     {"a", "b", "ab", "\u0120", "\u0120ab", "\u010a", "\u00e4", "<|endoftext|>",
                      "<|im_start|>", "<|im_end|>", "<think>", "[PAD11]"});
    file.set_i32s("tokenizer.ggml.token_type", {1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 4, 5});
    file.set_strings("tokenizer.ggml.merges", {"a b", "\u0120 ab"});
    file.set_u32("tokenizer.ggml.eos_token_id", 9);
    file.set_u32("tokenizer.ggml.bos_token_id", 7);
    file.set_string("tokenizer.chat_template", "{{ messages }}");

    file.add_tensor("token_embd.weight", {32, 12}, BlockType::Q8_0);
    file.add_tensor("output_norm.weight", {32});
    if (!options.tied) file.add_tensor("output.weight", {32, 12}, BlockType::F16);
    for (int i = 0; i < (options.mtp ? 5 : 4); ++i) {
        const std::string block = "blk." + std::to_string(i) + ".";
        file.add_tensor(block + "attn_norm.weight", {32});
        file.add_tensor(block + "post_attention_norm.weight", {32});
        file.add_tensor(block + "ffn_gate.weight", {32, 64}, BlockType::Q4_0);
        file.add_tensor(block + "ffn_up.weight", {32, 64}, BlockType::Q5_0);
        file.add_tensor(block + "ffn_down.weight", {64, 32}, BlockType::Q4_1);
        if (i < 3) {
            file.add_tensor(block + "attn_qkv.weight", {32, 64}, BlockType::IQ4_NL);
            file.add_tensor(block + "attn_gate.weight", {32, 32}, BlockType::Q5_1);
            file.add_tensor(block + "ssm_beta.weight", {32, 4}, BlockType::BF16);
            file.add_tensor(block + "ssm_alpha.weight", {32, 4});
            file.add_tensor(block + "ssm_conv1d.weight", {4, 64});
            file.add_tensor(block + "ssm_a", {4});
            file.add_tensor(block + "ssm_dt.bias", {4});
            file.add_tensor(block + "ssm_norm.weight", {8});
            file.add_tensor(block + "ssm_out.weight", {32, 32});
            continue;
        }
        if (options.fused_qkv) {
            file.add_tensor(block + "attn_qkv.weight", {32, 96});
        } else {
            file.add_tensor(block + "attn_q.weight", {32, 64});
            file.add_tensor(block + "attn_k.weight", {32, 16});
            file.add_tensor(block + "attn_v.weight", {32, 16});
        }
        file.add_tensor(block + "attn_q_norm.weight", {16});
        file.add_tensor(block + "attn_k_norm.weight", {16});
        file.add_tensor(block + "attn_output.weight", {32, 32});
    }
    if (options.mtp) {
        file.add_tensor("blk.4.nextn.eh_proj.weight", {64, 32});
        file.add_tensor("blk.4.nextn.enorm.weight", {32});
        file.add_tensor("blk.4.nextn.hnorm.weight", {32});
        file.add_tensor("blk.4.nextn.shared_head_norm.weight", {32});
    }
    return file;
}

inline Model load_bytes(const Bytes& bytes, const std::string& name) {
    return load_model(
        std::shared_ptr<const GgufFile>(GgufFile::from_memory(bytes.data(), bytes.size(), name)));
}

}  // namespace oj::test
