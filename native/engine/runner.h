// Everything the step thread owns: running conversations, pages, stored prefixes, the backend. No
// threads and no locks in here; the same calls in the same order do the same thing.
//
// A step: share out rows -> give them pages -> build the plan -> backend -> commit. What the
// backend proposes becomes history here: stop strings, max_tokens and ends decide how much of it,
// and the next step's `fold` tells the backend.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "engine/backend.h"
#include "engine/conversation.h"
#include "engine/pages.h"
#include "engine/prefix_index.h"
#include "engine/request.h"
#include "engine/scheduler.h"

namespace oj {

class PrefixStore;
struct SavedConversation;
struct SpilledPrefix;

enum class Admission {
    admitted,
    later,    // what it can start from is about to be stored, or being read from a file
    no_room,  // no slot or no pages: wait until somebody ends
};

class Runner {
public:
    // `clock`: microseconds, for the time of steps.
    Runner(const Model& model, Backend& backend, const oj_engine_options& options,
           std::function<int64_t()> clock = now_us);

    // Gives the request a slot, its longest stored prefix and pages for its prompt. Only after
    // `admitted` does it run; the caller then hands it over with add().
    Admission admit(Conversation& request);
    void add(std::unique_ptr<Conversation> request);

    // Stored prefixes that have to make room go to `store`, and come back from there.
    void keep_in(PrefixStore& store);

    // One step of everybody; false if there was nothing to do.
    bool step();

    // Publishes the last event of a request, running or not.
    void end(Conversation& c, oj_finish finish);
    // Ends every running conversation for which `finish_of` gives an oj_finish (>= 0).
    void end_running(const std::function<int32_t(const Conversation&)>& finish_of);

    const std::vector<std::unique_ptr<Conversation>>& running() const { return running_; }
    // The next step would compute something: not everybody waits for masks.
    bool has_work() const;
    // Keeps masks for the next step; false if no such request is running.
    bool keep_masks(MaskReply& reply);
    std::vector<oj_mask_request> take_mask_requests() { return std::exchange(mask_requests_, {}); }
    const std::vector<oj_event>& events() const { return events_; }
    std::vector<oj_event> take_events() { return std::exchange(events_, {}); }
    // Conversations that had to make room; they go back to the queue and will go on unchanged.
    std::vector<std::unique_ptr<Conversation>>& preempted() { return preempted_; }
    oj_engine_stats stats() const;

    // Everything stored, to the store. Everybody must have ended.
    void spill_all();
    // What is stored of these tokens, here or in the store: the longest prefix, and those shorter
    // ones that are here. False: it is being read, ask again.
    bool export_stored(const std::vector<int32_t>& tokens, SavedConversation* saved);
    // Drops the conversation that these tokens are. Returns the length of what was stored of it;
    // `removed` is ready when no file has it any more.
    int32_t erase(const std::vector<int32_t>& tokens, std::future<void>* removed);

private:
    // the store (runner_store.cpp)
    bool spill(int32_t entry, const std::function<bool()>& go_on);
    void spill_ahead();
    void find_victims();
    int32_t spilled_length(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes,
                           int32_t limit) const;
    bool bring_back(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes,
                    int32_t limit, int32_t* entry);
    int32_t import(const std::vector<int32_t>& tokens, const std::vector<uint64_t>& hashes,
                   int32_t length, int32_t entry, const SpilledPrefix& prefix);
    bool has_pages_to_import(int32_t length, int32_t entry) const;

    // admission (runner_admission.cpp)
    bool joins_shared_prefix(const Conversation& request, int32_t cached);
    bool has_pages_for(const Conversation& request, int32_t entry) const;
    void resume(Conversation& c, int32_t entry);

    // masks (runner_masks.cpp)
    void ask_for_masks(Conversation& c);
    void take_masks();

    bool compute();

    // one step (runner_plan.cpp)
    void plan_rows();
    void plan_rows(Conversation& c, RowShare* share);
    RowLimits row_limits() const;
    void choose_drafts(Conversation& c);
    void provide_pages();
    void build_plan();
    void add_rows(Conversation& c, const RowShare& share);
    int32_t most_drafts(const Conversation& c, int32_t n_chosen) const;
    int32_t draft_depth(const Conversation& c, DraftKind kind, int32_t most) const;

    // what of it becomes history (runner_commit.cpp)
    void commit();
    void count_rows();
    void commit_rows(Conversation& c, const oj_seq& seq, const oj_seq_result& result);
    void count_drafts(Conversation& c, const oj_seq& seq, int32_t accepted);
    int32_t take_tokens(Conversation& c, const oj_seq_result& result);
    bool close_thinking(Conversation& c);
    void take_forced(Conversation& c, const std::vector<int32_t>& tokens);
    void take_token(Conversation& c, int32_t token, const oj_logprob& logprob);

    // pages, snapshots, slots (runner.cpp)
    bool extend_pages(Conversation& c, int32_t n_positions);
    void preempt(size_t index);
    void store(Conversation& c, bool shared);
    void settle(Conversation& c);
    void release(Conversation& c);
    void remove_settled();

    void publish(Conversation& c, const std::vector<OutputToken>& tokens);
    void publish(Conversation& c, oj_event event);

    const Model& model_;
    Backend& backend_;
    PrefixStore* store_ = nullptr;
    uint64_t spilling_ = 0;  // id of the entry whose last spill() had no time for all of it
    // What spill_ahead() copies, in order; found anew when the index or much of the pool changed.
    struct {
        std::vector<int32_t> entries;
        size_t n_done = 0;
        uint64_t index_changes = ~uint64_t{0};
        int32_t n_free = 0;  // pages, then
    } victims_;
    const oj_engine_options options_;
    PagePool pool_;
    PrefixIndex index_;
    const std::function<int64_t()> clock_;
    StepCost cost_;
    int64_t committed_us_ = 0;  // when the last step ended

    std::vector<std::unique_ptr<Conversation>> running_;  // in order of admission
    std::vector<std::unique_ptr<Conversation>> preempted_;
    std::vector<int32_t> free_slots_;
    std::vector<int32_t> abandoned_slots_;  // their pending drafts are dropped by the next step

    // the step being planned or computed
    int32_t n_decoding_ = 1;        // conversations, at least 1
    std::vector<RowShare> shares_;  // of running_
    std::vector<int32_t> tokens_;
    std::vector<oj_seq> seqs_;
    std::vector<Conversation*> seq_owners_;  // of seqs_; NULL for an abandoned slot
    std::vector<oj_seq_result> results_;

    std::vector<oj_event> events_;
    std::vector<oj_mask_request> mask_requests_;
    oj_engine_stats totals_ = {};
};

}  // namespace oj
