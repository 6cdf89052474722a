#include "cuda/step_pack.h"

#include <algorithm>
#include <cstring>

#include "cuda/meetings.h"

namespace oj::cuda {

namespace {

constexpr int64_t part_alignment = 128;

int64_t padded(int64_t bytes) {
    return (bytes + part_alignment - 1) / part_alignment * part_alignment;
}

// Splits of positions up to `last` that one wave takes.
int wave_splits(int n_partials, int n_queries, int last) {
    int splits = last / kv_split + 1;
    return std::clamp(n_partials / std::max(1, n_queries), 1, splits);
}

int waves(int per_wave, int last) {
    return (last / kv_split + per_wave) / per_wave;
}

}  // namespace

void StepPack::fill(const oj_plan& plan, const std::vector<SlotRecords>& records, bool with_mtp) {
    for (auto* parts : {&drafting_, &sampled_, &pages_, &penalty_ids_, &penalty_counts_, &bias_ids_,
                        &mask_rows_}) {
        parts->clear();
    }
    rows_.clear(), draft_rows_.clear();
    runs_.clear(), draft_runs_.clear();
    groups_.clear(), draft_groups_.clear();
    bias_values_.clear(), mask_bits_.clear();
    shape_ = {};
    last_position_ = last_draft_position_ = 0;
    for (int i = 0; i < plan.n_seqs; ++i)
        add_seq(plan, plan.seqs[i], records[plan.seqs[i].slot], with_mtp);
    shape_.n_rows = plan.n_rows;
    plan_waves();
    step_.keep_logits = draft_.keep_logits = plan.keep_logits;
    sequence_ = program_.sequence(shape_);
    const StepWork work = {dims_, kv_codec_, step_, draft_, n_blocks_};
    plan_meetings(program_, work, &sequence_);
    product_runs_ = plan_runs(program_, work, &sequence_);
}

void StepPack::add_seq(const oj_plan& plan, const oj_seq& seq, const SlotRecords& records,
                       bool with_mtp) {
    Run run = {};
    run.slot = seq.slot;
    run.first_row = static_cast<int32_t>(rows_.size());
    run.n_rows = seq.n_rows;
    run.n_certain = seq.n_certain;
    run.position = seq.pos;
    run.fold = seq.fold;
    run.record_from = records.buffer;
    run.record_to = 1 - records.buffer;
    run.first_page = static_cast<int32_t>(pages_.size());
    run.n_pages = seq.n_pages;
    run.first_mask = -1;
    pages_.insert(pages_.end(), seq.pages, seq.pages + seq.n_pages);
    if (seq.n_rows > 0) add_rows(plan, seq);
    if (seq.n_sampled > 0) add_sampling(seq, &run);
    int room = seq.n_pages * kv_page - (seq.pos + seq.n_certain);  // if no draft is accepted
    if (with_mtp && seq.n_sampled > 0) run.n_draft = std::min(seq.n_draft, room);
    if (run.n_draft > 0) add_draft_run(run);
    runs_.push_back(run);
}

void StepPack::add_rows(const oj_plan& plan, const oj_seq& seq) {
    for (int i = 0; i < seq.n_rows; ++i) {
        bool is_sampled = i >= seq.n_rows - seq.n_sampled;
        bool wanted = plan.keep_logits != 0 || is_sampled;
        int at = static_cast<int>(rows_.size()), run = static_cast<int>(runs_.size());
        if (is_sampled) sampled_.push_back(at);
        if (i % group_rows == 0) groups_.push_back({at, 0});
        ++groups_.back().n_rows;
        rows_.push_back(
            {plan.tokens[seq.first_row + i], seq.pos + i, run, wanted ? shape_.n_logits++ : -1});
    }
    last_position_ = std::max(last_position_, seq.pos + seq.n_rows - 1);
}

void StepPack::add_sampling(const oj_seq& seq, Run* run) {
    const oj_sampling& sampling = *seq.sampling;
    run->n_sampled = seq.n_sampled;
    run->draft_source = seq.draft_source;
    run->coupled = is_coupled(sampling) ? 1 : 0;
    run->sampling = sampling;
    run->sampling.bias_ids = nullptr;
    run->sampling.bias_values = nullptr;
    run->first_penalty = static_cast<int32_t>(penalty_ids_.size());
    run->n_penalty = seq.n_penalty;
    penalty_ids_.insert(penalty_ids_.end(), seq.penalty_ids, seq.penalty_ids + seq.n_penalty);
    penalty_counts_.insert(penalty_counts_.end(), seq.penalty_counts,
                           seq.penalty_counts + seq.n_penalty);
    run->first_bias = static_cast<int32_t>(bias_ids_.size());
    bias_ids_.insert(bias_ids_.end(), sampling.bias_ids, sampling.bias_ids + sampling.n_bias);
    bias_values_.insert(bias_values_.end(), sampling.bias_values,
                        sampling.bias_values + sampling.n_bias);
    if (seq.masks == nullptr) return;
    run->first_mask = static_cast<int32_t>(mask_rows_.size());
    int words = (dims_.n_vocab + 31) / 32;
    for (int i = 0; i < seq.n_sampled; ++i) {
        const uint32_t* mask = seq.masks[i];
        mask_rows_.push_back(mask != nullptr ? static_cast<int32_t>(mask_bits_.size()) : -1);
        if (mask != nullptr) mask_bits_.insert(mask_bits_.end(), mask, mask + words);
    }
}

// A row of draft passes: its token and position are the device's to fill in.
void StepPack::add_draft_run(const Run& run) {
    int i = static_cast<int>(draft_rows_.size());
    drafting_.push_back(static_cast<int32_t>(runs_.size()));
    draft_rows_.push_back({0, -1, i, i});
    draft_groups_.push_back({i, 1});
    Run draft = run;
    draft.first_row = i;
    draft.n_rows = draft.n_certain = 1;
    draft.fold = 0;
    draft_runs_.push_back(draft);
    shape_.most_drafts = std::max(shape_.most_drafts, run.n_draft);
    int last = run.position + run.n_certain + run.n_sampled - 1 + run.n_draft - 1;
    last = std::min(last, run.n_pages * kv_page - 1);
    last_draft_position_ = std::max(last_draft_position_, last);
}

void StepPack::plan_waves() {
    int n_rows = shape_.n_rows, n_drafting = static_cast<int>(drafting_.size());
    step_ = {};
    step_.n_rows = n_rows;
    step_.n_runs = static_cast<int32_t>(runs_.size());
    step_.n_groups = static_cast<int32_t>(groups_.size());
    step_.n_logits = shape_.n_logits;
    step_.n_sampled = static_cast<int32_t>(sampled_.size());
    step_.n_drafting = n_drafting;
    step_.most_drafts = shape_.most_drafts;
    step_.wave_splits = wave_splits(n_partials_, n_rows * dims_.n_heads, last_position_);
    shape_.waves = waves(step_.wave_splits, last_position_);
    draft_ = step_;
    draft_.n_rows = draft_.n_runs = draft_.n_groups = draft_.n_logits = n_drafting;
    draft_.wave_splits = wave_splits(n_partials_, n_drafting * dims_.n_heads, last_draft_position_);
    shape_.draft_waves = waves(draft_.wave_splits, last_draft_position_);
}

// Every array of the upload with the pointers to it, in order.
template <class Visit>
void StepPack::visit_parts(Visit visit) const {
    visit(rows_, [](StepHeader* h) { return &h->context.step.rows; });
    visit(draft_rows_, [](StepHeader* h) { return &h->context.draft.rows; });
    visit(runs_, [](StepHeader* h) { return &h->context.step.runs; });
    visit(draft_runs_, [](StepHeader* h) { return &h->context.draft.runs; });
    visit(groups_, [](StepHeader* h) { return &h->context.step.groups; });
    visit(draft_groups_, [](StepHeader* h) { return &h->context.draft.groups; });
    visit(drafting_, [](StepHeader* h) { return &h->context.step.drafting; });
    visit(sampled_, [](StepHeader* h) { return &h->context.step.sampled; });
    visit(pages_, [](StepHeader* h) { return &h->context.step.pages; });
    visit(penalty_ids_, [](StepHeader* h) { return &h->context.step.penalty_ids; });
    visit(penalty_counts_, [](StepHeader* h) { return &h->context.step.penalty_counts; });
    visit(bias_ids_, [](StepHeader* h) { return &h->context.step.bias_ids; });
    visit(bias_values_, [](StepHeader* h) { return &h->context.step.bias_values; });
    visit(mask_rows_, [](StepHeader* h) { return &h->context.step.mask_rows; });
    visit(mask_bits_, [](StepHeader* h) { return &h->context.step.mask_bits; });
    visit(sequence_, [](StepHeader* h) { return &h->schedule.sequence; });
    visit(product_runs_, [](StepHeader* h) { return &h->schedule.runs; });
}

int64_t StepPack::bytes() const {
    int64_t bytes = padded(sizeof(StepHeader));
    visit_parts([&](const auto& part, auto) {
        bytes += padded(static_cast<int64_t>(part.size() * sizeof(part[0])));
    });
    return bytes;
}

void StepPack::write(const StepHeader& base, uint8_t* host, uint8_t* device) const {
    StepHeader header = base;
    header.context.step = step_;
    header.context.draft = draft_;
    header.schedule.n_entries = n_entries();
    header.schedule.n_runs = static_cast<int32_t>(product_runs_.size());
    header.context.fault = &reinterpret_cast<StepHeader*>(device)->barrier.fault;
    int64_t at = padded(sizeof(StepHeader));
    visit_parts([&](const auto& part, auto pointer) {
        using Element = typename std::decay_t<decltype(part)>::value_type;
        auto size = static_cast<int64_t>(part.size() * sizeof(Element));
        if (size > 0) std::memcpy(host + at, part.data(), static_cast<size_t>(size));
        *pointer(&header) = reinterpret_cast<Element*>(device + at);
        at += padded(size);
    });
    // Draft passes read the pages and parameters of the runs they continue.
    StepView& draft = header.context.draft;
    const StepView& step = header.context.step;
    draft.drafting = step.drafting;
    draft.pages = step.pages;
    draft.penalty_ids = step.penalty_ids;
    draft.penalty_counts = step.penalty_counts;
    draft.bias_ids = step.bias_ids;
    draft.bias_values = step.bias_values;
    std::memcpy(host, &header, sizeof header);
}

}  // namespace oj::cuda
