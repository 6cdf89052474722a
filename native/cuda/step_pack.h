// A step's plan as the device reads it: everything in one piece of memory, one copy a step.
#pragma once

#include <vector>

#include "cuda/program.h"

namespace oj::cuda {

// Where blocks wait for each other. Zero when a step is launched.
struct alignas(128) GridBarrier {
    uint32_t arrived;  // blocks, over all entries of the step
    uint32_t fault;    // 1: somebody waited longer than a step may take
};

// What a step kernel is given: first in the upload.
struct StepHeader {
    Context context;
    Schedule schedule;
    uint64_t* stamps;    // NULL, or [n_entries + 1]: nanoseconds before each entry and at the end
    uint32_t stress;     // 0, or the seed of random delays before arrivals and behind waits
    int32_t ring_bytes;  // of shared memory for weights, a block
    int32_t relaxed_polls;  // 1: waiting loops acquire by a fence behind them
    GridBarrier barrier;
};

// What a device of 24 GB spares for it; a step that needs more gets more.
constexpr int64_t upload_bytes = int64_t{4} << 20;

// Recorded draft rows of a slot.
struct SlotRecords {
    int pending = 0;
    int buffer = 0;  // which of the slot's two they are in
};

class StepPack {
public:
    // `kv_codec` and `n_blocks` decide which blocks have work in which phase.
    StepPack(const Program& program, const Dims& dims, int kv_codec, int n_partials, int n_blocks)
        : program_(program),
          dims_(dims),
          kv_codec_(kv_codec),
          n_partials_(n_partials),
          n_blocks_(n_blocks) {}

    // Takes a checked plan in. `with_mtp`: drafts may be wanted.
    void fill(const oj_plan& plan, const std::vector<SlotRecords>& records, bool with_mtp);

    int n_entries() const { return static_cast<int>(sequence_.size()); }
    const StepShape& shape() const { return shape_; }
    const std::vector<SequenceEntry>& sequence() const { return sequence_; }
    int64_t bytes() const;

    // Writes the upload to `host`, with addresses for its copy at `device`; `base` has all that
    // does not depend on the plan.
    void write(const StepHeader& base, uint8_t* host, uint8_t* device) const;

private:
    void add_seq(const oj_plan& plan, const oj_seq& seq, const SlotRecords& records, bool with_mtp);
    void add_rows(const oj_plan& plan, const oj_seq& seq);
    void add_sampling(const oj_seq& seq, Run* run);
    void add_draft_run(const Run& run);
    void plan_waves();

    template <class Visit>
    void visit_parts(Visit visit) const;

    const Program& program_;
    const Dims dims_;
    const int kv_codec_, n_partials_, n_blocks_;

    StepShape shape_ = {};
    StepView step_ = {}, draft_ = {};
    std::vector<Row> rows_, draft_rows_;
    std::vector<Run> runs_, draft_runs_;
    std::vector<RowGroup> groups_, draft_groups_;
    std::vector<int32_t> drafting_, sampled_, pages_, penalty_ids_, penalty_counts_, bias_ids_,
        mask_rows_;
    std::vector<float> bias_values_;
    std::vector<uint32_t> mask_bits_;
    std::vector<SequenceEntry> sequence_;
    std::vector<ProductRun> product_runs_;
    int last_position_ = 0, last_draft_position_ = 0;
};

}  // namespace oj::cuda
