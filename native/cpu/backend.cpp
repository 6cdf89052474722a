#include "cpu/backend.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "engine/draft_head.h"
#include "engine/plan_check.h"

namespace oj::cpu {

namespace {

// Raise it when the bytes of a page or state mean something else, or the same input gives other
// bytes: files of other versions are ignored.
constexpr uint32_t kStateVersion = 2;

// Of states and pages, resident before the first step: all of a small model's, whose steps are
// shorter than what first writes take. The rest of the states follows in the background.
constexpr size_t kTouchedBytes = size_t{128} << 20;

// What the kernels' loops rely on.
void check_shape(const Model& model) {
    const Hparams& h = model.hparams;
    auto refuse = [&](const char* key, int value, const std::string& rule) {
        throw Error(OJ_ERR_UNSUPPORTED, model.path + ": " + key + " is " + std::to_string(value) +
                                            "; the CPU backend needs " + rule);
    };
    auto multiple = [&](const char* key, int value, int of) {
        if (value % of != 0) refuse(key, value, "a multiple of " + std::to_string(of));
    };
    multiple("embedding_length", h.n_embd, sum_lanes);
    multiple("feed_forward_length", h.n_ff, sum_lanes);
    multiple("attention.key_length", h.head_dim, kv_group);
    multiple("ssm.state_size", h.state_dim, delta_columns);
    if (h.conv_kernel < 1 || h.conv_kernel > 16)
        refuse("ssm.conv_kernel", h.conv_kernel, "1 to 16");
}

const oj_backend_options& checked(const Model& model, const oj_backend_options& options) {
    check_options(model, options);
    check_shape(model);
    return options;
}

int thread_count(const oj_backend_options& options) {
    return options.threads > 0 ? options.threads : ThreadPool::default_threads();
}

std::vector<double> rope_frequencies(const Hparams& h) {
    std::vector<double> frequencies;
    for (int d = 0; d < h.rope_dim / 2; ++d) {
        frequencies.push_back(std::pow(double{h.rope_base}, -2.0 * d / h.rope_dim));
    }
    return frequencies;
}

void require(int value, int count, const char* what) {
    if (value >= 0 && value < count) return;
    throw Error(OJ_ERR_INVALID, std::string(what) + " is " + std::to_string(value) +
                                    "; this backend has " + std::to_string(count));
}

}  // namespace

CpuBackend::CpuBackend(const Model& model, const oj_backend_options& options)
    : model_(model),
      options_(checked(model, options)),
      kernels_(select_kernels()),
      pool_(thread_count(options)),
      weights_(model, options.mtp != 0, draft_head_ids(model.vocab, options), pool_),
      scratch_(model.hparams, options.max_rows, pool_.threads()),
      states_(StateLayout(model.hparams, weights_.n_delta_layers), options.n_slots,
              options.n_snapshots),
      kv_(KvCodec(static_cast<oj_kv_codec>(options.kv_codec), model.hparams.head_dim),
          weights_.n_kv_layers, model.hparams.n_kv_heads, options.n_pages),
      frequencies_(rope_frequencies(model.hparams)),
      logits_(offset(options.n_slots * (OJ_MAX_DRAFTS + 1), model.hparams.n_vocab), "logits"),
      draft_hidden_(offset(options.n_slots, model.hparams.n_embd), "scratch"),
      draft_logits_(offset(options.n_slots, model.hparams.n_vocab), "scratch"),
      head_logits_(options.n_slots * weights_.draft_ids.size(), "scratch"),
      drawn_(options.n_slots),
      mtp_done_(options.n_slots),
      sample_scores_(offset(pool_.threads(), model.hparams.n_vocab), "scratch"),
      sample_ids_(offset(pool_.threads(), model.hparams.n_vocab), "scratch"),
      sample_bins_(offset(pool_.threads(), kSelectBins), "scratch"),
      populate_([this](const std::atomic<bool>& stop) { states_.populate(stop); }) {
    std::fill_n(draft_logits_.data(), weights_.draft_ids.empty() ? 0 : draft_logits_.size(),
                -INFINITY);
    size_t budget = kTouchedBytes;
    states_.touch(&budget);
    kv_.touch(&budget);
}

Machine CpuBackend::machine() {
    return {model_.hparams, kernels_, scratch_, states_, kv_, frequencies_.data()};
}

void CpuBackend::step(const oj_plan& plan, oj_seq_result* results) {
    check_plan(model_, options_, plan, states_.pending);
    std::fill_n(results, plan.n_seqs, oj_seq_result{});
    forward(plan, results);
    if (weights_.mtp) run_mtp(plan, results);
    commit(plan, results);
}

// Folds, layers, logits, and the choice of tokens.
void CpuBackend::forward(const oj_plan& plan, oj_seq_result* results) {
    const Hparams& h = model_.hparams;
    Batch batch;
    std::vector<int32_t> tokens;
    std::vector<Fold> folds;
    int n_logits = 0;
    bool reads = false;  // a prompt
    logit_rows_.clear();
    for (int i = 0; i < plan.n_seqs; ++i) {
        const oj_seq& seq = plan.seqs[i];
        if (seq.fold > 0) folds.push_back({seq.slot, seq.fold});
        if (seq.n_rows == 0) continue;
        reads |= seq.n_certain > 1;
        batch.add({seq.slot, 0, seq.n_rows, seq.n_certain, seq.pos, seq.pages},
                  plan.tokens + seq.first_row);
        for (int r = 0; r < seq.n_rows; ++r) {
            bool wanted = plan.keep_logits != 0 || r >= seq.n_rows - seq.n_sampled;
            logit_rows_.push_back(wanted ? n_logits++ : -1);
        }
    }
    if (logits_.size() < offset(n_logits, h.n_vocab)) {
        logits_ = Pages<float>(offset(n_logits, h.n_vocab), "logits");
    }

    Machine m = machine();
    int n = h.n_embd, rows = batch.n_rows();
    Forms forms = forms_of({&weights_.output});
    pool_.run(reads ? &prompt_jobs_ : &decode_jobs_, [&](Worker& worker) {
        if (!folds.empty()) fold_drafts(worker, m, folds);
        worker.share(rows, [&](int r) {
            const Tensor& embed = *weights_.embed;
            dequantise_row(embed.type, embed.row(batch.rows[r].token), n,
                           scratch_.x.data() + offset(r, n));
        });
        rotate_rows(worker, m, batch);
        worker.barrier();
        for (const LayerWeights& w : weights_.layers)
            layer(worker, m, w, batch);
        worker.share(rows, [&](int r) {
            float* hidden = scratch_.hidden.data() + offset(r, n);
            kernels_.rms_norm(scratch_.x.data() + offset(r, n), weights_.output_norm, n, h.rms_eps,
                              hidden);
            if (logit_rows_[r] < 0) return;
            std::copy_n(hidden, n, scratch_.input.row(logit_rows_[r], n));
            scratch_.input.quantize(kernels_, forms, logit_rows_[r], n, 0, n);
        });
        worker.barrier();
        multiply(worker, kernels_, scratch_.input, n_logits, {{&weights_.output, logits_.data()}});
        worker.barrier();
        worker.share(plan.n_seqs, [&](int i) {
            if (plan.seqs[i].n_sampled == 0) return;
            verify_seq(worker.index(), plan, plan.seqs[i], &results[i]);
        });
    });
}

SampleWorkspace CpuBackend::workspace(int thread) const {
    size_t at = offset(thread, model_.hparams.n_vocab);
    return {sample_scores_.data() + at, sample_ids_.data() + at,
            sample_bins_.data() + offset(thread, kSelectBins)};
}

void CpuBackend::verify_seq(int thread, const oj_plan& plan, const oj_seq& seq,
                            oj_seq_result* result) {
    int first = seq.first_row + seq.n_rows - seq.n_sampled;
    SampledRows rows = {};
    rows.stride = model_.hparams.n_vocab;
    rows.logits = logits_.data() + logit_rows_[first] * rows.stride;
    rows.n_rows = seq.n_sampled;
    rows.n_vocab = model_.hparams.n_vocab;
    rows.position = seq.pos + seq.n_certain;
    rows.drafts = plan.tokens + first + 1;
    rows.sampling = seq.sampling;
    rows.penalties = {seq.penalty_ids, seq.penalty_counts, seq.n_penalty, nullptr, 0};
    rows.masks = seq.masks;
    bool drawn = seq.draft_source == OJ_DRAFT_MTP && !is_coupled(*seq.sampling);
    rows.q = drawn ? drawn_[seq.slot].q : nullptr;
    kernels_.verify(rows, workspace(thread), result);
}

void CpuBackend::run_mtp(const oj_plan& plan, oj_seq_result* results) {
    MtpBatch store = store_batch(plan, results);
    std::vector<Drafting> all = drafting(plan, results);
    if (store.batch.n_rows() > 0) {
        pool_.run(&store_jobs_,
                  [&](Worker& worker) { mtp_store(worker, machine(), *weights_.mtp, store); });
    }
    const auto start = std::chrono::steady_clock::now();
    draft_tokens(plan, all);
    draft_us_ = std::chrono::duration_cast<std::chrono::microseconds>(
                    std::chrono::steady_clock::now() - start)
                    .count();
}

// Certain rows and accepted drafts.
MtpBatch CpuBackend::store_batch(const oj_plan& plan, const oj_seq_result* results) const {
    MtpBatch store;
    int n = model_.hparams.n_embd;
    for (int i = 0; i < plan.n_seqs; ++i) {
        const oj_seq& seq = plan.seqs[i];
        if (seq.n_rows == 0) continue;
        int accepted = std::max(0, results[i].n_tokens - 1);
        const int32_t* tokens = plan.tokens + seq.first_row;
        const MtpDone& done = mtp_done_[seq.slot];
        int skip = done.position == seq.pos && done.token == tokens[0] ? 1 : 0;
        int n_rows = seq.n_certain + accepted - skip;
        store.batch.add({seq.slot, 0, n_rows, n_rows, seq.pos + skip, seq.pages}, tokens + skip);
        for (int r = skip; r < skip + n_rows; ++r) {
            const float* hidden = scratch_.hidden.data() + offset(seq.first_row + r - 1, n);
            if (r == 0) hidden = seq.pos == 0 ? nullptr : states_.hidden(seq.slot);
            store.before.push_back(hidden);
        }
    }
    return store;
}

std::vector<CpuBackend::Drafting> CpuBackend::drafting(const oj_plan& plan,
                                                       oj_seq_result* results) const {
    std::vector<Drafting> all;
    for (int i = 0; i < plan.n_seqs; ++i) {
        const oj_seq& seq = plan.seqs[i];
        if (results[i].n_tokens == 0) continue;
        int position = seq.pos + seq.n_certain + results[i].n_tokens - 1;
        int room = seq.n_pages * kv_page - position;  // the block's own rows need pages too
        int n_draft = std::min(seq.n_draft, room);
        if (n_draft > 0) all.push_back({&seq, &results[i], i, n_draft, position});
    }
    return all;
}

// One pass for each depth, all conversations together.
void CpuBackend::draft_tokens(const oj_plan& plan, const std::vector<Drafting>& all) {
    int n = model_.hparams.n_embd, n_vocab = model_.hparams.n_vocab;
    for (int depth = 0; depth < OJ_MAX_DRAFTS; ++depth) {
        MtpBatch rows;
        std::vector<const Drafting*> active;
        for (const Drafting& d : all) {
            if (d.n_draft <= depth) continue;
            const oj_seq_result& result = *d.result;
            int row = d.seq->first_row + d.seq->n_certain + result.n_tokens - 2;
            const int32_t* token =
                depth == 0 ? &result.tokens[result.n_tokens - 1] : &result.drafts[depth - 1];
            rows.batch.add({d.seq->slot, 0, 1, 1, d.position + depth, d.seq->pages}, token);
            float* chained = draft_hidden_.data() + offset(d.seq->slot, n);
            rows.before.push_back(depth == 0 ? scratch_.hidden.data() + offset(row, n) : chained);
            rows.after.push_back(chained);
            active.push_back(&d);
        }
        if (active.empty()) return;
        for (const Drafting* d : active)  // not in the job, which cannot throw
            make_room(*d);
        pool_.run(&draft_jobs_, [&](Worker& worker) {
            const std::vector<int32_t>& ids = weights_.draft_ids;
            float* head_logits = (ids.empty() ? draft_logits_ : head_logits_).data();
            mtp_draft(worker, machine(), *weights_.mtp, rows, head_logits);
            worker.share(static_cast<int>(active.size()), [&](int i) {
                float* logits = draft_logits_.data() + offset(i, n_vocab);
                for (size_t k = 0; k < ids.size(); ++k)  // the others stay at -inf
                    logits[ids[k]] = head_logits[i * ids.size() + k];
                draw_draft(worker.index(), *active[i], depth, logits);
            });
        });
        if (plan.keep_logits != 0) {
            size_t kept = offset(options_.n_slots * OJ_MAX_DRAFTS, n_vocab);
            if (kept_drafts_.size() == 0) kept_drafts_ = Pages<float>(kept, "draft logits");
            for (size_t i = 0; i < active.size(); ++i) {
                std::copy_n(draft_logits_.data() + i * n_vocab, n_vocab,
                            kept_drafts_.data() +
                                offset(active[i]->index * OJ_MAX_DRAFTS + depth, n_vocab));
            }
        }
    }
}

void CpuBackend::make_room(const Drafting& d) {
    Pages<float>& scores = drawn_[d.seq->slot].scores;
    if (is_coupled(*d.seq->sampling) || scores.size() > 0) return;
    scores = Pages<float>(offset(OJ_MAX_DRAFTS, model_.hparams.n_vocab), "draft distributions");
}

void CpuBackend::draw_draft(int thread, const Drafting& d, int depth, const float* logits) {
    oj_seq_result& result = *d.result;
    int32_t extra[2 * OJ_MAX_DRAFTS + 1];  // chosen in this step, then drafted
    std::copy_n(result.tokens, result.n_tokens, extra);
    std::copy_n(result.drafts, depth, extra + result.n_tokens);
    Penalties penalties = {d.seq->penalty_ids, d.seq->penalty_counts, d.seq->n_penalty, extra,
                           result.n_tokens + depth};
    SampleWorkspace work = workspace(thread);
    Distribution* q = nullptr;
    if (!is_coupled(*d.seq->sampling)) {
        DrawnDrafts& drawn = drawn_[d.seq->slot];
        work.scores = drawn.scores.data() + offset(depth, model_.hparams.n_vocab);
        q = &drawn.q[depth];
    }
    result.drafts[depth] = kernels_.draft(logits, model_.hparams.n_vocab, *d.seq->sampling,
                                          penalties, d.position + depth + 1, work, q);
    result.n_drafts = depth + 1;
}

// What the step leaves behind in its slots.
void CpuBackend::commit(const oj_plan& plan, const oj_seq_result* results) {
    int n = model_.hparams.n_embd;
    for (int i = 0; i < plan.n_seqs; ++i) {
        const oj_seq& seq = plan.seqs[i];
        states_.pending[seq.slot] = seq.n_rows - seq.n_certain;
        if (seq.n_rows == 0) continue;
        const float* hidden = scratch_.hidden.data() + offset(seq.first_row, n);
        std::copy_n(hidden + offset(seq.n_certain - 1, n), n, states_.hidden(seq.slot));
        for (int r = seq.n_certain; r < seq.n_rows; ++r) {
            std::copy_n(hidden + offset(r, n), n,
                        states_.record_hidden(seq.slot, r - seq.n_certain));
        }
        const oj_seq_result& result = results[i];
        mtp_done_[seq.slot] = {};
        if (result.n_drafts > 0) {
            mtp_done_[seq.slot] = {seq.pos + seq.n_certain + result.n_tokens - 1,
                                   result.tokens[result.n_tokens - 1]};
        }
    }
    kept_rows_ = plan.keep_logits != 0 ? plan.n_rows : 0;
    kept_seqs_ = plan.keep_logits != 0 ? plan.n_seqs : 0;
}

void CpuBackend::require_settled(int slot, const char* action) const {
    require(slot, options_.n_slots, "slot");
    if (states_.pending[slot] == 0) return;
    throw Error(OJ_ERR_INVALID, "slot " + std::to_string(slot) +
                                    " has draft rows pending; fold them in a step with n_rows = 0 "
                                    "before " +
                                    action);
}

void CpuBackend::reset(int slot) {
    require_settled(slot, "resetting it");
    states_.reset(slot);
    mtp_done_[slot] = {};
}

void CpuBackend::save(int slot, int snapshot) {
    require_settled(slot, "saving it");
    require(snapshot, options_.n_snapshots, "snapshot");
    states_.save(slot, snapshot);
}

void CpuBackend::load(int snapshot, int slot) {
    require_settled(slot, "loading into it");
    require(snapshot, options_.n_snapshots, "snapshot");
    states_.load(snapshot, slot);
    mtp_done_[slot] = {};
}

void CpuBackend::copy_page(int from, int to) {
    require(from, options_.n_pages, "page");
    require(to, options_.n_pages, "page");
    if (from != to) kv_.copy(from, to);
}

oj_state_format CpuBackend::state_format() const {
    return {kStateVersion, static_cast<int64_t>(kv_.page_bytes()),
            static_cast<int64_t>(states_.bytes())};
}

void CpuBackend::export_page(int page, uint8_t* out) {
    require(page, options_.n_pages, "page");
    std::memcpy(out, kv_.page_data(page), kv_.page_bytes());
}

void CpuBackend::import_page(int page, const uint8_t* bytes) {
    require(page, options_.n_pages, "page");
    std::memcpy(kv_.page_data(page), bytes, kv_.page_bytes());
}

void CpuBackend::export_snapshot(int snapshot, int64_t offset, int64_t n, uint8_t* out) {
    require(snapshot, options_.n_snapshots, "snapshot");
    const auto* bytes = reinterpret_cast<const uint8_t*>(states_.snapshot_data(snapshot));
    std::memcpy(out, bytes + offset, static_cast<size_t>(n));
}

void CpuBackend::import_snapshot(int snapshot, const uint8_t* bytes) {
    require(snapshot, options_.n_snapshots, "snapshot");
    std::memcpy(states_.snapshot_data(snapshot), bytes, states_.bytes());
}

void CpuBackend::read(int which, int index, float* out) {
    size_t n_vocab = model_.hparams.n_vocab, n_embd = model_.hparams.n_embd;
    switch (which) {
        case 0:
            require(index, kept_rows_, "row of kept logits");
            std::copy_n(logits_.data() + logit_rows_[index] * n_vocab, n_vocab, out);
            return;
        case 1:
            require(index, kept_drafts_.size() > 0 ? kept_seqs_ * OJ_MAX_DRAFTS : 0,
                    "draft of kept logits");
            std::copy_n(kept_drafts_.data() + index * n_vocab, n_vocab, out);
            return;
        case 2:
            require(index, kept_rows_, "row of kept logits");
            std::copy_n(scratch_.hidden.data() + index * n_embd, n_embd, out);
            return;
        default:
            throw Error(OJ_ERR_INVALID, "which must be 0, 1 or 2");
    }
}

}  // namespace oj::cpu

namespace oj {

std::unique_ptr<Backend> make_cpu_backend(const Model& model, const oj_backend_options& options) {
    return std::make_unique<cpu::CpuBackend>(model, options);
}

oj_memory_plan plan_cpu_memory(const Model& model, const oj_backend_options& options) {
    cpu::checked(model, options);
    const Hparams& h = model.hparams;
    int n_delta = 0, n_kv = options.mtp != 0 ? 1 : 0;
    for (const Layer& layer : model.layers) {
        (layer.kind == LayerKind::delta_net ? n_delta : n_kv) += 1;
    }
    cpu::StateLayout layout(h, n_delta);
    cpu::KvCodec codec(static_cast<oj_kv_codec>(options.kv_codec), h.head_dim);
    int threads = cpu::thread_count(options);
    cpu::Scratch scratch(h, options.max_rows, threads);

    oj_memory_plan plan = {};
    size_t draft_ids = draft_head_ids(model.vocab, options).size();
    plan.weights = static_cast<int64_t>(
        cpu::WeightStore::bytes_needed(model, options.mtp != 0, draft_ids == 0));
    if (draft_ids > 0) {
        plan.weights +=
            static_cast<int64_t>(cpu::RowSubset::bytes_needed(model.mtp->head, draft_ids));
    }
    plan.state_bytes = static_cast<int64_t>(layout.floats() * sizeof(float));
    plan.states = options.n_slots *
                  (plan.state_bytes + static_cast<int64_t>(layout.record_floats() * sizeof(float)));
    plan.snapshots = options.n_snapshots * plan.state_bytes;
    plan.page_bytes = static_cast<int64_t>(cpu::KvPool::page_bytes(codec, n_kv, h.n_kv_heads));
    plan.pages = options.n_pages * plan.page_bytes;
    // Rows of logits and, with drafts, of draft logits and drawn distributions; scores and ids.
    int slot_rows = OJ_MAX_DRAFTS + 2 + (options.mtp != 0 ? OJ_MAX_DRAFTS : 0);
    int64_t vocab_rows = int64_t{options.n_slots} * slot_rows + 2 * int64_t{threads};
    plan.scratch = static_cast<int64_t>(scratch.bytes()) +
                   vocab_rows * h.n_vocab * static_cast<int64_t>(sizeof(float)) +
                   int64_t{threads} * kSelectBins * static_cast<int64_t>(sizeof(uint64_t));
    plan.scratch += static_cast<int64_t>(options.n_slots * draft_ids * sizeof(float));
    return plan;
}

}  // namespace oj
