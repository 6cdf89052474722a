// What the next step computes: rows, drafts, pages.
#include "engine/runner.h"

#include <algorithm>

#include "engine/sampling.h"

namespace oj {

void Runner::plan_rows() {
    shares_.assign(running_.size(), RowShare());
    int32_t n_decoding = 0;
    for (const auto& c : running_)
        n_decoding += !c->ended && c->n_waiting() == 1;
    n_decoding_ = std::max(1, n_decoding);
    for (size_t i = 0; i < running_.size(); ++i)
        plan_rows(*running_[i], &shares_[i]);
    share_rows(&shares_, row_limits());
}

RowLimits Runner::row_limits() const {
    RowLimits limits;
    limits.max_rows = options_.backend.max_rows;
    limits.turn = static_cast<int32_t>(totals_.steps % 4096);
    const double ordinary_us = cost_.decode_us();
    if (ordinary_us == 0) return limits;  // unknown: a step without prompts will tell
    int32_t passes = 0;
    for (const RowShare& share : shares_)
        passes = std::max(passes, share.waiting == 1 ? share.ahead : 0);
    const double target_us =
        options_.step_target_us > 0 ? options_.step_target_us : options_.step_target * ordinary_us;
    const int64_t held_us = clock_() - committed_us_;  // admission is part of the pause
    limits.spare_rows = cost_.spare_rows(target_us - static_cast<double>(held_us), passes);
    for (const auto& c : running_)  // the last row of a prompt goes as one that decodes
        limits.spare_rows -= c->n_waiting() == 1 && c->computed < c->n_prompt;
    limits.min_prompt_rows = options_.min_prompt_rows;
    return limits;
}

// What the conversation could use. Without masks it stops short of the row that needs them.
void Runner::plan_rows(Conversation& c, RowShare* share) {
    c.drafts.clear();
    if (c.ended) return;
    share->waiting = c.n_waiting() - c.constraint.waits();
    share->limit = share->waiting;
    if (!c.cuts.empty()) {
        share->limit = std::min(share->waiting, c.cuts.front().length - c.computed);
    } else if (c.n_waiting() == 1 && c.constraint.active()) {
        c.draft_kind = c.constraint.draft_kind();
        const bool drawn = c.draft_kind == DraftKind::mtp && !is_coupled(c.sampling);
        if (!c.constraint.waits()) c.drafts = c.constraint.drafts(drawn);
    } else if (c.n_waiting() == 1) {
        choose_drafts(c);
    }
    share->drafts = static_cast<int32_t>(c.drafts.size());
    share->fixed = c.fixed_drafts ? share->drafts : 0;
    if (options_.backend.mtp) share->ahead = draft_depth(c, DraftKind::mtp, most_drafts(c, 2));
}

void Runner::choose_drafts(Conversation& c) {
    const int32_t most = most_drafts(c, 1);
    if (most == 0) return;
    const int32_t n_mtp = std::min(most, static_cast<int32_t>(c.proposed.size()));
    c.drafts.assign(c.proposed.begin(), c.proposed.begin() + n_mtp);
    c.draft_kind = DraftKind::mtp;

    const LookupIndex::Match match = c.lookup.find(c.tokens);
    if (match.end == 0) return;
    const DraftKind kind = lookup_kind(match.length);
    const int32_t n = draft_depth(c, kind, most);
    if (n == 0) return;
    if (c.history.expected(kind, n) < c.history.expected(DraftKind::mtp, n_mtp)) return;
    c.drafts = continue_match(c.tokens, match.end, n);
    c.draft_kind = kind;
}

// Pages for every row, the oldest conversation first. When there are none to be had, the youngest
// makes room; the oldest always goes on, since the pool holds at least one whole context.
void Runner::provide_pages() {
    for (size_t i = 0; i < running_.size(); ++i) {
        Conversation& c = *running_[i];
        RowShare& share = shares_[i];
        if (share.certain_rows == 0) continue;
        while (!extend_pages(c, c.computed + share.certain_rows + share.draft_rows)) {
            if (share.draft_rows > 0) {
                share.draft_rows = 0;
                continue;
            }
            size_t youngest = running_.size() - 1;
            while (running_[youngest]->ended)
                --youngest;
            preempt(youngest);
            if (youngest == i) break;
        }
    }
}

void Runner::build_plan() {
    tokens_.clear();
    seqs_.clear();
    seq_owners_.clear();
    for (int32_t slot : abandoned_slots_) {
        oj_seq seq = {};
        seq.slot = slot;
        seqs_.push_back(seq);
        seq_owners_.push_back(nullptr);
    }
    for (size_t i = 0; i < running_.size(); ++i) {
        if (running_[i]->ended || shares_[i].certain_rows > 0) add_rows(*running_[i], shares_[i]);
    }
}

void Runner::add_rows(Conversation& c, const RowShare& share) {
    oj_seq seq = {};
    seq.slot = c.slot;
    seq.fold = c.fold;
    seq.pos = c.computed;
    seq.first_row = static_cast<int32_t>(tokens_.size());
    seq.n_certain = share.certain_rows;
    seq.n_rows = share.certain_rows + share.draft_rows;
    seq.draft_source = c.draft_kind == DraftKind::mtp ? OJ_DRAFT_MTP : OJ_DRAFT_LOOKUP;
    c.drafts.resize(static_cast<size_t>(share.draft_rows));
    const auto first = c.tokens.begin() + c.computed;
    tokens_.insert(tokens_.end(), first, first + share.certain_rows);
    tokens_.insert(tokens_.end(), c.drafts.begin(), c.drafts.end());
    if (share.certain_rows > 0 && share.certain_rows == c.n_waiting()) {
        seq.n_sampled = 1 + share.draft_rows;
        seq.sampling = &c.sampling;
        seq.penalty_ids = c.penalty_ids.data();
        seq.penalty_counts = c.penalty_counts.data();
        seq.n_penalty = static_cast<int32_t>(c.penalty_ids.size());
        seq.masks = c.constraint.rows(seq.n_sampled);
        seq.n_draft = share.ahead;
        extend_pages(c, seq.pos + seq.n_rows + seq.n_draft);  // else the backend drafts fewer
    }
    seq.pages = c.pages.data();
    seq.n_pages = static_cast<int32_t>(c.pages.size());
    seqs_.push_back(seq);
    seq_owners_.push_back(&c);
}

// Drafts that the conversation has room for beside `n_chosen` tokens more: 1 in a step that
// verifies them, 2 in the step before, which proposes them.
int32_t Runner::most_drafts(const Conversation& c, int32_t n_chosen) const {
    return std::clamp(c.max_tokens - c.stats.generated - n_chosen, 0, c.max_drafts);
}

// How many of `most` drafts are worth their cost.
int32_t Runner::draft_depth(const Conversation& c, DraftKind kind, int32_t most) const {
    if (c.fixed_drafts) return most;
    return c.history.depth(
        kind, most,
        kind == DraftKind::mtp ? cost_.mtp_draft(n_decoding_) : cost_.lookup_draft(n_decoding_));
}

}  // namespace oj
