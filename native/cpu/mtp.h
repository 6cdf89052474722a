// The multi-token-prediction block: keeps its KV in step and drafts tokens.
#pragma once

#include "cpu/forward.h"

namespace oj::cpu {

// Rows of a pass through the block.
struct MtpBatch {
    Batch batch;
    std::vector<const float*> before;  // post-norm hidden of the position before, nullptr at 0
    std::vector<float*> after;         // mtp_draft: where the row's own goes; may equal before
};

// The rows' keys and values, which is all that later rows need. Run by all threads.
void mtp_store(Worker& worker, const Machine& m, const MtpWeights& w, const MtpBatch& rows);

// The whole block: logits [rows][n_vocab] of the tokens after the rows', and the post-norm hidden
// [n_embd] of each row, that a chained pass continues from.
void mtp_draft(Worker& worker, const Machine& m, const MtpWeights& w, const MtpBatch& rows,
               float* logits);

}  // namespace oj::cpu
