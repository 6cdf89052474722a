#include "engine/request.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "model/model.h"

namespace oj {

namespace {

[[noreturn]] void invalid(const std::string& message) {
    throw Error(OJ_ERR_INVALID, message);
}

void check_range(const char* name, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    invalid(std::string(name) + " is " + std::to_string(value) + ", expected " +
            std::to_string(low) + " to " + std::to_string(high));
}

void check_float(const char* name, float value, float low, float high) {
    if (value >= low && value <= high) return;  // false for NaN
    invalid(std::string(name) + " is " + std::to_string(value) + ", expected " +
            std::to_string(low) + " to " + std::to_string(high));
}

void check_array(const char* name, const void* array, int64_t n, int64_t most) {
    check_range((std::string("n_") + name).c_str(), n, 0, most);
    if (n > 0 && !array) {
        invalid(std::string(name) + " is NULL but n_" + name + " is " + std::to_string(n));
    }
}

void check_tokens(const char* name, const int32_t* tokens, int32_t n, int32_t n_vocab) {
    for (int32_t i = 0; i < n; ++i) {
        if (tokens[i] >= 0 && tokens[i] < n_vocab) continue;
        invalid(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(tokens[i]) +
                ", expected a token id from 0 to " + std::to_string(n_vocab - 1));
    }
}

void check_sampling(const oj_sampling& s, int32_t n_vocab) {
    check_float("sampling.temperature", s.temperature, 0.0f, 100.0f);
    check_range("sampling.top_k", s.top_k, 0, INT32_MAX);
    check_float("sampling.top_p", s.top_p, 0.0f, 1.0f);
    check_float("sampling.min_p", s.min_p, 0.0f, 1.0f);
    check_float("sampling.presence", s.presence, -100.0f, 100.0f);
    check_float("sampling.frequency", s.frequency, -100.0f, 100.0f);
    check_float("sampling.repetition", s.repetition, 0.01f, 100.0f);
    check_range("sampling.top_logprobs", s.top_logprobs, 0, OJ_MAX_TOP);
    check_range("sampling.n_bias", s.n_bias, 0, n_vocab);
    if (s.n_bias > 0 && (!s.bias_ids || !s.bias_values)) {
        invalid("sampling.bias_ids or bias_values is NULL but n_bias is " +
                std::to_string(s.n_bias));
    }
    check_tokens("sampling.bias_ids", s.bias_ids, s.n_bias, n_vocab);
    for (int32_t i = 0; i < s.n_bias; ++i) {
        check_float("sampling.bias_values", s.bias_values[i], -1000.0f, 1000.0f);
    }
}

void check_boundaries(const oj_request& r) {
    int32_t previous = 0;
    for (int32_t i = 0; i < r.n_boundaries; ++i) {
        const int32_t at = r.boundaries[i];
        if (at >= previous && at <= r.n_tokens) {
            previous = at;
            continue;
        }
        invalid("boundaries[" + std::to_string(i) + "] is " + std::to_string(at) +
                ", expected ascending prompt lengths from " + std::to_string(previous) + " to " +
                std::to_string(r.n_tokens));
    }
}

// Bits at and above n_vocab do not count.
void check_mask(const char* name, const uint32_t* mask, int32_t n_vocab) {
    for (int32_t id = 0; id < n_vocab; ++id) {
        if (mask[id / 32] >> (id % 32) & 1) return;
    }
    invalid(std::string(name) + " allows no token");
}

void check_thinking(const oj_thinking& t, int32_t n_vocab) {
    check_array("thinking.closing", t.closing, t.n_closing, OJ_MAX_CLOSING);
    check_tokens("thinking.closing", t.closing, t.n_closing, n_vocab);
    check_range("thinking.budget", t.budget, 0, INT32_MAX);
    if (t.n_closing > 0 &&
        std::find(t.closing, t.closing + t.n_closing, t.close) == t.closing + t.n_closing) {
        invalid("thinking.closing does not contain thinking.close, which is " +
                std::to_string(t.close));
    }
}

void check_request(const oj_request& r, int32_t n_vocab, int32_t context) {
    if (r.n_tokens < 1) invalid("the prompt is empty; give at least one token");
    if (!r.tokens) invalid("tokens is NULL");
    if (r.n_tokens >= context) {
        throw Error(OJ_ERR_CONTEXT, "the prompt has " + std::to_string(r.n_tokens) +
                                        " tokens, but the context is " + std::to_string(context) +
                                        " with at least one token of answer; shorten the "
                                        "prompt or open the engine with a larger context");
    }
    check_tokens("tokens", r.tokens, r.n_tokens, n_vocab);
    check_array("boundaries", r.boundaries, r.n_boundaries, INT32_MAX);
    check_boundaries(r);
    check_sampling(r.sampling, n_vocab);
    check_array("stops", r.stops, r.n_stops, OJ_MAX_STOPS);
    check_array("hidden", r.hidden, r.n_hidden, 64);
    check_tokens("hidden", r.hidden, 2 * r.n_hidden, n_vocab);
    check_range("starts_hidden", r.starts_hidden, -1, r.n_hidden - 1);
    check_array("stop_tokens", r.stop_tokens, r.n_stop_tokens, n_vocab);
    check_tokens("stop_tokens", r.stop_tokens, r.n_stop_tokens, n_vocab);
    check_range("draft", r.draft, -1, OJ_MAX_DRAFTS);
    check_range("deadline_us", r.deadline_us, 0, INT64_MAX / 2);
    check_thinking(r.thinking, n_vocab);
    if (r.allowed) check_mask("allowed", r.allowed, n_vocab);
    if (r.constrained) check_range("constrain_after", r.constrain_after, -1, n_vocab - 1);
}

StopMatcher make_stops(const oj_request& r) {
    std::vector<std::string> stops;
    for (int32_t i = 0; i < r.n_stops; ++i) {
        const std::string name = "stops[" + std::to_string(i) + "]";
        if (!r.stops[i]) invalid(name + " is NULL");
        stops.emplace_back(r.stops[i]);
        check_range((name + " in bytes").c_str(), static_cast<int64_t>(stops.back().size()), 1,
                    OJ_STOP_BYTES);
    }
    std::vector<std::pair<int32_t, int32_t>> spans;
    for (int32_t i = 0; i < r.n_hidden; ++i)
        spans.emplace_back(r.hidden[2 * i], r.hidden[2 * i + 1]);
    return StopMatcher(std::move(stops), std::move(spans), r.starts_hidden);
}

// Where to store states: the end of what starts every conversation of this kind (the first
// boundary), the last two message ends and the end of the prompt.
void choose_cuts(const oj_request& r, Conversation* c) {
    std::vector<int32_t> inner;
    for (int32_t i = 0; i < r.n_boundaries; ++i) {
        const int32_t at = r.boundaries[i];
        if (at > 0 && at < r.n_tokens && (inner.empty() || at > inner.back())) inner.push_back(at);
    }
    for (size_t i = 0; i < inner.size(); ++i) {
        if (i == 0 || i + 2 >= inner.size()) c->cuts.push_back({inner[i], i == 0});
    }
    c->cuts.push_back({r.n_tokens, false});
}

}  // namespace

int64_t now_us() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

void check_backend_options(const oj_backend_options& b) {
    check_range("backend.n_slots", b.n_slots, 1, 256);
    check_range("backend.n_pages", b.n_pages, 1, INT32_MAX / kPageSize);
    check_range("backend.n_snapshots", b.n_snapshots, 0, 65536);
    check_range("backend.max_rows", b.max_rows, 1, 65536);
    check_range("backend.threads", b.threads, 0, 4096);
    check_range("backend.kv_codec", b.kv_codec, OJ_KV_Q8_0, OJ_KV_F32);
    check_range("backend.mtp", b.mtp, 0, 1);
    check_range("backend.draft_head_rows", b.draft_head_rows, 0, INT32_MAX);
}

void check_options(const Model& model, const oj_engine_options& o) {
    const oj_backend_options& b = o.backend;
    check_backend_options(b);
    check_range("context", o.context, 2, model.hparams.n_ctx_train);
    if (pages_for(o.context) > b.n_pages) {
        invalid("context is " + std::to_string(o.context) + ", but backend.n_pages " +
                std::to_string(b.n_pages) + " hold " + std::to_string(b.n_pages * kPageSize) +
                " positions; raise n_pages or lower context");
    }
    check_range("max_queue", o.max_queue, 1, 1 << 20);
    check_range("max_queue_client", o.max_queue_client, 1, o.max_queue);
    check_range("draft", o.draft, 0, OJ_MAX_DRAFTS);
    check_float("step_target", o.step_target, 1.0f, 1000.0f);
    check_range("step_target_us", o.step_target_us, 0, INT32_MAX);
    check_range("min_prompt_rows", o.min_prompt_rows, 1, 65536);
    check_range("mask_timeout_ms", o.mask_timeout_ms, 0, 86400000);
    check_range("backend.max_rows with a row for each slot and min_prompt_rows", b.max_rows,
                b.n_slots + o.min_prompt_rows, 65536);
    if (b.kind != OJ_BACKEND_SCRIPTED && o.n_script != 0) {
        invalid("n_script is " + std::to_string(o.n_script) +
                ", but only the scripted backend takes a script");
    }
    check_array("script", o.script, o.n_script, 4096);
}

void check_masks(const uint32_t* masks, int32_t n_masks, const int32_t* forced, int32_t n_forced,
                 int32_t n_vocab) {
    check_array("masks", masks, n_masks, n_forced > 0 ? 1 : OJ_MAX_DRAFTS + 1);
    for (int32_t i = 0; i < n_masks; ++i) {
        const std::string name = "masks[" + std::to_string(i) + "]";
        check_mask(name.c_str(), masks + int64_t{i} * ((n_vocab + 31) / 32), n_vocab);
    }
    check_array("forced", forced, n_forced, INT32_MAX);
    check_tokens("forced", forced, n_forced, n_vocab);
}

std::unique_ptr<Conversation> make_conversation(const Model& model,
                                                const oj_engine_options& options,
                                                const oj_request& r) {
    check_request(r, model.hparams.n_vocab, options.context);
    auto c = std::make_unique<Conversation>();
    c->client = r.client ? r.client : "";
    c->n_prompt = r.n_tokens;
    const int32_t room = options.context - r.n_tokens;
    c->max_tokens = r.max_tokens > 0 ? std::min(r.max_tokens, room) : room;
    c->max_drafts = r.draft >= 0 ? r.draft : options.draft;
    c->fixed_drafts = r.draft >= 0;
    c->ignore_eos = r.ignore_eos != 0;
    c->submitted_us = now_us();
    c->deadline_us = r.deadline_us > 0 ? c->submitted_us + r.deadline_us : 0;

    c->sampling = r.sampling;
    c->bias_ids.assign(r.sampling.bias_ids, r.sampling.bias_ids + r.sampling.n_bias);
    c->bias_values.assign(r.sampling.bias_values, r.sampling.bias_values + r.sampling.n_bias);
    c->sampling.bias_ids = c->bias_ids.data();
    c->sampling.bias_values = c->bias_values.data();
    c->stop_tokens.assign(r.stop_tokens, r.stop_tokens + r.n_stop_tokens);
    c->stops = make_stops(r);
    c->constraint = Constraint(r, model.hparams.n_vocab);
    c->thinking = ThinkingBudget(r.thinking);

    c->hashes.push_back(0);
    for (int32_t i = 0; i < r.n_tokens; ++i)
        c->push(r.tokens[i]);
    choose_cuts(r, c.get());
    c->stats.prompt_tokens = r.n_tokens;
    return c;
}

}  // namespace oj
