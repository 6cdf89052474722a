// The part of the vocabulary that MTP drafts may be chosen from: a smaller output matrix to read
// for each draft. What is drafted changes acceptance only, never what is said.
#pragma once

#include <cstdint>
#include <vector>

#include "model/vocabulary.h"
#include "openjet.h"

namespace oj {

// Ascending ids of `n_rows` tokens: all special and byte tokens, even if they are more, then the
// lowest ids, which in a byte-level BPE are those merged first. Empty stands for all tokens.
std::vector<int32_t> draft_head_ids(const Vocabulary& vocab, int32_t n_rows);
// Those that a backend's options ask for: their list, or so many rows; empty without MTP.
std::vector<int32_t> draft_head_ids(const Vocabulary& vocab, const oj_backend_options& options);

}  // namespace oj
