// The KV pages of all conversations.
#pragma once

#include <cstring>

#include "cpu/kv_codec.h"
#include "cpu/memory.h"

namespace oj::cpu {

class KvPool {
public:
    KvPool(KvCodec kv_codec, int n_layers, int n_heads, int n_pages)
        : codec(kv_codec),
          n_heads_(n_heads),
          page_bytes_(page_bytes(kv_codec, n_layers, n_heads)),
          memory_(page_bytes_ * n_pages, "KV pages (context)") {}

    size_t page_bytes() const { return page_bytes_; }

    static size_t page_bytes(const KvCodec& codec, int n_layers, int n_heads) {
        return codec.head_bytes() * n_layers * n_heads;
    }

    uint8_t* keys(int page, int layer, int head) const {
        return page_data(page) +
               (static_cast<size_t>(layer) * n_heads_ + head) * codec.head_bytes();
    }
    uint8_t* values(int page, int layer, int head) const {
        return keys(page, layer, head) + codec.block_bytes;
    }

    uint8_t* page_data(int i) const { return memory_.data() + i * page_bytes_; }
    void touch(size_t* budget) const { memory_.touch(budget); }  // see Pages
    void copy(int from, int to) { std::memcpy(page_data(to), page_data(from), page_bytes_); }

    const KvCodec codec;

private:
    int n_heads_;
    size_t page_bytes_;
    Pages<uint8_t> memory_;
};

}  // namespace oj::cpu
