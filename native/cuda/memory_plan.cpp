#include "cuda/memory_plan.h"

#include <algorithm>
#include <string>

#include "cuda/kv_page.h"
#include "cuda/layout.h"
#include "cuda/program.h"
#include "cuda/step_pack.h"
#include "cuda/weights.h"
#include "engine/plan_check.h"

namespace oj::cuda {

namespace {

constexpr int64_t most_partials = 1 << 15;

int segments(int cols) {
    return (cols + k_segment - 1) / k_segment;
}

Input place_input(Carver* carver, int64_t cols) {
    constexpr int64_t rows = max_step_rows;
    Input input = {};
    input.values = carver->take<float>(rows * cols);
    input.codes256 = carver->take<int8_t>(rows * code_row_bytes(static_cast<int>(cols)));
    input.scales256 = carver->take<float>(rows * (cols / super_group + 1));
    input.sums32 = carver->take<int8_t>(rows * (cols / 16 + 16));
    input.codes32 = carver->take<int8_t>(rows * code_row_bytes(static_cast<int>(cols)));
    input.scales32 = carver->take<float>(rows * (cols / small_group + 8));
    input.sums = carver->take<int16_t>(rows * (cols / small_group + 8));
    return input;
}

}  // namespace

int most_sampled(int n_slots) {
    return static_cast<int>(std::min<int64_t>(max_step_rows, n_slots * int64_t{OJ_MAX_DRAFTS + 1}));
}

int partials_of(const Dims& dims) {
    return static_cast<int>(std::max<int64_t>(most_partials, max_step_rows * dims.n_heads));
}

Scratch place_scratch(Carver* carver, const Dims& d, const Limits& limits) {
    constexpr int64_t rows = max_step_rows;
    auto floats = [&](int64_t count) { return carver->take<float>(count); };
    auto product = [&](int64_t outputs, int n_segments) {
        return Product{floats(n_segments * rows * outputs), static_cast<int>(outputs), n_segments};
    };
    int in = segments(d.n_embd);
    int out = segments(std::max({2 * d.n_embd, d.n_ff, d.q_rows(), d.v_channels()}));
    int64_t sampled = most_sampled(limits.n_slots);
    int64_t drafting = limits.mtp ? std::min<int64_t>(limits.n_slots, rows) : 0;
    int draft_rows = limits.n_draft_ids > 0 ? limits.n_draft_ids : d.n_vocab;

    Scratch s = {};
    s.x = floats(rows * d.n_embd);
    s.hidden = floats(rows * d.n_embd);
    s.rotation = floats(rows * d.rope_dim);
    s.input = place_input(carver, std::max({2 * d.n_embd, d.n_ff, d.q_rows(), d.v_channels()}));
    Carver choosing = *carver;  // these hold nothing while tokens are chosen (schedule_check.cpp)
    s.qkv = product(std::max(d.conv_channels(), 2 * d.q_rows()), in);
    s.gate = product(std::max(d.n_ff, d.v_channels()), in);
    s.up = product(d.n_ff, in);
    s.partials = floats(int64_t{limits.n_partials} * (d.head_dim + 2));
    s.scores = choosing.take<float>(sampled * d.n_vocab);
    carver->share(choosing);
    s.beta = product(d.n_v_heads, in);
    s.alpha = product(d.n_v_heads, in);
    s.key = product(d.kv_rows(), in);
    s.value = product(d.kv_rows(), in);
    s.out = product(d.n_embd, out);
    s.logits = {floats(sampled * d.n_vocab), d.n_vocab, 1};
    s.query = floats(rows * d.q_rows());
    s.query_codes = carver->take<int8_t>(query_code_bytes(d));
    s.query_scales = floats(rows * d.q_rows() / kv_group);
    s.totals = floats(rows * d.n_heads * (d.head_dim + 2));
    s.core = floats(rows * d.v_channels());
    s.teams = carver->take<TeamMemory>(rows);
    s.chosen = carver->take<int32_t>(rows);
    s.logprobs = carver->take<oj_logprob>(rows);
    if (limits.mtp) {
        s.drawn_scores = floats(int64_t{limits.n_slots} * OJ_MAX_DRAFTS * d.n_vocab);
        s.drawn = carver->take<Distribution>(int64_t{limits.n_slots} * OJ_MAX_DRAFTS);
        s.draft_logits = {floats(drafting * draft_rows), draft_rows, 1};
        s.draft_hidden = floats(drafting * d.n_embd);
    }
    s.results = carver->take<oj_seq_result>(limits.n_slots);
    return s;
}

StatesView place_states(Carver* carver, const Dims& d, int n_slots) {
    auto whole_words = [](int64_t floats) { return (floats + 3) / 4 * 4; };
    StatesView states = {};
    states.conv_floats = int64_t{d.conv_kernel - 1} * d.conv_channels();
    states.head_floats = int64_t{d.state_dim} * d.state_dim;
    states.layer_floats = whole_words(states.conv_floats + d.n_v_heads * states.head_floats);
    states.slot_floats = whole_words(d.n_delta_layers * states.layer_floats + d.n_embd);
    states.record_row_floats = whole_words(int64_t{d.conv_channels()} + 2 * d.n_v_heads);
    states.record_layer_floats = OJ_MAX_DRAFTS * states.record_row_floats;
    states.record_floats =
        d.n_delta_layers * states.record_layer_floats + int64_t{OJ_MAX_DRAFTS} * d.n_embd;
    states.slots = carver->take<float>(n_slots * states.slot_floats);
    states.records = carver->take<float>(2 * n_slots * states.record_floats);
    return states;
}

KvView kv_layout(const Dims& d, int kv_codec) {
    KvView kv = {};
    kv.codec = kv_codec;
    kv.block_bytes = kv_block_bytes(kv_codec, d.head_dim);
    kv.head_bytes = 2 * kv.block_bytes;
    kv.layer_bytes = d.n_kv_heads * kv.head_bytes;
    kv.page_bytes = d.n_kv_layers * kv.layer_bytes;
    return kv;
}

void check_cuda(const Model& model, const oj_backend_options& options) {
    check_options(model, options);
    if (options.max_rows > max_step_rows) {
        throw Error(OJ_ERR_INVALID, "max_rows is " + std::to_string(options.max_rows) +
                                        "; a step of the CUDA backend has at most " +
                                        std::to_string(max_step_rows) + " rows");
    }
    if (options.kv_codec == OJ_KV_F32) {
        throw Error(OJ_ERR_UNSUPPORTED,
                    "the CUDA backend keeps KV in q8_0 or f16, not in f32; choose one of them");
    }
    const Hparams& h = model.hparams;
    auto require = [&](bool holds, const char* key, int value, const std::string& rule) {
        if (holds) return;
        throw Error(OJ_ERR_UNSUPPORTED, model.path + ": " + key + " is " + std::to_string(value) +
                                            "; the CUDA backend needs " + rule);
    };
    require(h.n_embd % 32 == 0 && h.n_embd <= max_norm_columns, "embedding_length", h.n_embd,
            "a multiple of 32, at most " + std::to_string(max_norm_columns));
    require(h.n_ff % 32 == 0, "feed_forward_length", h.n_ff, "a multiple of 32");
    require(h.head_dim == 64 || h.head_dim == 128 || h.head_dim == 256, "attention.key_length",
            h.head_dim, "64, 128 or 256");
    require(h.state_dim == 32 || h.state_dim == 64 || h.state_dim == 128, "ssm.state_size",
            h.state_dim, "32, 64 or 128");
    require(h.conv_kernel >= 1 && h.conv_kernel <= max_taps, "ssm.conv_kernel", h.conv_kernel,
            "1 to " + std::to_string(max_taps));
    if (options.mtp != 0) {  // mtp_join quantises the two halves of its input apart
        bool wide = block_type_info(model.mtp->eh_proj.type).block_elements == super_group;
        require(!wide || h.n_embd % super_group == 0, "embedding_length", h.n_embd,
                "a multiple of 256 where nextn.eh_proj has blocks of 256");
    }
    if (options.mtp != 0 && model.mtp->embed.data != model.token_embd.data) {
        throw Error(OJ_ERR_UNSUPPORTED, model.path +
                                            ": the MTP block has token embeddings of its own, which"
                                            " the CUDA backend does not read; set mtp to 0");
    }
}

oj_memory_plan measure_memory(const Model& model, const oj_backend_options& options,
                              int n_draft_ids) {
    check_cuda(model, options);
    bool mtp = options.mtp != 0;
    Dims dims = dims_of(model, mtp);
    Carver states, scratch;
    StatesView view = place_states(&states, dims, options.n_slots);
    place_scratch(&scratch, dims, {options.n_slots, n_draft_ids, mtp, partials_of(dims)});
    oj_memory_plan plan = {};
    plan.weights = WeightLayout(model, mtp, static_cast<size_t>(n_draft_ids)).bytes() +
                   static_cast<int64_t>(model.token_embd.bytes());
    plan.state_bytes = view.slot_floats * static_cast<int64_t>(sizeof(float));
    plan.states = states.taken();
    plan.snapshots = options.n_snapshots * plan.state_bytes;
    plan.page_bytes = kv_layout(dims, options.kv_codec).page_bytes;
    plan.pages = options.n_pages * plan.page_bytes;
    plan.scratch = scratch.taken() + upload_bytes + schedule_bytes;
    int slow = options.n_snapshots - std::min(options.fast_snapshots, options.n_snapshots);
    plan.host = static_cast<int64_t>(model.token_embd.bytes()) + slow * plan.state_bytes;
    return plan;
}

}  // namespace oj::cuda
