#include "engine/runner.h"

#include <algorithm>

#include "engine/prefix_store.h"
#include "engine/request.h"

namespace oj {

Runner::Runner(const Model& model, Backend& backend, const oj_engine_options& options,
               std::function<int64_t()> clock)
    : model_(model),
      backend_(backend),
      options_(options),
      pool_(options.backend.n_pages),
      index_(pool_, options.backend.n_snapshots),
      clock_(std::move(clock)) {
    running_.reserve(static_cast<size_t>(options.backend.n_slots));  // later, memory may run out
    preempted_.reserve(running_.capacity());
    abandoned_slots_.reserve(running_.capacity());
    for (int32_t slot = options.backend.n_slots - 1; slot >= 0; --slot)
        free_slots_.push_back(slot);
}

bool Runner::step() {
    spill_ahead();  // first: the rows of the step get what time it leaves
    return compute();
}

bool Runner::compute() {
    take_masks();
    plan_rows();
    provide_pages();
    build_plan();
    if (seqs_.empty()) return false;
    const oj_plan plan{tokens_.data(), static_cast<int32_t>(tokens_.size()),
                       static_cast<int32_t>(seqs_.size()), seqs_.data(), 0};
    results_.assign(seqs_.size(), oj_seq_result());
    const int64_t start = clock_();
    backend_.step(plan, results_.data());
    totals_.last_step_us = clock_() - start;
    totals_.step_us += totals_.last_step_us;
    commit();
    committed_us_ = clock_();
    return true;
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
    oj_event event = {};
    event.kind = OJ_EVENT_DONE;
    event.finish = finish;
    publish(c, event);
    c.ended = true;  // only then: if memory runs out there, its last event is still to come
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
    if (store_) {
        stats.prefixes_kept = store_->n_prefixes();
        stats.host_bytes = store_->host_bytes();
    }
    return stats;
}

}  // namespace oj
