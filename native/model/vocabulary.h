// The tokenizer's part of a model file: what the engine needs to turn ids into bytes and to know
// the end of a generation, and what the Python tokenizer is built from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.h"

namespace oj {

// Values are those of tokenizer.ggml.token_type.
enum class TokenType : int32_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6,
};

// Immutable; views point into the mapped file of the Model that owns it.
class Vocabulary {
public:
    Vocabulary() = default;
    explicit Vocabulary(const GgufFile& file);

    int32_t size() const { return static_cast<int32_t>(texts_.size()); }

    // As in the file: normal tokens in GPT-2's byte-level alphabet, the others verbatim UTF-8.
    std::string_view text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }

    // What the token stands for in the output (not necessarily whole UTF-8 characters). Control
    // tokens give their text; unused ones are empty.
    std::string_view bytes(int32_t id) const;

    TokenType type(int32_t id) const;

    // "left right" in the byte-level alphabet, best rank first.
    const GgufStrings& merges() const { return merges_; }

    std::string_view pre() const { return pre_; }  // tokenizer.ggml.pre, e.g. "qwen35"
    std::string_view chat_template() const { return chat_template_; }  // empty when absent

    int32_t eos_id() const { return eos_id_; }
    int32_t bos_id() const { return bos_id_; }  // -1 when absent
    int32_t pad_id() const { return pad_id_; }  // -1 when absent
    bool add_bos() const { return add_bos_; }

    // Ids that end a generation, ascending; eos_id is among them.
    const std::vector<int32_t>& eog_ids() const { return eog_ids_; }
    bool is_eog(int32_t id) const;

private:
    void read_types(const GgufFile& file);
    void decode_tokens(const GgufFile& file);
    void find_eog_ids(const GgufFile& file);

    GgufStrings texts_;
    GgufStrings merges_;
    const uint8_t* types_ = nullptr;  // int32, unaligned
    std::vector<char> decoded_;
    std::vector<uint32_t> decoded_offsets_;  // size() + 1
    std::string_view pre_;
    std::string_view chat_template_;
    int32_t eos_id_ = -1;
    int32_t bos_id_ = -1;
    int32_t pad_id_ = -1;
    bool add_bos_ = false;
    std::vector<int32_t> eog_ids_;
};

}  // namespace oj
