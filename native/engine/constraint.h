// Which tokens a request may say next, as masks that are made outside the step thread, and the
// limit on its thinking.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/drafts.h"
#include "openjet.h"

namespace oj {

// oj_set_masks, kept until the next step.
struct MaskReply {
    uint64_t request = 0;
    int32_t position = 0;
    int32_t n_masks = 0;          // 0: they cannot be made
    std::vector<uint32_t> masks;  // [n_masks][words]
    std::vector<int32_t> forced;
};

// Masks of one conversation. Its life: tokens are chosen under `allowed` until the token
// `after` was generated; from then on each one needs masks: ask() -> a reply -> take() -> rows()
// in the step's plan -> used().
class Constraint {
public:
    Constraint() = default;
    Constraint(const oj_request& request, int32_t n_vocab);

    // A token became history.
    void feed(int32_t token);

    // The next token needs a mask of a reply ...
    bool active() const { return active_; }
    // ... which is not there.
    bool waits() const { return active_ && n_masks_ == 0; }
    // ... and was not asked for.
    bool must_ask() const { return waits() && asked_at_ < 0; }

    // The question for the token at `position`; `drafts` may be empty.
    oj_mask_request ask(int32_t position, std::vector<int32_t> drafts, DraftKind kind, int64_t now);
    // A question is open for longer than that.
    bool is_late(int64_t now, int64_t timeout_us) const {
        return waits() && !reply_ && asked_at_ >= 0 && now - asked_us_ >= timeout_us;
    }

    // Replies to another question are dropped.
    void keep(MaskReply reply);
    bool has_reply() const { return reply_.has_value(); }
    // The reply; the caller makes its forced tokens history, which whoever made it knows already.
    MaskReply take();
    void forced_are_known() { unseen_.clear(); }

    // Drafts that the masks reach. The last of them matters only if they were drawn at random: it
    // must be seen to be accepted or refused, or the distribution would not be the model's.
    std::vector<int32_t> drafts(bool drawn) const;
    // Tokens that were chosen under a mask, of `n_tokens` chosen now.
    int32_t n_masked(int32_t n_tokens) const {
        return active_ ? std::min(n_tokens, n_masks_) : n_tokens;
    }
    DraftKind draft_kind() const { return draft_kind_; }
    void drop_drafts() { drafts_.clear(); }

    // oj_seq.masks for `n` sampled rows: valid until the next call; NULL if nothing is masked.
    const uint32_t* const* rows(int32_t n);
    // A step has chosen tokens under these masks.
    void used();

private:
    bool constrained_ = false;
    int32_t after_ = -1;
    size_t words_ = 0;
    std::vector<uint32_t> allowed_;

    bool active_ = false;
    std::vector<int32_t> unseen_;  // tokens of the constrained part since the last question
    int32_t asked_at_ = -1;
    int64_t asked_us_ = 0;
    std::vector<int32_t> drafts_;
    DraftKind draft_kind_ = DraftKind::mtp;
    std::optional<MaskReply> reply_;
    int32_t n_masks_ = 0;
    std::vector<uint32_t> masks_;
    std::vector<const uint32_t*> rows_;
};

// Counts the tokens of a span and says when they are too many.
class ThinkingBudget {
public:
    ThinkingBudget() = default;
    explicit ThinkingBudget(const oj_thinking& thinking);

    void feed(int32_t token);
    bool used_up() const { return open_ && !closing_.empty() && left_ <= 0; }
    bool is_overdue() const { return left_ <= -4; }  // a character has at most four bytes
    const std::vector<int32_t>& closing() const { return closing_; }

private:
    int32_t opens_ = -1;
    int32_t closes_ = -1;
    bool open_ = false;
    int32_t left_ = 0;
    std::vector<int32_t> closing_;
};

// The bytes end with the beginning of a UTF-8 character.
bool ends_inside_character(std::string_view bytes);

}  // namespace oj
