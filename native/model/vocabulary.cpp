#include "model/vocabulary.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace oj {
namespace {

constexpr size_t kMaxTokens = 1 << 22;

// GPT-2's byte-level alphabet writes every byte as one printable code point: printable Latin-1 as
// itself, the other bytes as U+0100, U+0101, ... in order. This is the way back: -1 for a code
// point outside the alphabet.
struct ByteAlphabet {
    static constexpr uint32_t kSize = 256 + 68;
    std::array<int16_t, kSize> byte_of{};

    constexpr ByteAlphabet() {
        for (int16_t& byte : byte_of)
            byte = -1;
        uint32_t next = 256;
        for (uint32_t byte = 0; byte < 256; ++byte) {
            const bool printable =
                (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
            byte_of[printable ? byte : next++] = static_cast<int16_t>(byte);
        }
    }
};

constexpr ByteAlphabet kAlphabet;

// Appends the bytes that `text` writes in the byte-level alphabet. A text with anything else in it
// is appended as it is, as the Hugging Face decoder does.
void append_decoded(std::string_view text, std::vector<char>& out) {
    const size_t start = out.size();
    for (size_t i = 0; i < text.size(); ++i) {
        const auto first = static_cast<uint8_t>(text[i]);
        uint32_t code = first;
        bool valid = first < 0x80;
        if ((first & 0xe0) == 0xc0 && i + 1 < text.size()) {  // the alphabet ends below U+0800
            const auto second = static_cast<uint8_t>(text[++i]);
            code = (first & 0x1fu) << 6 | (second & 0x3fu);
            valid = (second & 0xc0) == 0x80 && code >= 0x80;
        }
        if (!valid || code >= ByteAlphabet::kSize || kAlphabet.byte_of[code] < 0) {
            out.resize(start);
            out.insert(out.end(), text.begin(), text.end());
            return;
        }
        out.push_back(static_cast<char>(kAlphabet.byte_of[code]));
    }
}

// An id stored under `key`, -1 when absent.
int32_t find_id(const GgufFile& file, std::string_view key, int32_t n_tokens) {
    const std::optional<int64_t> id = file.find_int(key);
    if (!id) return -1;
    if (*id < 0 || *id >= n_tokens) {
        throw file.key_error(
            OJ_ERR_FORMAT, key,
            "token id " + std::to_string(*id) + " of a vocabulary of " + std::to_string(n_tokens));
    }
    return static_cast<int32_t>(*id);
}

}  // namespace

Vocabulary::Vocabulary(const GgufFile& file) {
    const std::string_view kind = file.get_string("tokenizer.ggml.model");
    if (kind != "gpt2") {
        throw file.key_error(OJ_ERR_UNSUPPORTED, "tokenizer.ggml.model",
                             "tokenizer " + quoted(kind) + ", expected 'gpt2' (byte-level BPE)");
    }
    pre_ = file.get_string("tokenizer.ggml.pre");
    chat_template_ = file.find_string("tokenizer.chat_template").value_or(std::string_view());
    texts_ = file.get_strings("tokenizer.ggml.tokens");
    if (texts_.size() < 1 || texts_.size() > kMaxTokens) {
        throw file.key_error(
            OJ_ERR_FORMAT, "tokenizer.ggml.tokens",
            std::to_string(texts_.size()) + " tokens, expected 1 to " + std::to_string(kMaxTokens));
    }
    merges_ = file.get_strings("tokenizer.ggml.merges");
    read_types(file);
    decode_tokens(file);

    eos_id_ = find_id(file, "tokenizer.ggml.eos_token_id", size());
    if (eos_id_ < 0) {
        throw file.key_error(OJ_ERR_FORMAT, "tokenizer.ggml.eos_token_id", "is missing");
    }
    bos_id_ = find_id(file, "tokenizer.ggml.bos_token_id", size());
    pad_id_ = find_id(file, "tokenizer.ggml.padding_token_id", size());
    add_bos_ = file.find_bool("tokenizer.ggml.add_bos_token").value_or(false);
    find_eog_ids(file);
}

void Vocabulary::read_types(const GgufFile& file) {
    const char* const name = "tokenizer.ggml.token_type";
    const GgufKey* key = file.find_key(name);
    if (!key) throw file.key_error(OJ_ERR_FORMAT, name, "is missing");
    if (!key->is_array || (key->type != GgufType::i32 && key->type != GgufType::u32) ||
        key->count != texts_.size()) {
        throw file.key_error(
            OJ_ERR_FORMAT, name,
            "expected an array of " + std::to_string(texts_.size()) + " i32, one for each token");
    }
    types_ = key->values;
    for (int32_t id = 0; id < size(); ++id) {
        const auto value = static_cast<int32_t>(type(id));
        if (value < 1 || value > 6) {
            throw file.key_error(OJ_ERR_FORMAT, name,
                                 "token " + std::to_string(id) + " has type " +
                                     std::to_string(value) + ", expected 1 to 6");
        }
    }
}

void Vocabulary::decode_tokens(const GgufFile& file) {
    size_t total = 0;
    for (size_t i = 0; i < texts_.size(); ++i)
        total += texts_[i].size();
    if (total > UINT32_MAX) {
        throw file.key_error(OJ_ERR_FORMAT, "tokenizer.ggml.tokens",
                             std::to_string(total) + " bytes of text, expected less than 4 GiB");
    }
    decoded_.reserve(total);
    decoded_offsets_.reserve(texts_.size() + 1);
    decoded_offsets_.push_back(0);
    for (int32_t id = 0; id < size(); ++id) {
        const std::string_view token = text(id);
        if (type(id) == TokenType::normal) {
            append_decoded(token, decoded_);
        } else if (type(id) != TokenType::unused) {
            decoded_.insert(decoded_.end(), token.begin(), token.end());
        }
        decoded_offsets_.push_back(static_cast<uint32_t>(decoded_.size()));
    }
}

// What the file names as an end, and the special tokens with which Qwen's models end a text.
void Vocabulary::find_eog_ids(const GgufFile& file) {
    static constexpr std::string_view names[] = {"<|endoftext|>", "<|im_end|>", "<|fim_pad|>",
                                                 "<|repo_name|>", "<|file_sep|>"};
    eog_ids_.push_back(eos_id_);
    for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
        const int32_t id = find_id(file, key, size());
        if (id >= 0) eog_ids_.push_back(id);
    }
    for (int32_t id = 0; id < size(); ++id) {
        if (type(id) != TokenType::control) continue;
        if (std::find(std::begin(names), std::end(names), text(id)) != std::end(names)) {
            eog_ids_.push_back(id);
        }
    }
    std::sort(eog_ids_.begin(), eog_ids_.end());
    eog_ids_.erase(std::unique(eog_ids_.begin(), eog_ids_.end()), eog_ids_.end());
}

std::string_view Vocabulary::bytes(int32_t id) const {
    const uint32_t begin = decoded_offsets_[static_cast<size_t>(id)];
    const uint32_t end = decoded_offsets_[static_cast<size_t>(id) + 1];
    return {decoded_.data() + begin, end - begin};
}

TokenType Vocabulary::type(int32_t id) const {
    int32_t value;
    std::memcpy(&value, types_ + sizeof value * static_cast<size_t>(id), sizeof value);
    return static_cast<TokenType>(value);
}

bool Vocabulary::is_eog(int32_t id) const {
    return std::binary_search(eog_ids_.begin(), eog_ids_.end(), id);
}

}  // namespace oj
