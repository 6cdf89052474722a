// What of a step becomes history, and what is said about it.
#include "engine/runner.h"

#include <algorithm>

#include "engine/request.h"
#include "engine/sampling.h"
#include "model/model.h"

namespace oj {

void Runner::commit() {
    count_rows();
    free_slots_.insert(free_slots_.end(), abandoned_slots_.begin(), abandoned_slots_.end());
    abandoned_slots_.clear();
    for (size_t i = 0; i < seqs_.size(); ++i) {
        if (seq_owners_[i]) commit_rows(*seq_owners_[i], seqs_[i], results_[i]);
    }
    remove_settled();
}

void Runner::count_rows() {
    StepTime step;
    int32_t n_with_rows = 0;
    for (size_t i = 0; i < seqs_.size(); ++i) {
        const oj_seq& seq = seqs_[i];
        if (seq.n_rows == 0) continue;
        const bool decodes = seq_owners_[i]->n_waiting() == 1;
        ++n_with_rows;
        step.n_decoding += decodes;
        (decodes ? step.decode_rows : step.prompt_rows) += seq.n_rows;
        step.draft_passes = std::max(step.draft_passes, results_[i].n_drafts);
    }
    step.us = static_cast<double>(totals_.last_step_us);
    step.draft_us = static_cast<double>(backend_.draft_us());
    cost_.observe(step);
    ++totals_.steps;
    totals_.shared_steps += n_with_rows >= 2;
    totals_.rows += step.decode_rows + step.prompt_rows;
    totals_.decode_rows += step.decode_rows;
    totals_.prompt_rows += step.prompt_rows;
}

void Runner::commit_rows(Conversation& c, const oj_seq& seq, const oj_seq_result& result) {
    const int32_t before = c.computed;
    c.fold = 0;
    c.pending = seq.n_rows > seq.n_certain;
    c.computed += seq.n_certain;
    if (before < c.n_prompt && seq.n_rows > 0) {
        c.stats.prompt_read = std::max(c.stats.prompt_read, std::min(c.computed, c.n_prompt));
        oj_event event = {};
        event.kind = OJ_EVENT_PROMPT;
        publish(c, event);
    }
    if (result.n_tokens > 0) {
        const int32_t accepted = result.n_tokens - 1;
        count_drafts(c, seq, accepted);  // first: the last event of a request has them too
        const int32_t n_taken = take_tokens(c, result);
        c.constraint.used();
        c.fold = std::min(n_taken, accepted);
        if (c.computed + c.fold == c.n_tokens() && !c.ended) --c.fold;  // a row to go on from
        c.computed += c.fold;
        c.history.record(c.draft_kind, seq.n_rows - seq.n_certain, accepted);
        c.proposed.clear();
        if (n_taken == result.n_tokens && c.n_waiting() == 1) {  // else they follow something else
            c.proposed.assign(result.drafts, result.drafts + result.n_drafts);
        }
        ask_for_masks(c);
    }
    for (int32_t at = before; at < c.computed; ++at)
        pool_.tokens(c.pages[at / kPageSize])[at % kPageSize] = c.tokens[at];
    if (!c.cuts.empty() && c.cuts.front().length == c.computed) {
        store(c, c.cuts.front().shared);
        c.cuts.erase(c.cuts.begin());
    }
    if (c.ended && !c.pending) settle(c);
}

void Runner::count_drafts(Conversation& c, const oj_seq& seq, int32_t accepted) {
    for (int32_t i = 0; i < seq.n_rows - seq.n_certain; ++i) {
        ++c.stats.drafted_at[seq.draft_source][i];
        ++totals_.drafted_at[seq.draft_source][i];
        c.stats.accepted_at[seq.draft_source][i] += i < accepted;
        totals_.accepted_at[seq.draft_source][i] += i < accepted;
    }
}

// The proposed tokens become history, up to the end, up to where the thinking has to close, and up
// to the first one that a constraint should have masked. Returns their number.
int32_t Runner::take_tokens(Conversation& c, const oj_seq_result& result) {
    const bool masked = c.constraint.active();
    const int32_t most = c.constraint.n_masked(result.n_tokens);
    int32_t n = 0;
    while (!c.ended && !close_thinking(c) && n < most && c.constraint.active() == masked) {
        take_token(c, result.tokens[n], result.logprobs[n]);
        ++n;
    }
    return n;
}

bool Runner::close_thinking(Conversation& c) {
    if (!c.thinking.used_up()) return false;
    if (!c.thinking.is_overdue()) {  // the model may finish a character that it has begun
        std::string said;
        for (int32_t i = std::max(c.n_prompt, c.n_tokens() - 3); i < c.n_tokens(); ++i)
            said += model_.vocab.bytes(c.tokens[i]);
        if (ends_inside_character(said)) return false;
    }
    take_forced(c, c.thinking.closing());
    return true;
}

void Runner::take_forced(Conversation& c, const std::vector<int32_t>& tokens) {
    for (size_t i = 0; i < tokens.size() && !c.ended; ++i)
        take_token(c, tokens[i], oj_logprob());
}

// A token becomes history: penalties, ends, events.
void Runner::take_token(Conversation& c, int32_t token, const oj_logprob& logprob) {
    c.push(token);
    c.constraint.feed(token);
    c.thinking.feed(token);
    ++totals_.generated;
    if (c.stats.generated++ == 0) c.stats.first_token_us = now_us() - c.submitted_us;
    if (has_penalties(c.sampling)) {
        const auto known = std::find(c.penalty_ids.begin(), c.penalty_ids.end(), token);
        if (known == c.penalty_ids.end()) {
            c.penalty_ids.push_back(token);
            c.penalty_counts.push_back(1);
        } else {
            ++c.penalty_counts[static_cast<size_t>(known - c.penalty_ids.begin())];
        }
    }
    std::vector<OutputToken> out;
    const auto named = std::find(c.stop_tokens.begin(), c.stop_tokens.end(), token);
    if (named != c.stop_tokens.end() || (!c.ignore_eos && model_.vocab.is_eog(token))) {
        c.stops.flush(&out);
        out.push_back({token, 0, logprob});
        publish(c, out);
        return end(c, OJ_FINISH_STOP);
    }
    const int32_t stop = c.stops.feed({token, -1, logprob}, model_.vocab.bytes(token), &out);
    publish(c, out);
    if (stop >= 0) {
        c.stop_found = stop;
        end(c, OJ_FINISH_STRING);
    } else if (c.stats.generated == c.max_tokens) {
        end(c, OJ_FINISH_LENGTH);
    }
}

}  // namespace oj
