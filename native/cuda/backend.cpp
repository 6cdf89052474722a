#include "cuda/backend.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "cuda/shares.h"
#include "engine/draft_head.h"
#include "engine/plan_check.h"

namespace oj::cuda {

namespace {

// Raised whenever a page's or a snapshot's bytes would mean something else.
constexpr uint32_t state_version = 2;

constexpr int64_t bounce_bytes = int64_t{8} << 20;

const oj_backend_options& checked(const Model& model, const oj_backend_options& options) {
    check_cuda(model, options);
    return options;
}

void require(int value, int count, const char* what) {
    if (value >= 0 && value < count) return;
    throw Error(OJ_ERR_INVALID, std::string(what) + " is " + std::to_string(value) +
                                    "; this backend has " + std::to_string(count));
}

// More weights under way do not pay on an H200, and what is left is the L1 cache's.
constexpr int enough_ring_bytes = 132 << 10;

// As much shared memory as pays, or as is asked for.
int choose_ring(const DeviceInfo& info, int asked_kb) {
    if (asked_kb == 0) return std::min(info.largest_ring, enough_ring_bytes);
    int least = (info.smallest_ring + 1023) / 1024, most = info.largest_ring / 1024;
    if (asked_kb >= least && asked_kb <= most) return asked_kb << 10;
    throw Error(OJ_ERR_INVALID, "OPENJET_CUDA_RING is " + std::to_string(asked_kb) +
                                    "; this device has room for " + std::to_string(least) + " to " +
                                    std::to_string(most) + " KB");
}

// Fewer blocks than are resident where asked for; more would wait for each other for ever.
int choose_blocks(int resident, int asked) {
    if (asked == 0) return resident;
    if (asked > 0 && asked <= resident) return asked;
    throw Error(OJ_ERR_INVALID, "OPENJET_CUDA_BLOCKS is " + std::to_string(asked) +
                                    "; this device keeps 1 to " + std::to_string(resident) +
                                    " blocks of the step kernel resident");
}

StepLaunch choose_launch(Device& device, const Tuning& tuning) {
    int ring_bytes = choose_ring(device.info(), tuning.ring_kb);
    return {tuning.mode, choose_blocks(device.resident_blocks(ring_bytes), tuning.blocks),
            ring_bytes};
}

int number_from_environment(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return 0;
    char* end = nullptr;
    long value = std::strtol(text, &end, 10);
    if (*end == '\0' && value >= 0 && value <= 1 << 30) return static_cast<int>(value);
    throw Error(OJ_ERR_INVALID, std::string(name) + " is '" + text + "'; it must be a number");
}

}  // namespace

Tuning tuning_from_environment() {
    Tuning tuning;
    auto text = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value != nullptr ? value : "");
    };
    std::string mode = text("OPENJET_CUDA_STEP"), path = text("OPENJET_CUDA_PATH");
    std::string poll = text("OPENJET_CUDA_POLL");
    if (mode == "graph") {
        tuning.mode = StepMode::graph;
    } else if (!mode.empty() && mode != "persistent") {
        throw Error(OJ_ERR_INVALID,
                    "OPENJET_CUDA_STEP is '" + mode + "'; it must be persistent or graph");
    }
    if (!path.empty() && path != "portable") {
        throw Error(OJ_ERR_INVALID,
                    "OPENJET_CUDA_PATH is '" + path + "'; portable is the only path so far");
    }
    if (!poll.empty() && poll != "acquire" && poll != "relaxed") {
        throw Error(OJ_ERR_INVALID,
                    "OPENJET_CUDA_POLL is '" + poll + "'; it must be acquire or relaxed");
    }
    tuning.relaxed_polls = poll == "relaxed";
    tuning.ring_kb = number_from_environment("OPENJET_CUDA_RING");
    tuning.blocks = number_from_environment("OPENJET_CUDA_BLOCKS");
    tuning.partials = number_from_environment("OPENJET_CUDA_PARTIALS");
    tuning.stress = static_cast<uint32_t>(number_from_environment("OPENJET_CUDA_STRESS"));
    tuning.fault = number_from_environment("OPENJET_CUDA_FAULT");
    tuning.times = text("OPENJET_CUDA_TIMES");
    return tuning;
}

CudaBackend::CudaBackend(const Model& model, const oj_backend_options& options,
                         const Tuning& tuning)
    : model_(model),
      options_(checked(model, options)),
      tuning_(tuning),
      device_(open_device(options.device)),
      launch_(choose_launch(*device_, tuning)),
      draft_ids_(draft_head_ids(model.vocab, options)),
      dims_(dims_of(model, options.mtp != 0)),
      n_partials_(tuning.partials > 0 ? std::max(tuning.partials, max_step_rows * dims_.n_heads)
                                      : partials_of(dims_)),
      weights_(*device_, model, options.mtp != 0, draft_ids_),
      program_(make_program(model, weights_, weights_.draft_head())),
      pack_(program_, dims_, options.kv_codec, n_partials_, launch_.n_blocks),
      kv_(kv_layout(dims_, options.kv_codec)),
      records_(static_cast<size_t>(options.n_slots)) {
    Device& device = *device_;
    Limits limits = {options.n_slots, static_cast<int>(draft_ids_.size()), options.mtp != 0,
                     n_partials_};
    Carver measure_states, measure_scratch;
    place_states(&measure_states, dims_, options.n_slots);
    place_scratch(&measure_scratch, dims_, limits);
    states_memory_ = {device, measure_states.taken(), "conversation states"};
    scratch_memory_ = {device, measure_scratch.taken(), "scratch"};
    Carver states(states_memory_.data()), scratch(scratch_memory_.data());
    states_ = place_states(&states, dims_, options.n_slots);
    scratch_ = place_scratch(&scratch, dims_, limits);
    device.clear(states_memory_.data(), states_memory_.size());
    // Codes of rows that no phase writes are multiplied with too, and must not be rubbish.
    device.clear(scratch_memory_.data(), scratch_memory_.size());
    pages_ = {device, options.n_pages * kv_.page_bytes, "KV pages (context)"};
    device.clear(pages_.data(), pages_.size());
    kv_.data = pages_.data();
    int64_t state_bytes = states_.slot_floats * static_cast<int64_t>(sizeof(float));
    int fast = std::min(options.fast_snapshots, options.n_snapshots);
    fast_snapshots_ = {device, fast * state_bytes, "snapshots"};
    slow_snapshots_ = {device, (options.n_snapshots - fast) * state_bytes, "snapshots"};
    bounce_ = {device, bounce_bytes, "staging"};

    const std::vector<Phase>& phases = program_.phases;
    phases_ = {device, static_cast<int64_t>(phases.size()), "schedule"};
    upload(phases_.data(), phases.data(), static_cast<int64_t>(phases.size() * sizeof(Phase)));
    const Shares shares = share_products(products_of(program_), launch_.n_blocks);
    bundles_ = {device, static_cast<int64_t>(shares.bundles.size()), "schedule"};
    upload(bundles_.data(), shares.bundles.data(),
           static_cast<int64_t>(shares.bundles.size() * sizeof(Bundle)));
    first_bundles_ = {device, static_cast<int64_t>(shares.first.size()), "schedule"};
    upload(first_bundles_.data(), shares.first.data(),
           static_cast<int64_t>(shares.first.size() * sizeof(int32_t)));
    std::vector<double> frequencies;
    const Hparams& h = model.hparams;
    for (int d = 0; d < h.rope_dim / 2; ++d)
        frequencies.push_back(std::pow(double{h.rope_base}, -2.0 * d / h.rope_dim));
    frequencies_ = {device, static_cast<int64_t>(frequencies.size()), "schedule"};
    upload(frequencies_.data(), frequencies.data(),
           static_cast<int64_t>(frequencies.size() * sizeof(double)));
    draft_ids_memory_ = {device, static_cast<int64_t>(draft_ids_.size()), "schedule"};
    upload(draft_ids_memory_.data(), draft_ids_.data(),
           static_cast<int64_t>(draft_ids_.size() * sizeof(int32_t)));
    reserve_upload(upload_bytes);
    device.wait();
}

StepHeader CudaBackend::header() const {
    StepHeader header = {};
    Context& c = header.context;
    c.dims = dims_;
    c.scratch = scratch_;
    if (kept_logits_.size() > 0) c.scratch.logits.data = kept_logits_.data();
    c.scratch.kept_drafts = kept_drafts_.data();
    c.states = states_;
    c.kv = kv_;
    c.frequencies = frequencies_.data();
    c.embed = weights_.embed();
    c.embed_type = static_cast<int>(model_.token_embd.type);
    c.embed_row_bytes = static_cast<int64_t>(model_.token_embd.row_bytes);
    c.draft_ids = draft_ids_memory_.data();
    c.n_draft_ids = static_cast<int>(draft_ids_.size());
    header.schedule.phases = phases_.data();
    header.schedule.bundles = bundles_.data();
    header.schedule.first_bundles = first_bundles_.data();
    header.schedule.n_products = program_.n_products;
    header.schedule.only = -1;
    header.stamps = stamps_.data();
    header.stress = tuning_.stress;
    header.ring_bytes = launch_.ring_bytes;
    header.relaxed_polls = tuning_.relaxed_polls ? 1 : 0;
    header.barrier.fault = tuning_.fault > 0 && n_steps_ == tuning_.fault;
    return header;
}

void CudaBackend::reserve_upload(int64_t bytes) {
    if (upload_.size() >= bytes) return;
    int64_t size = std::max(bytes, 2 * upload_.size());
    upload_ = {*device_, size, "a step's description"};
    upload_host_ = {*device_, size, "a step's description"};
}

void CudaBackend::step(const oj_plan& plan, oj_seq_result* results) {
    std::vector<int> pending;
    for (const SlotRecords& slot : records_)
        pending.push_back(slot.pending);
    check_plan(model_, options_, plan, pending);
    std::fill_n(results, plan.n_seqs, oj_seq_result{});
    if (plan.n_seqs > 0) run(plan, results);
    kept_rows_ = plan.keep_logits != 0 ? plan.n_rows : 0;
    kept_seqs_ = plan.keep_logits != 0 ? plan.n_seqs : 0;
}

// Room for what a step with keep_logits leaves; other steps do without.
void CudaBackend::reserve_kept() {
    auto reserve = [&](DeviceBuffer<float>* kept, int64_t rows, const char* what) {
        if (kept->size() > 0) return;
        *kept = {*device_, rows * dims_.n_vocab, what};
        device_->clear(kept->data(), kept->size() * int64_t{sizeof(float)});
    };
    reserve(&kept_logits_, max_step_rows, "logits of every row");
    if (options_.mtp != 0)
        reserve(&kept_drafts_, int64_t{options_.n_slots} * OJ_MAX_DRAFTS, "draft logits");
}

void CudaBackend::run(const oj_plan& plan, oj_seq_result* results) {
    if (plan.keep_logits != 0) reserve_kept();
    ++n_steps_;
    pack_.fill(plan, records_, options_.mtp != 0);
    if (!tuning_.times.empty() && stamps_.size() <= pack_.n_entries())
        stamps_ = {*device_, 2 * pack_.n_entries() + 1, "time stamps"};
    reserve_upload(pack_.bytes());
    pack_.write(header(), upload_host_.data(), upload_.data());
    auto* header = reinterpret_cast<StepHeader*>(upload_.data());
    int64_t result_bytes = plan.n_seqs * static_cast<int64_t>(sizeof(oj_seq_result));
    device_->copy(upload_.data(), upload_host_.data(), pack_.bytes());
    device_->run_step(header, pack_.n_entries(), launch_);
    auto* barrier = reinterpret_cast<GridBarrier*>(bounce_.data());
    uint8_t* bounced = bounce_.data() + sizeof(GridBarrier);
    device_->copy(barrier, &header->barrier, sizeof(GridBarrier));
    device_->copy(bounced, scratch_.results, result_bytes);
    device_->wait();
    if (barrier->fault != 0) {
        throw Error(OJ_ERR_FAULT,
                    "the GPU's blocks waited for each other longer than a step may take; the step "
                    "was given up and the engine is lost");
    }
    std::memcpy(results, bounced, static_cast<size_t>(result_bytes));
    for (int i = 0; i < plan.n_seqs; ++i) {
        const oj_seq& seq = plan.seqs[i];
        SlotRecords& records = records_[seq.slot];
        records = {seq.n_rows - seq.n_certain, 1 - records.buffer};
    }
    if (!tuning_.times.empty()) note_times();
}

// One line a step: the step's shape, then kind and nanoseconds of every phase.
void CudaBackend::note_times() {
    int n = pack_.n_entries();
    std::vector<uint64_t> stamps(static_cast<size_t>(n) + 1);
    download(stamps.data(), stamps_.data(), static_cast<int64_t>(stamps.size() * sizeof(uint64_t)));
    std::ofstream out(tuning_.times, std::ios::app);
    const StepShape& shape = pack_.shape();
    out << "{\"rows\": " << shape.n_rows << ", \"logits\": " << shape.n_logits
        << ", \"drafts\": " << shape.most_drafts << ", \"phases\": [";
    for (int i = 0; i < n; ++i) {
        const Phase& p = program_.phases[static_cast<size_t>(pack_.sequence()[i].phase)];
        out << (i > 0 ? ", [" : "[") << static_cast<int>(p.kind) << ", "
            << stamps[i + 1] - stamps[i] << ", " << weight_bytes(p) << "]";
    }
    out << "]}\n";
}

void CudaBackend::require_settled(int slot, const char* action) const {
    require(slot, options_.n_slots, "slot");
    if (records_[slot].pending == 0) return;
    throw Error(OJ_ERR_INVALID, "slot " + std::to_string(slot) +
                                    " has draft rows pending; fold them in a step with n_rows = 0 "
                                    "before " +
                                    action);
}

uint8_t* CudaBackend::page(int index) const {
    require(index, options_.n_pages, "page");
    return kv_.data + index * kv_.page_bytes;
}

uint8_t* CudaBackend::snapshot(int index) const {
    require(index, options_.n_snapshots, "snapshot");
    int64_t state_bytes = states_.slot_floats * static_cast<int64_t>(sizeof(float));
    int64_t fast = fast_snapshots_.size() / state_bytes;
    return index < fast ? fast_snapshots_.data() + index * state_bytes
                        : slow_snapshots_.data() + (index - fast) * state_bytes;
}

void CudaBackend::reset(int slot) {
    require_settled(slot, "resetting it");
    device_->clear(states_.slot(slot), state_format().snapshot_bytes);
}

void CudaBackend::save(int slot, int to) {
    require_settled(slot, "saving it");
    device_->copy(snapshot(to), states_.slot(slot), state_format().snapshot_bytes);
}

void CudaBackend::load(int from, int slot) {
    require_settled(slot, "loading into it");
    device_->copy(states_.slot(slot), snapshot(from), state_format().snapshot_bytes);
}

void CudaBackend::copy_page(int from, int to) {
    uint8_t *source = page(from), *target = page(to);
    if (from != to) device_->copy(target, source, kv_.page_bytes);
}

oj_state_format CudaBackend::state_format() const {
    return {state_version, kv_.page_bytes,
            states_.slot_floats * static_cast<int64_t>(sizeof(float))};
}

void CudaBackend::download(void* host, const void* device, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += bounce_.size()) {
        int64_t n = std::min(bytes - at, bounce_.size());
        device_->copy(bounce_.data(), static_cast<const uint8_t*>(device) + at, n);
        device_->wait();
        std::memcpy(static_cast<uint8_t*>(host) + at, bounce_.data(), static_cast<size_t>(n));
    }
}

void CudaBackend::upload(void* device, const void* host, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += bounce_.size()) {
        int64_t n = std::min(bytes - at, bounce_.size());
        std::memcpy(bounce_.data(), static_cast<const uint8_t*>(host) + at, static_cast<size_t>(n));
        device_->copy(static_cast<uint8_t*>(device) + at, bounce_.data(), n);
        device_->wait();
    }
}

void CudaBackend::export_page(int index, uint8_t* out) {
    download(out, page(index), kv_.page_bytes);
}

void CudaBackend::import_page(int index, const uint8_t* bytes) {
    upload(page(index), bytes, kv_.page_bytes);
}

void CudaBackend::export_snapshot(int index, int64_t offset, int64_t n, uint8_t* out) {
    download(out, snapshot(index) + offset, n);
}

void CudaBackend::import_snapshot(int index, const uint8_t* bytes) {
    upload(snapshot(index), bytes, state_format().snapshot_bytes);
}

void CudaBackend::read(int which, int index, float* out) {
    int64_t n_vocab = dims_.n_vocab, n_embd = dims_.n_embd;
    int drafts = kept_drafts_.size() > 0 ? kept_seqs_ * OJ_MAX_DRAFTS : 0;
    switch (which) {
        case 0:
            require(index, kept_rows_, "row of kept logits");
            download(out, kept_logits_.data() + index * n_vocab, n_vocab * int64_t{sizeof(float)});
            return;
        case 1:
            require(index, drafts, "draft of kept logits");
            download(out, kept_drafts_.data() + index * n_vocab, n_vocab * int64_t{sizeof(float)});
            return;
        case 2:
            require(index, kept_rows_, "row of kept logits");
            download(out, scratch_.hidden + index * n_embd, n_embd * int64_t{sizeof(float)});
            return;
        default:
            throw Error(OJ_ERR_INVALID, "which must be 0, 1 or 2");
    }
}

}  // namespace oj::cuda
