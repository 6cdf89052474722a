// What the engine's test programs share: expectations, a small model, requests, and an engine on a
// HashBackend that collects what becomes of each request.
#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "expect.h"
#include "gguf_builder.h"
#include "hash_backend.h"

namespace oj::test {

inline std::shared_ptr<const Model> micro() {
    static const Bytes bytes = micro_model().build();
    static const auto model = std::make_shared<const Model>(load_bytes(bytes, "micro"));
    return model;
}

using Tokens = std::vector<int32_t>;

// Ids below 6, so that texts repeat themselves.
inline Tokens random_tokens(std::mt19937& random, int32_t n) {
    Tokens tokens;
    for (int32_t i = 0; i < n; ++i)
        tokens.push_back(static_cast<int32_t>(random() % 6));
    return tokens;
}

// Greedy, coupled, to max_tokens; refers to `tokens`.
inline oj_request plain_request(const Tokens& tokens, int32_t max_tokens) {
    oj_request r = {};
    r.tokens = tokens.data();
    r.n_tokens = static_cast<int32_t>(tokens.size());
    r.client = "";
    r.max_tokens = max_tokens;
    r.ignore_eos = 1;
    r.sampling.top_p = 1;
    r.sampling.repetition = 1;
    r.sampling.seed = 5;
    r.sampling.coupled = 1;
    r.starts_hidden = -1;
    r.draft = -1;
    return r;
}

struct Answer {
    Tokens tokens;
    std::vector<float> logprobs;
    std::string text;
    int32_t finish = -1;
    oj_request_stats stats = {};
};

inline bool same(const Answer& a, const Answer& b) {
    return a.tokens == b.tokens && a.logprobs == b.logprobs && a.finish == b.finish;
}

class Service {
public:
    explicit Service(const oj_engine_options& options)
        : Service(options,
                  std::make_unique<HashBackend>(micro()->hparams.n_vocab, options.backend)) {}

    Service(const oj_engine_options& options, std::unique_ptr<HashBackend> backend)
        : hash(backend.get()),
          engine(std::make_unique<Engine>(micro(), std::move(backend), options)) {}

    uint64_t submit(const oj_request& request) {
        const uint64_t id = engine->submit(request);
        answers[id];
        return id;
    }

    const Answer& wait(uint64_t id) {
        while (answers[id].finish < 0 && take(30000) > 0) {
        }
        expect(answers[id].finish >= 0, "a request ends");
        return answers[id];
    }

    // The number of events that came.
    int32_t take(int32_t timeout_ms) {
        oj_event events[32];
        const int32_t n = engine->poll(events, 32, timeout_ms);
        for (int32_t i = 0; i < n; ++i) {
            const oj_event& event = events[i];
            Answer& answer = answers[event.request];
            expect(answer.finish < 0, "nothing follows the last event");
            answer.stats = event.stats;
            if (event.kind == OJ_EVENT_DONE) answer.finish = event.finish;
            if (event.kind != OJ_EVENT_TOKEN) continue;
            answer.tokens.push_back(event.token);
            answer.logprobs.push_back(event.logprob.logprob);
            const std::string_view bytes = micro()->vocab.bytes(event.token);
            answer.text +=
                event.keep < 0 ? bytes : bytes.substr(0, static_cast<size_t>(event.keep));
        }
        return n;
    }

    // Every page is free or kept for reuse, nothing runs or waits.
    void check_idle() {
        oj_engine_stats stats = engine->stats();
        for (int i = 0; i < 10000 && stats.running > 0; ++i) {  // the last fold
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            stats = engine->stats();
        }
        expect(stats.running == 0 && stats.waiting == 0, "nothing runs");
        expect(stats.pages_used == 0, "no page is held by a conversation");
        expect(stats.pages_cached <= stats.pages_total, "pages add up");
        expect(stats.snapshots_used <= stats.snapshots_total, "snapshots add up");
        expect(stats.snapshots_used > 0 || stats.pages_cached == 0, "no page without a prefix");
    }

    HashBackend* hash;
    std::unique_ptr<Engine> engine;
    std::map<uint64_t, Answer> answers;
};

}  // namespace oj::test
