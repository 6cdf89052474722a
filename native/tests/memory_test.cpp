// Memory that runs out under the engine, in the backend or in any allocation of the step thread:
// every request still gets its one last event, callers are told why, and nothing hangs or ends the
// process.

#include <cstdlib>
#include <new>

#include "service.h"

namespace {

// Allocations of this thread until one fails; negative: none does.
thread_local int64_t allocations_left = -1;

}  // namespace

void* operator new(size_t size) {
    if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
    if (void* memory = std::malloc(size + !size)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

namespace oj::test {
namespace {

// From some call on, a backend that has no memory, or leaves the step thread with none.
class PoorBackend final : public HashBackend {
public:
    PoorBackend(const oj_backend_options& options, int32_t calls, int32_t allocations)
        : HashBackend(micro()->hparams.n_vocab, options),
          calls_left_(calls),
          allocations_(allocations) {}

    void step(const oj_plan& plan, oj_seq_result* results) override {
        spend();
        HashBackend::step(plan, results);
        if (calls_left_ == 0 && allocations_ >= 0 && !std::exchange(armed_, true)) {
            allocations_left = allocations_;
        }
    }
    void reset(int slot) override {
        spend();
        HashBackend::reset(slot);
    }
    void save(int slot, int snapshot) override {
        spend();
        HashBackend::save(slot, snapshot);
    }
    void load(int snapshot, int slot) override {
        spend();
        HashBackend::load(snapshot, slot);
    }
    void copy_page(int from, int to) override {
        spend();
        HashBackend::copy_page(from, to);
    }

private:
    void spend() {
        if (calls_left_ > 0) --calls_left_;
        if (calls_left_ == 0 && allocations_ < 0) throw std::bad_alloc();
    }

    int32_t calls_left_;
    bool armed_ = false;
    const int32_t
        allocations_;  // of the step thread that still succeed; negative: the backend's fail
};

// Conversations that share a start, follow up, stop at strings, and make room for each other; one
// is cancelled. True if memory ran out.
bool serve(int32_t calls, int32_t allocations) {
    oj_engine_options options = small_engine(3, 14, 6);
    options.context = 6 * kPageSize;
    Service service(options, std::make_unique<PoorBackend>(options.backend, calls, allocations));
    std::mt19937 random(7);
    const Tokens start = random_tokens(random, 100);
    const char* const stops[] = {"abab"};
    std::vector<uint64_t> ids;
    bool told = false;
    for (int i = 0; i < 7; ++i) {
        Tokens tokens = start;
        const Tokens more = random_tokens(random, 1 + 20 * (i % 3));
        tokens.insert(tokens.end(), more.begin(), more.end());
        oj_request request = plain_request(tokens, 30 + 90 * (i % 2));
        request.sampling.temperature = 1;
        request.stops = stops;
        request.n_stops = i % 4 == 0;
        try {
            ids.push_back(service.submit(request));
        } catch (const Error& error) {
            told |= error.code() == OJ_ERR_FAULT;
        }
        if (i == 3 && !ids.empty()) service.engine->cancel(ids.back());
    }
    bool lost = told;
    for (uint64_t id : ids)
        lost |= service.wait(id).finish == OJ_FINISH_ERROR;
    if (!lost) return false;
    try {
        service.engine->check_health();
        expect(false, "a lost engine says so");
    } catch (const Error& error) {
        expect(error.code() == OJ_ERR_FAULT &&
                   std::string(error.what()).find("bad_alloc") != std::string::npos,
               "... and why");
    }
    const oj_engine_stats stats = service.engine->stats();
    expect(stats.running == 0 && stats.waiting == 0, "nothing runs or waits");
    return true;
}

}  // namespace
}  // namespace oj::test

int main() {
    using namespace oj::test;
    int n_lost = 0;
    for (int calls = 1; calls <= 60; ++calls)
        n_lost += serve(calls, -1);
    expect(n_lost == 60, "any call of the backend may fail");
    n_lost = 0;
    for (int calls : {1, 2, 9, 30}) {
        for (int allocations = 0; allocations < 120; ++allocations)
            n_lost += serve(calls, allocations);
    }
    expect(n_lost > 300, "any allocation of the step thread may fail");
    return report();
}
