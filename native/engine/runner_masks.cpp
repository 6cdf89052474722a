// Questions about token masks, and what their answers change.
#include "engine/runner.h"

#include <algorithm>

#include "engine/request.h"

namespace oj {

bool Runner::has_work() const {
    const auto can_go_on = [](const std::unique_ptr<Conversation>& c) {
        return c->ended || c->n_waiting() > 1 || !c->constraint.waits() ||
               c->constraint.has_reply();
    };
    return !abandoned_slots_.empty() || std::any_of(running_.begin(), running_.end(), can_go_on);
}

// Asks while the prompt is being read too, so that the masks are there at its end.
void Runner::ask_for_masks(Conversation& c) {
    if (c.ended || !c.constraint.must_ask()) return;
    c.drafts.clear();
    if (c.n_waiting() == 1 && c.cuts.empty()) choose_drafts(c);
    mask_requests_.push_back(c.constraint.ask(c.n_tokens(), c.drafts, c.draft_kind, now_us()));
    mask_requests_.back().request = c.id;
}

bool Runner::keep_masks(MaskReply& reply) {
    for (const auto& c : running_) {
        if (c->id != reply.request) continue;
        c->constraint.keep(std::move(reply));
        return true;
    }
    return false;
}

// Replies become part of the conversations: masks, and forced tokens, which are history at once.
void Runner::take_masks() {
    for (const auto& c : running_) {
        if (c->ended || !c->constraint.has_reply()) continue;
        const MaskReply reply = c->constraint.take();
        if (reply.n_masks == 0) {
            end(*c, OJ_FINISH_CONSTRAINT);
        } else {
            take_forced(*c, reply.forced);
            c->constraint.forced_are_known();
        }
        if (c->ended && !c->pending) settle(*c);
    }
    remove_settled();
}

}  // namespace oj
