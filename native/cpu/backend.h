// The CPU backend: one step is a pass through the layers, sampling, and the MTP block.
#pragma once

#include "cpu/background.h"
#include "cpu/mtp.h"
#include "engine/backend.h"

namespace oj::cpu {

class CpuBackend final : public Backend {
public:
    CpuBackend(const Model& model, const oj_backend_options& options);

    void step(const oj_plan& plan, oj_seq_result* results) override;
    void reset(int slot) override;
    void save(int slot, int snapshot) override;
    void load(int snapshot, int slot) override;
    void copy_page(int from, int to) override;
    int64_t draft_us() const override { return draft_us_; }
    oj_state_format state_format() const override;
    void export_page(int page, uint8_t* out) override;
    void import_page(int page, const uint8_t* bytes) override;
    void export_snapshot(int snapshot, int64_t offset, int64_t n, uint8_t* out) override;
    void import_snapshot(int snapshot, const uint8_t* bytes) override;
    void read(int which, int index, float* out) override;

private:
    // A row of the MTP block that needs no second pass: the last chosen token of a slot.
    struct MtpDone {
        int position = -1;
        int token = 0;
    };

    // Drafts that were drawn from a distribution, kept until they are verified.
    struct DrawnDrafts {
        Pages<float> scores;  // [OJ_MAX_DRAFTS][n_vocab], made when the slot first draws
        Distribution q[OJ_MAX_DRAFTS];
    };

    // A conversation that drafts in this step.
    struct Drafting {
        const oj_seq* seq;
        oj_seq_result* result;
        int index;  // in the plan
        int n_draft;
        int position;  // of the chosen token
    };

    Machine machine();
    void forward(const oj_plan& plan, oj_seq_result* results);
    void verify_seq(int thread, const oj_plan& plan, const oj_seq& seq, oj_seq_result* result);
    void run_mtp(const oj_plan& plan, oj_seq_result* results);
    MtpBatch store_batch(const oj_plan& plan, const oj_seq_result* results) const;
    std::vector<Drafting> drafting(const oj_plan& plan, oj_seq_result* results) const;
    void draft_tokens(const oj_plan& plan, const std::vector<Drafting>& all);
    void make_room(const Drafting& d);
    void draw_draft(int thread, const Drafting& d, int depth, const float* logits);
    void commit(const oj_plan& plan, const oj_seq_result* results);
    SampleWorkspace workspace(int thread) const;
    void require_settled(int slot, const char* action) const;

    const Model& model_;
    const oj_backend_options options_;
    const Kernels& kernels_;
    ThreadPool pool_;
    // Of very different lengths.
    ThreadPool::Kind prompt_jobs_, decode_jobs_, store_jobs_, draft_jobs_;
    ModelWeights weights_;
    Scratch scratch_;
    States states_;
    KvPool kv_;
    std::vector<double> frequencies_;

    std::vector<int> logit_rows_;  // of each row of the step: its row in logits_, or -1
    Pages<float> logits_;          // of the rows that are sampled; grows if all are kept
    Pages<float> draft_hidden_;    // [n_slots][n_embd]
    Pages<float> draft_logits_;    // [n_slots][n_vocab] of one depth
    Pages<float> head_logits_;     // [n_slots][weights_.draft_ids.size()]: those before
    Pages<float> kept_drafts_;     // [n_slots * OJ_MAX_DRAFTS][n_vocab], on first use
    int kept_rows_ = 0;            // rows and
    int kept_seqs_ = 0;            // sequences of the last step, if it kept logits
    std::vector<DrawnDrafts> drawn_;
    std::vector<MtpDone> mtp_done_;
    int64_t draft_us_ = 0;         // of the last step
    Pages<float> sample_scores_;   // [threads][n_vocab]
    Pages<int32_t> sample_ids_;    // [threads][n_vocab]
    Pages<uint64_t> sample_bins_;  // [threads][kSelectBins]
    Background populate_;          // of states_; the last, so that it ends first
};

}  // namespace oj::cpu
