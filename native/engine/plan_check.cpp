#include "engine/plan_check.h"

#include <string>

#include "engine/numerics.h"

namespace oj {

namespace {

[[noreturn]] void refuse(const std::string& what) {
    throw Error(OJ_ERR_INVALID, what);
}

void in_range(const std::string& what, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    refuse(what + " is " + std::to_string(value) + "; it must be " + std::to_string(low) + " to " +
           std::to_string(high));
}

void check_seq(const oj_backend_options& options, const oj_plan& plan, const oj_seq& seq,
               const std::string& name, int pending) {
    in_range(name + "fold", seq.fold, 0, pending);
    in_range(name + "n_rows", seq.n_rows, 0, plan.n_rows);
    if (seq.n_rows == 0) {
        in_range(name + "n_certain", seq.n_certain, 0, 0);
        in_range(name + "n_sampled", seq.n_sampled, 0, 0);
        return;
    }
    in_range(name + "n_certain", seq.n_certain, 1, seq.n_rows);
    in_range(name + "drafts (n_rows - n_certain)", seq.n_rows - seq.n_certain, 0, OJ_MAX_DRAFTS);
    in_range(name + "pos", seq.pos, 0, int64_t{seq.n_pages} * kv_page - seq.n_rows);
    int drafts = seq.n_rows - seq.n_certain;
    if (seq.n_sampled != 0 || drafts > 0) {
        in_range(name + "n_sampled", seq.n_sampled, drafts + 1, drafts + 1);
        if (seq.sampling == nullptr) refuse(name + "sampling is NULL; sampled rows need it");
    }
    in_range(name + "n_draft", seq.n_draft, 0, OJ_MAX_DRAFTS);
    for (int i = 0; i < seq.n_pages; ++i) {
        in_range(name + "pages[" + std::to_string(i) + "]", seq.pages[i], 0, options.n_pages - 1);
    }
}

void check_sampling(const Model& model, const oj_seq& seq, const std::string& name) {
    if (seq.sampling == nullptr) return;
    in_range(name + "top_logprobs", seq.sampling->top_logprobs, 0, OJ_MAX_TOP);
    for (int i = 0; i < seq.sampling->n_bias; ++i) {
        in_range(name + "bias id", seq.sampling->bias_ids[i], 0, model.hparams.n_vocab - 1);
    }
    for (int i = 0; i < seq.n_penalty; ++i) {
        in_range(name + "penalty id", seq.penalty_ids[i], 0, model.hparams.n_vocab - 1);
    }
}

}  // namespace

void check_options(const Model& model, const oj_backend_options& options) {
    in_range("threads", options.threads, 0, 1024);
    in_range("kv_codec", options.kv_codec, OJ_KV_Q8_0, OJ_KV_F32);
    in_range("n_slots", options.n_slots, 1, 4096);
    in_range("n_pages", options.n_pages, 1, 1 << 24);
    in_range("n_snapshots", options.n_snapshots, 0, 1 << 20);
    in_range("max_rows", options.max_rows, 1, 1 << 16);
    in_range("draft_head_rows", options.draft_head_rows, 0, model.hparams.n_vocab);
    if (options.draft_head_ids != nullptr) {
        in_range("n_draft_head_ids", options.n_draft_head_ids, 1, model.hparams.n_vocab);
    }
    for (int i = 0; options.draft_head_ids != nullptr && i < options.n_draft_head_ids; ++i) {
        const int least = i == 0 ? 0 : options.draft_head_ids[i - 1] + 1;
        in_range("draft_head_ids[" + std::to_string(i) + "] (ascending token ids)",
                 options.draft_head_ids[i], least, model.hparams.n_vocab - 1);
    }
    if (options.mtp != 0 && !model.mtp) {
        refuse("mtp is set, but " + model.path + " has no MTP block; set it to 0");
    }
}

void check_plan(const Model& model, const oj_backend_options& options, const oj_plan& plan,
                const std::vector<int>& pending) {
    in_range("plan.n_rows", plan.n_rows, 0, options.max_rows);
    in_range("plan.n_seqs", plan.n_seqs, 0, options.n_slots);
    for (int i = 0; i < plan.n_rows; ++i) {
        in_range("plan.tokens[" + std::to_string(i) + "]", plan.tokens[i], 0,
                 model.hparams.n_vocab - 1);
    }
    std::vector<bool> slot_used(options.n_slots);
    int n_rows = 0;
    for (int i = 0; i < plan.n_seqs; ++i) {
        const oj_seq& seq = plan.seqs[i];
        std::string name = "plan.seqs[" + std::to_string(i) + "].";
        in_range(name + "slot", seq.slot, 0, options.n_slots - 1);
        if (slot_used[seq.slot]) refuse(name + "slot is in the plan twice");
        slot_used[seq.slot] = true;
        check_seq(options, plan, seq, name, pending[seq.slot]);
        check_sampling(model, seq, name);
        if (seq.n_rows == 0) continue;
        in_range(name + "first_row (the sequences' rows follow each other)", seq.first_row, n_rows,
                 n_rows);
        n_rows += seq.n_rows;
    }
    in_range("rows of all sequences", n_rows, plan.n_rows, plan.n_rows);
}

}  // namespace oj
