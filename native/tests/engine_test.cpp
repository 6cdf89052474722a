// The engine on backends that are no models: equality of answers whoever else is served, accounting
// of pages and snapshots, stop strings, fairness, errors, threads.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "cpu/memory.h"
#include "engine/request.h"
#include "service.h"

namespace oj::test {
namespace {

// ---------------------------------------------------------------- requests and engines

struct Ask {
    std::vector<int32_t> tokens;
    int32_t max_tokens = 12;
    float temperature = 0;
    bool coupled = true;
    float presence = 0;
    int32_t draft = -1;
    std::vector<int32_t> boundaries;
    std::vector<const char*> stops;
    std::string client;
    bool ignore_eos = true;
    int64_t deadline_us = 0;
};

oj_request request_of(const Ask& ask) {
    oj_request r = plain_request(ask.tokens, ask.max_tokens);
    r.boundaries = ask.boundaries.data();
    r.n_boundaries = static_cast<int32_t>(ask.boundaries.size());
    r.client = ask.client.c_str();
    r.ignore_eos = ask.ignore_eos;
    r.deadline_us = ask.deadline_us;
    r.sampling.temperature = ask.temperature;
    r.sampling.top_k = 6;
    r.sampling.top_p = 0.95f;
    r.sampling.presence = ask.presence;
    r.sampling.frequency = ask.presence / 4;
    r.sampling.coupled = ask.coupled;
    r.stops = ask.stops.data();
    r.n_stops = static_cast<int32_t>(ask.stops.size());
    r.draft = ask.draft;
    return r;
}

Answer answer_to(Service& service, const Ask& ask) {
    return service.wait(service.submit(request_of(ask)));
}

Answer alone(Ask ask) {
    ask.draft = 0;
    Service service(small_engine(1, 40, 0));
    return answer_to(service, ask);
}

// ---------------------------------------------------------------- equality and accounting

// Conversations of several turns over a few shared prompts, in a pool too small for all of them,
// with any draft depth, cancels in between: every answer is what the request gets alone.
void check_random_schedule(uint32_t seed) {
    std::mt19937 random(seed);
    const auto n_slots = static_cast<int32_t>(1 + random() % 6);
    oj_engine_options options = small_engine(n_slots, static_cast<int32_t>(8 + random() % 24),
                                             static_cast<int32_t>(random() % 12));
    options.context = std::min(options.context, 500);
    Service service(options);
    const std::vector<int32_t> system = random_tokens(random, 150);
    std::vector<std::vector<int32_t>> histories;
    for (int round = 0; round < 3; ++round) {
        std::vector<std::pair<uint64_t, Ask>> asked;
        for (int i = 0; i < 5; ++i) {
            Ask ask;
            if (!histories.empty() && random() % 3 > 0)
                ask.tokens = histories[random() % histories.size()];
            if (ask.tokens.empty() || ask.tokens.size() > 400) ask.tokens = system;
            ask.boundaries = {static_cast<int32_t>(ask.tokens.size())};
            const auto more = random_tokens(random, static_cast<int32_t>(1 + random() % 80));
            ask.tokens.insert(ask.tokens.end(), more.begin(), more.end());
            if (random() % 2) ask.boundaries.push_back(static_cast<int32_t>(ask.tokens.size()) - 1);
            ask.max_tokens = static_cast<int32_t>(1 + random() % 40);
            ask.temperature = random() % 2 ? 0.0f : 0.8f;
            ask.presence = random() % 3 ? 0.0f : 0.5f;
            ask.draft = static_cast<int32_t>(random() % 6) - 1;
            ask.client = std::to_string(random() % 3);
            asked.emplace_back(service.submit(request_of(ask)), ask);
            if (random() % 5 == 0) service.engine->cancel(asked[random() % asked.size()].first);
            if (random() % 3 == 0) service.take(1);
        }
        for (auto& [id, ask] : asked) {
            const Answer& answer = service.wait(id);
            const Answer expected = alone(ask);
            if (answer.finish == OJ_FINISH_CANCEL) {
                const bool prefix =
                    answer.tokens.size() <= expected.tokens.size() &&
                    std::equal(answer.tokens.begin(), answer.tokens.end(), expected.tokens.begin());
                expect(prefix, "a cancelled answer is the beginning of the whole one");
            } else {
                expect(same(answer, expected),
                       "alone and in company, seed " + std::to_string(seed));
            }
            ask.tokens.insert(ask.tokens.end(), answer.tokens.begin(), answer.tokens.end());
            histories.push_back(ask.tokens);
        }
    }
    service.check_idle();
}

// The pool holds two whole contexts; four conversations that grow to a whole one each must make
// room for each other and still say the same.
void check_preemption() {
    oj_engine_options options = small_engine(4, 12, 4);
    options.context = 6 * kPageSize;
    Service service(options);
    std::mt19937 random(3);
    std::vector<std::pair<uint64_t, Ask>> asked;
    for (int i = 0; i < 4; ++i) {
        Ask ask;
        ask.tokens = random_tokens(random, 20);
        ask.max_tokens = options.context - 20;
        ask.temperature = 0.9f;
        ask.draft = i;
        asked.emplace_back(service.submit(request_of(ask)), ask);
    }
    for (const auto& [id, ask] : asked) {
        const Answer& answer = service.wait(id);
        expect(answer.finish == OJ_FINISH_LENGTH && same(answer, alone(ask)), "after making room");
        expect(answer.stats.generated == options.context - 20, "up to the context");
    }
    expect(service.hash->rows() > 5 * options.context, "somebody was read again");
    service.check_idle();
}

void check_follow_up() {
    Service service(small_engine(4, 64, 16));
    std::mt19937 random(9);
    Ask first;
    first.tokens = random_tokens(random, 300);
    first.boundaries = {200, 290};
    first.max_tokens = 30;
    const Answer answer = answer_to(service, first);

    Ask follow = first;
    follow.tokens.insert(follow.tokens.end(), answer.tokens.begin(), answer.tokens.end());
    const auto n_live = static_cast<int32_t>(follow.tokens.size());
    const std::vector<int32_t> more = random_tokens(random, 10);
    follow.tokens.insert(follow.tokens.end(), more.begin(), more.end());
    const int64_t before = service.hash->rows();
    const Answer second = answer_to(service, follow);
    expect(second.stats.cached_tokens >= n_live - 1, "a follow-up costs its new tokens");
    expect(second.stats.cached_tokens + 10 <= 340, "... and those it costs");
    expect(service.hash->rows() - before <= 11 + 5 * 30, "... counted at the backend");
    expect(same(second, alone(follow)), "a follow-up says the same");

    Ask rewritten = first;  // the template dropped the answer
    rewritten.tokens.resize(295);
    rewritten.tokens[294] = (rewritten.tokens[294] + 1) % 6;
    expect(answer_to(service, rewritten).stats.cached_tokens == 290,
           "the last boundary is the fallback");
    Ask other = first;
    other.tokens.resize(250);
    other.boundaries = {200};
    other.tokens[249] = (other.tokens[249] + 1) % 6;
    expect(answer_to(service, other).stats.cached_tokens == 200, "a common start is shared");
}

// A prefix that one conversation is reading is read once, also without a boundary at its end.
void check_shared_prefix() {
    const oj_engine_options options = small_engine(4, 128, 16);
    HashBackend backend(micro()->hparams.n_vocab, options.backend);
    Runner runner(*micro(), backend, options);
    std::mt19937 random(4);
    const std::vector<int32_t> system = random_tokens(random, 1000);
    std::vector<std::unique_ptr<Conversation>> waiting;
    for (int i = 0; i < 4; ++i) {
        Ask ask;
        ask.tokens = system;
        ask.tokens.resize(1020, i);
        ask.max_tokens = 1;
        waiting.push_back(make_conversation(*micro(), options, request_of(ask)));
    }
    for (int step = 0; step < 200; ++step) {
        for (auto& request : waiting) {
            if (!request || runner.admit(*request) != Admission::admitted) continue;
            expect(request->computed == (step == 0 ? 0 : 1000), "the first reads, the others join");
            runner.add(std::move(request));
        }
        runner.step();
    }
    expect(backend.rows() == 1000 + 4 * 20, "a shared prefix is read once");
    expect(runner.stats().running == 0 && runner.take_events().size() > 0, "all answered");
}

int64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    int64_t total = 0, resident = 0;
    statm >> total >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

// What the first write to memory takes is not a step's to pay: a small model's snapshots are there
// when the backend is.
void check_memory_is_touched(const char* path) {
    const Model model = load_model(path);
    oj_engine_options options = small_engine(1, 24, 0);
    options.backend.kind = OJ_BACKEND_CPU;
    options.backend.threads = 1;
    const auto taken = [&](int32_t n_snapshots) {
        options.backend.n_snapshots = n_snapshots;
        const int64_t before = resident_bytes();
        const auto backend = make_cpu_backend(model, options.backend);
        return resident_bytes() - before;
    };
    taken(1);  // reads the file
    const int64_t state_bytes =
        make_cpu_backend(model, options.backend)->state_format().snapshot_bytes;
    expect(taken(24) - taken(1) > 20 * state_bytes, "snapshots are resident before the first step");
}

// A larger model's follow in the background, beside whoever writes them.
void check_memory_is_populated() {
    const cpu::Pages<char> memory(size_t{9} << 20, "a test");
    const size_t size = memory.size(), n_pages = size / static_cast<size_t>(sysconf(_SC_PAGESIZE));
    memory[size / 2] = 1;
    std::vector<unsigned char> resident(n_pages);
    const auto n_resident = [&] {
        expect(mincore(memory.data(), size, resident.data()) == 0, "mincore");
        return static_cast<size_t>(std::count(resident.begin(), resident.end(), 1));
    };
    const std::atomic<bool> at_once(true), never(false);
    memory.populate(at_once);
    expect(n_resident() < n_pages, "it ends when it is told to");
    memory.populate(never);
    if (madvise(memory.data(), 1, MADV_POPULATE_WRITE) != 0) return;  // not on this system
    expect(n_resident() == n_pages, "all of it is resident");
    expect(memory[size / 2] == 1, "and what was there is there");
}

// The CPU backend under the engine: two threads of its own, drafts, reuse.
void check_cpu_backend(const char* path) {
    const auto model = std::make_shared<const Model>(load_model(path));
    oj_engine_options options = small_engine(3, 24, 6);
    options.backend.kind = OJ_BACKEND_CPU;
    options.backend.threads = 2;
    Engine engine(model, make_cpu_backend(*model, options.backend), options);
    std::map<uint64_t, std::vector<int32_t>> tokens;
    for (int round = 0; round < 2; ++round) {
        std::vector<uint64_t> ids;
        for (int32_t draft : {0, 2, 3}) {
            Ask ask;
            ask.tokens = {5, 6, 7, 5, 6, 7, 5, 6};
            ask.boundaries = {6};
            ask.max_tokens = 5;
            ask.temperature = 0.7f;
            ask.draft = draft;
            ids.push_back(engine.submit(request_of(ask)));
        }
        size_t done = 0;
        oj_event event;
        while (done < ids.size() && engine.poll(&event, 1, 60000) == 1) {
            if (event.kind == OJ_EVENT_TOKEN) tokens[event.request].push_back(event.token);
            done += event.kind == OJ_EVENT_DONE;
        }
        for (uint64_t id : ids)
            expect(tokens[id].size() == 5 && tokens[id] == tokens[ids[0]], "the same on the CPU");
    }
}

// Requests that share starts come, are cancelled at random and end, for so long: afterwards every
// page and snapshot is accounted for, and memory has not grown since the first tenth of the time.
void check_random_cancels(double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    Service service(small_engine(6, 80, 24));
    std::mt19937 random(1);
    const Tokens system = random_tokens(random, 300);
    std::vector<uint64_t> open;
    int64_t settled = 0, n_requests = 0;
    while (elapsed() < seconds) {
        Ask ask;
        ask.tokens.assign(system.begin(), system.begin() + 1 + random() % 300);
        const Tokens more = random_tokens(random, static_cast<int32_t>(1 + random() % 60));
        ask.tokens.insert(ask.tokens.end(), more.begin(), more.end());
        ask.boundaries = {static_cast<int32_t>(ask.tokens.size()) / 2};
        ask.max_tokens = static_cast<int32_t>(1 + random() % 200);
        ask.temperature = random() % 2 ? 0.0f : 0.8f;
        ask.draft = static_cast<int32_t>(random() % 6) - 1;
        ask.deadline_us = random() % 4 ? 0 : 1000 + random() % 20000;
        open.push_back(service.submit(request_of(ask)));
        ++n_requests;
        if (random() % 3 == 0) service.engine->cancel(open[random() % open.size()]);
        for (int i = 0; service.take(0) > 0 && i < 8; ++i) {
        }
        while (open.size() > 30) {
            service.wait(open.front());
            service.answers.erase(open.front());
            open.erase(open.begin());
        }
        if (settled == 0 && elapsed() > seconds / 10) settled = resident_bytes();
    }
    for (uint64_t id : open)
        service.wait(id);
    service.check_idle();
    const int64_t grown = resident_bytes() - settled;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what is freed
    expect(grown < 16 << 20, "memory grew by " + std::to_string(grown) + " bytes");
#endif
    std::printf("%lld requests, %lld bytes more after the first tenth\n",
                static_cast<long long>(n_requests), static_cast<long long>(grown));
}

void check_rejection_is_reproducible() {
    Ask ask;
    ask.tokens = {1, 2, 3, 4, 5, 1, 2};
    ask.temperature = 1.0f;
    ask.coupled = false;
    ask.max_tokens = 200;
    ask.draft = 3;
    Service one(small_engine(1, 40, 4)), crowd(small_engine(4, 40, 4));
    const Answer expected = answer_to(one, ask);
    std::vector<uint64_t> ids;
    for (int i = 0; i < 4; ++i)
        ids.push_back(crowd.submit(request_of(ask)));
    for (uint64_t id : ids)
        expect(crowd.wait(id).tokens == expected.tokens, "one draft plan and seed, same tokens");
    int32_t drafted = 0, accepted = 0;
    for (int source : {OJ_DRAFT_MTP, OJ_DRAFT_LOOKUP}) {
        for (int i = 0; i < OJ_MAX_DRAFTS; ++i) {
            drafted += expected.stats.drafted_at[source][i];
            accepted += expected.stats.accepted_at[source][i];
        }
    }
    expect(drafted > 100 && accepted * 10 > drafted * 3, "drafts are accepted");
}

// ---------------------------------------------------------------- stop strings

// What a reader of the whole text sees: everything before the first stop string that is complete.
std::string cut_at_stop(const std::string& text, const std::vector<const char*>& stops) {
    for (size_t end = 1; end <= text.size(); ++end) {
        size_t begin = std::string::npos;
        for (const std::string stop : stops) {
            if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0) {
                begin = std::min(begin, end - stop.size());
            }
        }
        if (begin != std::string::npos) return text.substr(0, begin);
    }
    return text;
}

void check_stop_strings() {
    const std::vector<std::vector<const char*>> sets = {
        {"ab"}, {"ba", "b a"}, {"a ab"}, {"\n\n"}, {"\xa4"}, {"abab", "bab"}, {"aaa", "bb", " \n"}};
    Service service(small_engine(4, 64, 8));
    std::mt19937 random(11);
    for (int i = 0; i < 60; ++i) {
        Ask ask;
        ask.tokens = random_tokens(random, 5);
        ask.temperature = 1.5f;
        ask.max_tokens = 30;
        const Answer whole = answer_to(service, ask);
        ask.stops = sets[static_cast<size_t>(i) % sets.size()];
        const Answer stopped = answer_to(service, ask);
        const std::string expected = cut_at_stop(whole.text, ask.stops);
        expect(stopped.text == expected, "text before the stop string");
        expect((stopped.finish == OJ_FINISH_STRING) == (expected.size() < whole.text.size()),
               "the finish says whether there was one");
        expect(std::equal(stopped.tokens.begin(), stopped.tokens.end(), whole.tokens.begin()),
               "tokens are reported as they came");
    }
}

void check_hidden_spans() {
    StopMatcher stops({"ab"}, {{8, 9}}, 0);  // <|im_start|> .. <|im_end|>, open at the start
    std::vector<OutputToken> out;
    const auto feed = [&](int32_t id) {
        return stops.feed({id, -1, {}}, micro()->vocab.bytes(id), &out);
    };
    for (int32_t id : {2, 9, 0, 8, 1, 2, 9, 0})
        expect(feed(id) == -1, "hidden text, or text on both sides of it, is no stop string");
    expect(out.size() == 7, "only what may begin one is held back");
    expect(feed(1) == 0 && out.size() == 9, "visible text is");
    expect(out[7].keep == 0 && out[8].keep == 0, "and none of it is text of the answer");
}

// ---------------------------------------------------------------- parts

void check_lookup() {
    LookupIndex index;
    std::vector<int32_t> tokens = {9, 1, 2, 3, 4, 5, 8, 1, 2, 3, 6, 7, 1, 2};
    expect(index.find(tokens).end == 0, "two tokens are no match");
    tokens.push_back(3);
    LookupIndex::Match match = index.find(tokens);
    expect(match.end == 10 && match.length == 3, "of equal matches the latest");
    tokens = {9, 1, 2, 3, 4, 5, 8, 1, 2, 3, 6, 7, 1, 2, 3, 9, 1, 2, 3};
    match = index.find(tokens);
    expect(match.end == 4 && match.length == 4, "the longest match");
    expect(continue_match(tokens, 4, 3) == std::vector<int32_t>({4, 5, 8}), "what followed");
    expect(continue_match({1, 2, 3}, 2, 4) == std::vector<int32_t>({3, 3, 3, 3}),
           "a repetition goes on");
}

void check_queue() {
    RequestQueue queue(6, 3);
    uint64_t id = 0;
    const auto push = [&](const char* client) {
        auto c = std::make_unique<Conversation>();
        c->id = ++id;
        c->client = client;
        queue.push(std::move(c));
    };
    for (const char* client : {"a", "a", "a", "b", "c"})
        push(client);
    expect_error(OJ_ERR_BUSY, "client \"a\"", [&] { push("a"); });
    push("b");
    expect_error(OJ_ERR_BUSY, "6 requests wait", [&] { push("d"); });
    std::vector<uint64_t> order;
    while (queue.size() > 0)
        order.push_back(queue.pop(queue.heads().front())->id);
    expect(order == std::vector<uint64_t>({1, 4, 5, 2, 7, 3}), "round-robin, oldest first");
}

void check_prefix_index() {
    PagePool pool(8);
    PrefixIndex index(pool, 3);
    Conversation c;
    c.hashes.push_back(0);
    for (int32_t i = 0; i < 200; ++i)
        c.push(i % 7);
    for (int i = 0; i < 4; ++i)
        c.pages.push_back(pool.acquire());
    for (int32_t i = 0; i < 200; ++i)
        pool.tokens(c.pages[i / kPageSize])[i % kPageSize] = c.tokens[i];
    for (int32_t length : {50, 100, 150})
        expect(index.insert(c.tokens, c.hashes, length, c.pages, length == 50) >= 0, "stored");
    expect(index.insert(c.tokens, c.hashes, 100, c.pages, false) == -1, "stored once");
    const int32_t longest = index.find(c.tokens, c.hashes, 200);
    expect(index[longest].length == 150, "the longest prefix");
    expect(index[index.find(c.tokens, c.hashes, 149)].length == 100, "within the limit");
    index.touch(longest, c.tokens, c.hashes);
    index.insert(c.tokens, c.hashes, 200, c.pages, false);
    expect(index[index.find(c.tokens, c.hashes, 149)].length == 50, "superseded goes first");
    Conversation other = c;
    other.tokens[120] += 1;
    expect(index[index.find(other.tokens, other.hashes, 200)].length == 50,
           "a hash alone is no match");
    expect(!index.evict_page(), "pages of running conversations are not to be had");
    for (int32_t page : c.pages)
        pool.drop_live(page);
    expect(index.evict_page() && pool.n_free() > 4, "idle ones are");
    while (index.evict_page()) {
    }
    expect(pool.n_free() == 8 && index.n_used() == 0, "all of them");
}

// ---------------------------------------------------------------- errors and threads

void check_errors() {
    Service service(small_engine(2, 8, 4));
    Ask ask;
    ask.tokens.assign(512, 1);
    expect_error(OJ_ERR_CONTEXT, "the prompt has 512 tokens, but the context is 512",
                 [&] { service.submit(request_of(ask)); });
    ask.tokens = {1, 12};
    expect_error(OJ_ERR_INVALID, "tokens[1] is 12", [&] { service.submit(request_of(ask)); });
    ask.tokens.clear();
    expect_error(OJ_ERR_INVALID, "empty", [&] { service.submit(request_of(ask)); });
    ask.tokens = {1};
    ask.temperature = NAN;
    expect_error(OJ_ERR_INVALID, "sampling.temperature", [&] { service.submit(request_of(ask)); });
    ask.temperature = 0;
    ask.deadline_us = 1;
    expect(answer_to(service, ask).finish == OJ_FINISH_DEADLINE, "a deadline ends a request");
    ask.deadline_us = 0;
    ask.max_tokens = 100000;
    expect(answer_to(service, ask).stats.generated == 511, "max_tokens is clamped to the context");
    service.check_idle();

    oj_engine_options options = small_engine(2, 8, 4);
    options.context = 513;
    expect_error(OJ_ERR_INVALID, "raise n_pages", [&] { check_options(*micro(), options); });
}

void check_fault() {
    Service service(small_engine(2, 64, 4));
    Ask ask;
    ask.tokens = {1, 2, 3};
    ask.max_tokens = 0;
    std::vector<uint64_t> ids;
    for (int i = 0; i < 4; ++i)
        ids.push_back(service.submit(request_of(ask)));
    service.hash->faulty = true;
    for (uint64_t id : ids)
        expect(service.wait(id).finish == OJ_FINISH_ERROR, "a fault ends every request");
    expect_error(OJ_ERR_FAULT, "injected", [&] { service.submit(request_of(ask)); });
    expect_error(OJ_ERR_FAULT, "injected", [&] { service.engine->check_health(); });
    service.engine->stop();
    oj_event event;
    expect(service.engine->poll(&event, 1, 1000) == -OJ_ERR_CLOSED, "stopped after a fault");
}

// Callers on several threads, cancels, and a stop in the middle of it.
void check_threads() {
    Service service(small_engine(3, 32, 6));
    std::atomic<int> done{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<uint32_t>(t));
            for (int i = 0; i < 40; ++i) {
                Ask ask;
                ask.tokens = random_tokens(random, static_cast<int32_t>(1 + random() % 100));
                ask.client = std::to_string(t);
                try {
                    const uint64_t id = service.engine->submit(request_of(ask));
                    if (i % 3 == 0) service.engine->cancel(id);
                } catch (const Error& error) {
                    expect(error.code() == OJ_ERR_BUSY || error.code() == OJ_ERR_CLOSED,
                           error.what());
                }
                service.engine->stats();
            }
        });
    }
    std::thread poller([&] {
        oj_event events[16];
        for (int32_t n; (n = service.engine->poll(events, 16, 1000)) >= 0;) {
            for (int32_t i = 0; i < n; ++i)
                done += events[i].kind == OJ_EVENT_DONE;
        }
    });
    while (done < 20)
        std::this_thread::yield();
    service.engine->stop();
    for (std::thread& thread : threads)
        thread.join();
    poller.join();
}

}  // namespace
}  // namespace oj::test

// engine_test [MODEL]; for soak runs: --schedules COUNT, --cancels SECONDS.
int main(int argc, char** argv) {
    using namespace oj::test;
    if (argc == 3 && std::string(argv[1]) == "--schedules") {
        for (uint32_t seed = 0; seed < std::stoul(argv[2]); ++seed)
            check_random_schedule(seed);
        return report();
    }
    if (argc == 3 && std::string(argv[1]) == "--cancels") {
        check_random_cancels(std::stod(argv[2]));
        return report();
    }
    const char* tiny = argc > 1 ? argv[1] : "openjet_provider/data/openjet-tiny.gguf";
    check_memory_is_touched(tiny);
    check_memory_is_populated();
    check_cpu_backend(tiny);
    check_lookup();
    check_queue();
    check_prefix_index();
    check_hidden_spans();
    check_stop_strings();
    check_follow_up();
    check_shared_prefix();
    check_preemption();
    check_rejection_is_reproducible();
    for (uint32_t seed = 0; seed < 20; ++seed)
        check_random_schedule(seed);
    check_random_cancels(0.5);
    check_errors();
    check_fault();
    check_threads();
    return report();
}
