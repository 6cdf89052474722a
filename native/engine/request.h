// From the C interface's request to a conversation: every argument checked, everything copied.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/conversation.h"

namespace oj {

struct Model;

int64_t now_us();  // steady clock

// Throws oj::Error (OJ_ERR_INVALID, OJ_ERR_CONTEXT) naming the field, its value and the rule.
void check_backend_options(const oj_backend_options& options);
void check_options(const Model& model, const oj_engine_options& options);
void check_masks(const uint32_t* masks, int32_t n_masks, const int32_t* forced, int32_t n_forced,
                 int32_t n_vocab);
std::unique_ptr<Conversation> make_conversation(const Model& model,
                                                const oj_engine_options& options,
                                                const oj_request& request);

}  // namespace oj
