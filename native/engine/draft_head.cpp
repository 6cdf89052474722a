#include "engine/draft_head.h"

namespace oj {

std::vector<int32_t> draft_head_ids(const Vocabulary& vocab, int32_t n_rows) {
    if (n_rows <= 0 || n_rows >= vocab.size()) return {};
    const auto is_needed = [&](int32_t id) {
        const TokenType type = vocab.type(id);
        if (type == TokenType::normal) return vocab.bytes(id).size() == 1;
        return type != TokenType::unused;
    };
    int32_t left = n_rows;
    for (int32_t id = 0; id < vocab.size(); ++id)
        left -= is_needed(id);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocab.size(); ++id) {
        const bool common = left > 0 && !is_needed(id) && vocab.type(id) == TokenType::normal;
        if (common || is_needed(id)) ids.push_back(id);
        left -= common;
    }
    return ids;
}

std::vector<int32_t> draft_head_ids(const Vocabulary& vocab, const oj_backend_options& options) {
    if (options.mtp == 0) return {};
    if (options.draft_head_ids == nullptr) return draft_head_ids(vocab, options.draft_head_rows);
    return {options.draft_head_ids, options.draft_head_ids + options.n_draft_head_ids};
}

}  // namespace oj
