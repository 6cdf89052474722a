#include "engine/constraint.h"

#include <algorithm>
#include <utility>

namespace oj {

Constraint::Constraint(const oj_request& request, int32_t n_vocab)
    : constrained_(request.constrained != 0),
      after_(request.constrain_after),
      words_((static_cast<size_t>(n_vocab) + 31) / 32),
      active_(constrained_ && after_ < 0) {
    if (request.allowed) allowed_.assign(request.allowed, request.allowed + words_);
}

void Constraint::feed(int32_t token) {
    if (active_) {
        unseen_.push_back(token);
    } else if (constrained_ && token == after_) {
        active_ = true;
    }
}

oj_mask_request Constraint::ask(int32_t position, std::vector<int32_t> drafts, DraftKind kind,
                                int64_t now) {
    asked_at_ = position;
    asked_us_ = now;
    drafts_ = std::move(drafts);
    draft_kind_ = kind;
    oj_mask_request question = {};
    question.position = position;
    question.n_tokens = static_cast<int32_t>(unseen_.size());
    question.n_drafts = static_cast<int32_t>(drafts_.size());
    std::copy(unseen_.begin(), unseen_.end(), question.tokens);
    std::copy(drafts_.begin(), drafts_.end(), question.drafts);
    unseen_.clear();
    return question;
}

void Constraint::keep(MaskReply reply) {
    if (reply.position == asked_at_ && !reply_ && n_masks_ == 0) reply_ = std::move(reply);
}

MaskReply Constraint::take() {
    MaskReply reply = std::move(*reply_);
    reply_.reset();
    n_masks_ = reply.n_masks;
    masks_ = std::move(reply.masks);
    if (!reply.forced.empty()) drafts_.clear();
    return reply;
}

std::vector<int32_t> Constraint::drafts(bool drawn) const {
    const size_t n = std::min(drafts_.size(), static_cast<size_t>(n_masks_ - (drawn ? 0 : 1)));
    return {drafts_.begin(), drafts_.begin() + static_cast<std::ptrdiff_t>(n)};
}

const uint32_t* const* Constraint::rows(int32_t n) {
    if (!active_ && allowed_.empty()) return nullptr;
    rows_.assign(static_cast<size_t>(n), active_ ? nullptr : allowed_.data());
    for (int32_t i = 0; active_ && i < std::min(n, n_masks_); ++i)
        rows_[static_cast<size_t>(i)] = masks_.data() + static_cast<size_t>(i) * words_;
    return rows_.data();
}

void Constraint::used() {
    n_masks_ = 0;
    asked_at_ = -1;
}

ThinkingBudget::ThinkingBudget(const oj_thinking& thinking)
    : opens_(thinking.open),
      closes_(thinking.close),
      open_(thinking.starts_open != 0),
      left_(thinking.budget),
      closing_(thinking.closing, thinking.closing + thinking.n_closing) {}

bool ends_inside_character(std::string_view bytes) {
    for (size_t n = 1; n <= std::min<size_t>(3, bytes.size()); ++n) {
        const auto byte = static_cast<unsigned char>(bytes[bytes.size() - n]);
        if (byte < 0x80) return false;
        if (byte >= 0xC0) return n < (byte >= 0xF0 ? 4u : byte >= 0xE0 ? 3u : 2u);
    }
    return false;
}

void ThinkingBudget::feed(int32_t token) {
    if (open_) {
        open_ = token != closes_;
        left_ -= open_;
    } else {
        open_ = token == opens_;
    }
}

}  // namespace oj
