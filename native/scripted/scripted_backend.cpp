// The scripted backend: says what a script says, so that everything above a backend can be tested
// without a model's opinion. See oj_script_rule in openjet.h. It also checks that plans keep the
// rules of the backend interface, and fails the step with OJ_ERR_INVALID if one does not.
//
// A reply begins where a slot first chooses a token after reset or load; the rule is chosen by the
// tokens up to there. To say `per_step` tokens in a step it proposes the following ones as drafts,
// so the engine must allow drafts. Where a mask forbids the script's token it says the lowest id
// that the mask allows, and the script goes on with its next token: a model that wants something
// else. What was forced before a masked reply's first choice counts as said.

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "engine/backend.h"
#include "engine/pages.h"
#include "model/model.h"
#include "scripted/token_snapshot.h"

namespace oj {

namespace {

struct Rule {
    std::vector<int32_t> match;
    std::vector<int32_t> reply;
    int32_t per_step;
    int32_t delay_us;
    int32_t fault_after;
};

struct Slot {
    std::vector<int32_t> history;
    std::vector<int32_t> drafts;  // rows of the last step that are not history yet
    int32_t answer_start = -1;
    const Rule* rule = nullptr;
};

[[noreturn]] void broken(const std::string& what) {
    throw Error(OJ_ERR_INVALID, "scripted backend: " + what);
}

void require(bool holds, const char* rule) {
    if (!holds) broken(std::string("the plan breaks a rule: ") + rule);
}

Rule copy_rule(const oj_script_rule& from, int32_t n_vocab) {
    if (from.per_step < 1 || from.per_step > OJ_MAX_DRAFTS + 1) {
        broken("per_step is " + std::to_string(from.per_step) + ", expected 1 to " +
               std::to_string(OJ_MAX_DRAFTS + 1));
    }
    if (from.n_match < 0 || from.n_reply < 0 || (from.n_match > 0 && !from.match) ||
        (from.n_reply > 0 && !from.reply)) {
        broken("match or reply is NULL or has a negative length");
    }
    Rule rule{{from.match, from.match + from.n_match},
              {from.reply, from.reply + from.n_reply},
              from.per_step,
              from.delay_us,
              from.fault_after};
    for (const auto& tokens : {rule.match, rule.reply}) {
        for (int32_t token : tokens) {
            if (token < 0 || token >= n_vocab) {
                broken("token " + std::to_string(token) + " is not in the vocabulary of " +
                       std::to_string(n_vocab));
            }
        }
    }
    return rule;
}

class ScriptedBackend : public Backend {
public:
    ScriptedBackend(const Model& model, const oj_backend_options& options,
                    const oj_script_rule* script, int n_script)
        : eog_(model.vocab.eog_ids().front()),
          n_vocab_(model.hparams.n_vocab),
          slots_(static_cast<size_t>(options.n_slots)),
          snapshots_(static_cast<size_t>(options.n_snapshots)),
          options_(options) {
        for (int i = 0; i < n_script; ++i)
            rules_.push_back(copy_rule(script[i], model.hparams.n_vocab));
    }

    void step(const oj_plan& plan, oj_seq_result* results) override {
        require(plan.n_rows <= options_.max_rows, "at most max_rows rows");
        int32_t delay_us = 0;
        for (int32_t i = 0; i < plan.n_seqs; ++i) {
            const oj_seq& seq = plan.seqs[i];
            results[i] = oj_seq_result();
            require(
                seq.first_row >= 0 && seq.n_rows >= 0 && seq.n_rows <= plan.n_rows - seq.first_row,
                "a sequence's rows lie within the plan's");
            take_rows(seq, plan.tokens + seq.first_row);
            if (seq.n_sampled == 0) continue;
            Slot& slot = slots_[static_cast<size_t>(seq.slot)];
            answer(slot, seq.masks, &results[i]);
            if (slot.rule) delay_us = std::max(delay_us, slot.rule->delay_us);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    }

    void reset(int slot) override { settled(slot) = Slot(); }
    void save(int slot, int snapshot) override {
        snapshots_.at(static_cast<size_t>(snapshot)) = settled(slot).history;
    }
    void load(int snapshot, int slot) override {
        settled(slot) = Slot{snapshots_.at(static_cast<size_t>(snapshot)), {}, -1, nullptr};
    }
    void copy_page(int from, int to) override {
        require(from >= 0 && from < options_.n_pages && to >= 0 && to < options_.n_pages,
                "pages are 0..n_pages-1");
    }
    oj_state_format state_format() const override {  // pages hold nothing
        return {1, 0, token_snapshot_bytes(options_.n_pages)};
    }
    void export_page(int, uint8_t*) override {}
    void import_page(int, const uint8_t*) override {}
    void export_snapshot(int snapshot, int64_t offset, int64_t n, uint8_t* out) override {
        write_tokens(snapshots_.at(static_cast<size_t>(snapshot)), offset, n, out);
    }
    void import_snapshot(int snapshot, const uint8_t* bytes) override {
        snapshots_.at(static_cast<size_t>(snapshot)) = read_tokens(bytes);
    }
    void read(int, int, float*) override {
        throw Error(OJ_ERR_UNSUPPORTED, "the scripted backend has no logits");
    }

private:
    Slot& settled(int slot) {
        Slot& found = slots_.at(static_cast<size_t>(slot));
        require(found.drafts.empty(), "draft rows are settled before reset, save and load");
        return found;
    }

    void take_rows(const oj_seq& seq, const int32_t* tokens) {
        require(seq.slot >= 0 && seq.slot < options_.n_slots, "slots are 0..n_slots-1");
        Slot& slot = slots_[static_cast<size_t>(seq.slot)];
        require(seq.fold >= 0 && seq.fold <= static_cast<int32_t>(slot.drafts.size()),
                "fold is at most the draft rows of the step before");
        slot.history.insert(slot.history.end(), slot.drafts.begin(),
                            slot.drafts.begin() + seq.fold);
        slot.drafts.clear();
        if (seq.n_rows == 0) return;
        require(seq.n_certain >= 1 && seq.n_certain <= seq.n_rows, "1 <= n_certain <= n_rows");
        require(seq.n_sampled == 0 || seq.n_sampled == seq.n_rows - seq.n_certain + 1,
                "the last certain row and every draft are sampled, or none");
        require(seq.n_sampled > 0 || seq.n_rows == seq.n_certain, "drafts are sampled");
        require(seq.pos == static_cast<int32_t>(slot.history.size()),
                "pos is the number of tokens in the slot's history");
        require(pages_for(seq.pos + seq.n_rows) <= seq.n_pages, "pages cover every row");
        slot.history.insert(slot.history.end(), tokens, tokens + seq.n_certain);
        slot.drafts.assign(tokens + seq.n_certain, tokens + seq.n_rows);
    }

    void answer(Slot& slot, const uint32_t* const* masks, oj_seq_result* result) {
        const auto n_history = static_cast<int32_t>(slot.history.size());
        if (slot.answer_start < 0) {
            slot.rule = find_rule(slot.history);
            const bool may_be_begun = slot.rule && masks;
            slot.answer_start = n_history - (may_be_begun ? n_said(*slot.rule, slot.history) : 0);
        }
        int32_t at = n_history - slot.answer_start;  // of the next reply token
        for (size_t row = 0; row <= slot.drafts.size(); ++row) {
            const int32_t token =
                allowed(reply_token(slot.rule, at++), masks ? masks[row] : nullptr);
            result->tokens[result->n_tokens++] = token;
            if (row == slot.drafts.size() || slot.drafts[row] != token) break;
        }
        const int32_t n = slot.rule ? slot.rule->per_step - 1 : 0;
        for (int32_t i = 0; i < n && at + i <= static_cast<int32_t>(slot.rule->reply.size()); ++i)
            result->drafts[result->n_drafts++] = script_token(slot.rule, at + i);
    }

    // Tokens of the reply's beginning that the history ends with.
    static int32_t n_said(const Rule& rule, const std::vector<int32_t>& history) {
        auto n = static_cast<int32_t>(std::min(rule.reply.size(), history.size()));
        while (n > 0 && !std::equal(history.end() - n, history.end(), rule.reply.begin()))
            --n;
        return n;
    }

    int32_t reply_token(const Rule* rule, int32_t at) const {
        if (rule && rule->fault_after >= 0 && at >= rule->fault_after) {
            throw Error(OJ_ERR_FAULT,
                        "the script faults after " + std::to_string(at) + " reply tokens");
        }
        return script_token(rule, at);
    }

    int32_t allowed(int32_t token, const uint32_t* mask) const {
        const auto allows = [&](int32_t id) { return mask[id / 32] >> (id % 32) & 1; };
        if (!mask || allows(token)) return token;
        for (int32_t id = 0; id < n_vocab_; ++id) {
            if (allows(id)) return id;
        }
        broken("a mask allows no token");
    }

    int32_t script_token(const Rule* rule, int32_t at) const {
        const bool speaks = rule && at < static_cast<int32_t>(rule->reply.size());
        return speaks ? rule->reply[static_cast<size_t>(at)] : eog_;
    }

    const Rule* find_rule(const std::vector<int32_t>& history) const {
        for (const Rule& rule : rules_) {
            const auto found =
                std::search(history.begin(), history.end(), rule.match.begin(), rule.match.end());
            if (found != history.end() || rule.match.empty()) return &rule;
        }
        return nullptr;
    }

    const int32_t eog_;
    const int32_t n_vocab_;
    std::vector<Rule> rules_;
    std::vector<Slot> slots_;
    std::vector<std::vector<int32_t>> snapshots_;
    const oj_backend_options options_;
};

}  // namespace

std::unique_ptr<Backend> make_scripted_backend(const Model& model,
                                               const oj_backend_options& options,
                                               const oj_script_rule* script, int n_script) {
    return std::make_unique<ScriptedBackend>(model, options, script, n_script);
}

// A token id of KV for each position, and no weights.
oj_memory_plan plan_scripted_memory(const oj_backend_options& options) {
    oj_memory_plan plan = {};
    plan.page_bytes = kPageSize * static_cast<int64_t>(sizeof(int32_t));
    plan.state_bytes = sizeof(Slot);
    plan.pages = options.n_pages * plan.page_bytes;
    plan.states = options.n_slots * plan.state_bytes;
    plan.snapshots = options.n_snapshots * plan.state_bytes;
    return plan;
}

}  // namespace oj
