// One request from submission to its last event; while it runs, one conversation of the backend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/constraint.h"
#include "engine/drafts.h"
#include "engine/prefix_index.h"
#include "engine/stops.h"
#include "openjet.h"

namespace oj {

// A length at which the state is stored while the prompt is read.
struct Cut {
    int32_t length;
    bool shared;  // it ends what several conversations have in common
};

struct Conversation {
    // ---- what was asked (request.cpp fills it) ----
    uint64_t id = 0;
    std::string client;
    int32_t n_prompt = 0;
    int32_t max_tokens = 0;  // clamped to the context
    int32_t max_drafts = 0;
    bool fixed_drafts = false;  // always max_drafts, whatever their success
    bool ignore_eos = false;
    int64_t submitted_us = 0;
    int64_t deadline_us = 0;  // 0 = none; same clock
    oj_sampling sampling = {};
    std::vector<int32_t> bias_ids;
    std::vector<float> bias_values;
    std::vector<int32_t> stop_tokens;
    StopMatcher stops{{}, {}, -1};
    Constraint constraint;
    ThinkingBudget thinking;

    // ---- its history ----
    std::vector<int32_t> tokens;   // the prompt, then what was generated
    std::vector<uint64_t> hashes;  // hashes[n]: of the first n tokens
    std::vector<int32_t> penalty_ids;
    std::vector<int32_t> penalty_counts;

    // ---- its place in the backend, while it runs ----
    int32_t slot = -1;
    int32_t computed = 0;  // leading tokens in state and KV, counting `fold`
    int32_t fold = 0;      // draft rows of the last step that the next one makes history
    bool pending = false;  // the last step had draft rows: one more must settle them
    std::vector<int32_t> pages;
    std::vector<Cut> cuts;  // ascending, > computed

    // ---- drafts ----
    LookupIndex lookup;
    DraftHistory history;
    std::vector<int32_t> proposed;  // by the MTP head, for the next step
    std::vector<int32_t> drafts;    // of the step being planned or computed
    DraftKind draft_kind = DraftKind::mtp;

    // ---- its end ----
    bool ended = false;       // its last event is out; what remains is to store its live end
    int32_t stop_found = -1;  // the stop string that ended it

    oj_request_stats stats = {};

    int32_t n_tokens() const { return static_cast<int32_t>(tokens.size()); }
    // Tokens that are not rows yet. 1: it decodes; more: its prompt is being read.
    int32_t n_waiting() const { return n_tokens() - computed; }

    void push(int32_t token) {
        tokens.push_back(token);
        hashes.push_back(hash_prefix(hashes.back(), token));
    }
};

}  // namespace oj
