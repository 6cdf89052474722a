#include "engine/runner.h"

#include <algorithm>

#include "engine/request.h"
#include "engine/sampling.h"
#include "model/model.h"

namespace oj {

namespace {

constexpr int32_t kGrowth = 4;         // pages that a request must have room to grow by
constexpr int32_t kWorthWaiting = 64;  // tokens that are read once instead of twice
constexpr double kMtpDraftCost = 1.5;  // rows: the draft head's pass and the verified row

}  // namespace

Runner::Runner(const Model& model, Backend& backend, const oj_engine_options& options)
    : model_(model),
      backend_(backend),
      options_(options),
      pool_(options.backend.n_pages),
      index_(pool_, options.backend.n_snapshots) {
    for (int32_t slot = options.backend.n_slots - 1; slot >= 0; --slot)
        free_slots_.push_back(slot);
}

// ---------------------------------------------------------------- admission

Admission Runner::admit(Conversation& c) {
    if (free_slots_.empty()) return Admission::no_room;
    int32_t entry = index_.find(c.tokens, c.hashes, c.n_tokens() - 1);
    if (joins_shared_prefix(c, entry < 0 ? 0 : index_[entry].length)) return Admission::later;
    if (!has_pages_for(c, entry)) {
        if (!running_.empty()) return Admission::no_room;
        entry = -1;  // alone, everybody's pages can be had but for those of its own prefix
    }
    resume(c, entry);
    return Admission::admitted;
}

void Runner::add(std::unique_ptr<Conversation> request) {
    running_.push_back(std::move(request));
    ask_for_masks(*running_.back());
}

// If somebody is reading what this request begins with too, or is about to store it as a live end,
// the request waits and resumes from there.
bool Runner::joins_shared_prefix(const Conversation& request, int32_t cached) {
    if (index_.n_total() == 0) return false;
    for (const auto& other : running_) {
        if (!other->ended && other->n_waiting() <= 1) continue;
        const auto limit = static_cast<size_t>(std::min(request.n_tokens() - 1, other->n_tokens()));
        const auto differ = std::mismatch(request.tokens.begin(), request.tokens.begin() + limit,
                                          other->tokens.begin());
        const auto common = static_cast<int32_t>(differ.first - request.tokens.begin());
        if (other->ended) {  // the next step stores all of it
            if (other->computed > cached && common >= other->computed) return true;
            continue;
        }
        if (common < cached + kWorthWaiting || common <= other->computed) continue;
        auto cut = std::find_if(other->cuts.begin(), other->cuts.end(),
                                [&](const Cut& known) { return known.length >= common; });
        if (cut == other->cuts.end() || cut->length != common) {
            cut = other->cuts.insert(cut, {common, true});
        }
        cut->shared = true;
        return true;
    }
    return false;
}

// Room for the prompt, some growth of its own and a page for everybody else.
bool Runner::has_pages_for(const Conversation& c, int32_t entry) const {
    int32_t available = pool_.n_free() + pool_.n_cached() - static_cast<int32_t>(running_.size());
    int32_t needed = std::min(pages_for(c.n_tokens()) + kGrowth, pages_for(options_.context));
    if (entry >= 0) {
        const StoredPrefix& prefix = index_[entry];
        needed -= prefix.length / kPageSize;
        for (int32_t page : prefix.pages)
            available -= !pool_.is_live(page);  // cannot be evicted while it is resumed from
    }
    return needed <= available;
}

void Runner::resume(Conversation& c, int32_t entry) {
    c.slot = free_slots_.back();
    free_slots_.pop_back();
    if (entry < 0) {
        backend_.reset(c.slot);
        extend_pages(c, c.n_tokens());
    } else {
        const std::vector<int32_t> stored = index_[entry].pages;
        c.computed = index_[entry].length;
        backend_.load(entry, c.slot);
        index_.touch(entry, c.tokens, c.hashes);
        for (int32_t page : stored)
            pool_.hold_live(page);
        const auto n_full = static_cast<size_t>(c.computed / kPageSize);
        c.pages.assign(stored.begin(), stored.begin() + n_full);
        extend_pages(c, c.n_tokens());
        if (n_full < stored.size()) {  // the partial page is copied: its rest is somebody else's
            const int32_t from = stored.back(), to = c.pages[n_full];
            backend_.copy_page(from, to);
            std::copy_n(pool_.tokens(from), kPageSize, pool_.tokens(to));
            pool_.drop_live(from);
        }
    }
    c.cuts.erase(std::remove_if(c.cuts.begin(), c.cuts.end(),
                                [&](const Cut& cut) { return cut.length <= c.computed; }),
                 c.cuts.end());
    if (c.stats.prompt_read > 0) return;  // it was preempted: counted before
    c.stats.queued_us = now_us() - c.submitted_us;
    c.stats.cached_tokens = c.computed;
    c.stats.prompt_read = c.computed;
    totals_.cached_tokens += c.computed;
}

// ---------------------------------------------------------------- masks

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

// ---------------------------------------------------------------- one step

bool Runner::step() {
    take_masks();
    plan_rows();
    provide_pages();
    build_plan();
    if (seqs_.empty()) return false;
    const oj_plan plan{tokens_.data(), static_cast<int32_t>(tokens_.size()),
                       static_cast<int32_t>(seqs_.size()), seqs_.data(), 0};
    results_.assign(seqs_.size(), oj_seq_result());
    const int64_t start = now_us();
    backend_.step(plan, results_.data());
    totals_.last_step_us = now_us() - start;
    totals_.step_us += totals_.last_step_us;
    commit();
    return true;
}

void Runner::plan_rows() {
    shares_.assign(running_.size(), RowShare());
    int32_t n_decoding = 0;
    for (const auto& c : running_)
        n_decoding += !c->ended && c->n_waiting() == 1;
    draft_cost_ = std::max(1, n_decoding) * cost_.row_cost();
    for (size_t i = 0; i < running_.size(); ++i)
        plan_rows(*running_[i], &shares_[i]);
    RowLimits limits;
    limits.max_rows = options_.backend.max_rows;
    limits.prompt_rows =
        std::max(options_.min_prompt_rows, cost_.prompt_rows(options_.step_target));
    limits.reserved_prompt_rows = options_.min_prompt_rows;
    limits.turn = static_cast<int32_t>(totals_.steps % 4096);
    share_rows(&shares_, limits);
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
}

void Runner::choose_drafts(Conversation& c) {
    const int32_t left = c.max_tokens - c.stats.generated - 1;  // beside the chosen token
    const int32_t most = std::min(c.max_drafts, left);
    if (most <= 0) return;
    const int32_t n_mtp = std::min(most, static_cast<int32_t>(c.proposed.size()));
    c.drafts.assign(c.proposed.begin(), c.proposed.begin() + n_mtp);
    c.draft_kind = DraftKind::mtp;

    const LookupIndex::Match match = c.lookup.find(c.tokens);
    if (match.end == 0) return;
    const DraftKind kind = lookup_kind(match.length);
    const int32_t n = draft_depth(c, kind, most, 1.0);
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
        seq.n_draft = mtp_depth(c);
        extend_pages(c, seq.pos + seq.n_rows + seq.n_draft);  // else the backend drafts fewer
    }
    seq.pages = c.pages.data();
    seq.n_pages = static_cast<int32_t>(c.pages.size());
    seqs_.push_back(seq);
    seq_owners_.push_back(&c);
}

// MTP drafts worth having after this step.
int32_t Runner::mtp_depth(const Conversation& c) const {
    const int32_t left = c.max_tokens - c.stats.generated - 2;  // beside two chosen tokens
    if (!options_.backend.mtp || left <= 0) return 0;
    return draft_depth(c, DraftKind::mtp, std::min(c.max_drafts, left), kMtpDraftCost);
}

// `cost`: of a draft, in rows.
int32_t Runner::draft_depth(const Conversation& c, DraftKind kind, int32_t most,
                            double cost) const {
    return c.fixed_drafts ? most : c.history.depth(kind, most, cost * draft_cost_);
}

void Runner::commit() {
    int32_t decode_rows = 0, prompt_rows = 0, n_with_rows = 0;
    for (size_t i = 0; i < seqs_.size(); ++i) {
        const oj_seq& seq = seqs_[i];
        if (seq.n_rows == 0) continue;
        ++n_with_rows;
        (seq_owners_[i]->n_waiting() == 1 ? decode_rows : prompt_rows) += seq.n_rows;
    }
    cost_.observe(decode_rows, prompt_rows, static_cast<double>(totals_.last_step_us));
    ++totals_.steps;
    totals_.shared_steps += n_with_rows >= 2;
    totals_.rows += decode_rows + prompt_rows;
    totals_.decode_rows += decode_rows;
    totals_.prompt_rows += prompt_rows;

    free_slots_.insert(free_slots_.end(), abandoned_slots_.begin(), abandoned_slots_.end());
    abandoned_slots_.clear();
    for (size_t i = 0; i < seqs_.size(); ++i) {
        if (seq_owners_[i]) commit_rows(*seq_owners_[i], seqs_[i], results_[i]);
    }
    remove_settled();
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

// ---------------------------------------------------------------- pages, snapshots, slots

bool Runner::extend_pages(Conversation& c, int32_t n_positions) {
    while (static_cast<int32_t>(c.pages.size()) < pages_for(n_positions)) {
        int32_t page = pool_.acquire();
        if (page < 0 && index_.evict_page()) page = pool_.acquire();
        if (page < 0) return false;
        c.pages.push_back(page);
    }
    return true;
}

// Back to the queue with everything it has said; it will be read again as one long prompt.
void Runner::preempt(size_t index) {
    std::unique_ptr<Conversation> c = std::move(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    shares_.erase(shares_.begin() + static_cast<std::ptrdiff_t>(index));
    if (c->pending) {
        abandoned_slots_.push_back(c->slot);
        c->slot = -1;
    }
    release(*c);
    c->computed = 0;
    c->fold = 0;
    c->pending = false;
    c->proposed.clear();
    c->constraint.drop_drafts();
    preempted_.push_back(std::move(c));
}

// Stores the state that the slot has now.
void Runner::store(Conversation& c, bool shared) {
    const int32_t entry = index_.insert(c.tokens, c.hashes, c.computed, c.pages, shared);
    if (entry >= 0) backend_.save(c.slot, entry);
}

// The end of an ended conversation, when nothing of it is pending: its live end stays for the
// follow-up, its slot is free.
void Runner::settle(Conversation& c) {
    if (c.computed > 0) store(c, false);
    release(c);
}

void Runner::release(Conversation& c) {
    for (int32_t page : c.pages)
        pool_.drop_live(page);
    c.pages.clear();
    if (c.slot >= 0) free_slots_.push_back(c.slot);
    c.slot = -1;
}

void Runner::remove_settled() {
    running_.erase(
        std::remove_if(running_.begin(), running_.end(), [](const auto& c) { return c->slot < 0; }),
        running_.end());
}

void Runner::end_running(const std::function<int32_t(const Conversation&)>& finish_of) {
    for (const auto& c : running_) {
        const int32_t finish = c->ended ? -1 : finish_of(*c);
        if (finish < 0) continue;
        end(*c, static_cast<oj_finish>(finish));
        if (!c->pending) settle(*c);
    }
    remove_settled();
}

void Runner::end(Conversation& c, oj_finish finish) {
    std::vector<OutputToken> held;
    c.stops.flush(&held);
    publish(c, held);
    c.ended = true;
    oj_event event = {};
    event.kind = OJ_EVENT_DONE;
    event.finish = finish;
    publish(c, event);
}

// ---------------------------------------------------------------- events and statistics

void Runner::publish(Conversation& c, const std::vector<OutputToken>& tokens) {
    for (const OutputToken& token : tokens) {
        oj_event event = {};
        event.kind = OJ_EVENT_TOKEN;
        event.token = token.id;
        event.keep = token.keep;
        event.logprob = token.logprob;
        publish(c, event);
    }
}

void Runner::publish(Conversation& c, oj_event event) {
    event.request = c.id;
    event.stop = event.kind == OJ_EVENT_DONE ? c.stop_found : -1;
    c.stats.total_us = now_us() - c.submitted_us;
    event.stats = c.stats;
    events_.push_back(event);
}

oj_engine_stats Runner::stats() const {
    oj_engine_stats stats = totals_;
    stats.running = static_cast<int32_t>(running_.size());
    stats.pages_total = pool_.n_total();
    stats.pages_used = pool_.n_live();
    stats.pages_cached = pool_.n_cached();
    stats.evicted_pages = index_.n_evicted_pages();
    stats.snapshots_total = index_.n_total();
    stats.snapshots_used = index_.n_used();
    stats.context = options_.context;
    return stats;
}

}  // namespace oj
