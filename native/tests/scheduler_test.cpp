// Who gets how many rows of a step, what steps are taken to cost, and that nobody who writes waits
// long while another's prompt is read: on a clock that only a model of costs moves.

#include <random>

#include "engine/prefix_store.h"
#include "engine/runner.h"
#include "service.h"

namespace oj::test {
namespace {

void check_shares() {
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        std::vector<RowShare> shares(1 + random() % 8);
        int32_t decoding = 0, fixed = 0;
        for (RowShare& share : shares) {
            const bool decodes = random() % 2;
            decoding += decodes;
            share.waiting = decodes ? 1 : static_cast<int32_t>(2 + random() % 300);
            share.limit = decodes ? 1 : static_cast<int32_t>(1 + random() % share.waiting);
            share.drafts = decodes ? static_cast<int32_t>(random() % 9) : 0;
            if (random() % 4 == 0) share.fixed = share.drafts;
            fixed += share.fixed;
        }
        const RowLimits limits{static_cast<int32_t>(shares.size() + 16 + random() % 64),
                               static_cast<int32_t>(8 + random() % 32), 8,
                               static_cast<int32_t>(random() % 100)};
        share_rows(&shares, limits);
        int32_t rows = 0, prompt = 0, drafts = 0, wanted = 0, least = 1 << 20, most = 0;
        for (const RowShare& share : shares) {
            rows += share.certain_rows + share.draft_rows;
            drafts += share.draft_rows;
            expect(share.draft_rows <= share.drafts, "no draft that nobody wants");
            if (fixed <= 8) expect(share.draft_rows >= share.fixed, "all that are fixed");
            if (share.waiting == 1) {
                expect(share.certain_rows == 1, "whoever decodes gets a row");
                continue;
            }
            expect(share.certain_rows <= share.limit, "chunks end at cuts");
            prompt += share.certain_rows;
            wanted += share.limit;
            if (share.certain_rows < share.limit) least = std::min(least, share.certain_rows);
            most = std::max(most, share.certain_rows);
        }
        expect(rows <= limits.max_rows, "at most max_rows");
        if (decoding > 0) {
            expect(prompt <= std::max(limits.spare_rows - drafts, 8), "prompts keep to theirs");
            if (wanted > 0) {
                expect(drafts <= std::max(limits.spare_rows - 8, fixed), "drafts leave them some");
            }
        }
        if (wanted > 0) expect(prompt >= std::min(wanted, 8), "and get their least");
        expect(least == 1 << 20 || most <= least + 1 || prompt < wanted, "equal parts");
        expect(most - std::min(least, most) <= 1, "two prompts advance together");
    }
}

// ---------------------------------------------------------------- what steps cost

StepTime decoding(double us, int32_t drafts = 0) {
    return {1, 1 + drafts, 0, drafts, us, 0};
}

void check_costs() {
    StepCost cost;
    expect(cost.decode_us() == 0, "nothing known");
    expect(cost.lookup_draft(4) == 0.25 && cost.mtp_draft(4) == 0.375, "assumed at first");
    cost.observe({0, 0, 100, 0, 10000, 0});
    for (int i = 0; i < 70; ++i)
        cost.observe(decoding(i % 10 == 0 ? 9000 : 1000));
    expect(cost.decode_us() == 1000, "the median of decode steps");
    expect(cost.spare_rows(2500, 0) == 15, "rows of 100 us each");
    cost.observe({4, 4, 10, 0, 2000, 0});
    expect(cost.spare_rows(2500, 0) == 15, "a mixed step says the same");
    cost.observe({4, 4, 10, 0, 90000, 0});
    cost.observe({0, 0, 3, 0, 90000, 0});
    cost.observe({4, 4, 10, 0, 2000, 0});
    expect(cost.spare_rows(2500, 0) == 15, "neither does one that was held up, or is a short one");
    expect(cost.spare_rows(9e9, 0) == 20, "twice as many at most");
    expect(cost.spare_rows(900, 0) == 0, "no room");
}

// On a CPU one row beside one that decodes costs nearly a step, and each further one little:
// prompts are not read row by row for ever.
void check_first_row_is_dear() {
    StepCost cost;
    for (int i = 0; i < 64; ++i)
        cost.observe(decoding(1000));
    for (int i = 0; i < 64; ++i)
        cost.observe({1, 1, 1, 0, 1800, 0});
    for (int i = 0; i < 64; ++i) {
        const int32_t n = cost.spare_rows(2500, 0);
        cost.observe({1, 1, n, 0, 1600.0 + n * 200, 0});
    }
    expect(cost.spare_rows(2500, 0) >= 3, "as many as the target has room for");
}

// Deeper drafts must not make a step look dearer, and so more drafts cheaper.
void check_draft_costs() {
    for (const int32_t depth : {0, 2, 4}) {
        StepCost cost;
        cost.observe({0, 0, 100, 0, 20000, 0});
        for (int i = 0; i < 64; ++i) {
            StepTime step = decoding(1000 + depth * (200 + 60), depth);
            step.draft_us = depth * 60;
            cost.observe(step);
        }
        expect(std::abs(cost.lookup_draft(1) - 0.2) < 1e-9, "a row of its own");
        const double pass = depth > 0 ? 0.06 : 0.5 * 0.2;
        expect(std::abs(cost.mtp_draft(1) - 0.2 - pass) < 1e-9, "... and a pass");
        expect(std::abs(cost.mtp_draft(3) - 0.6 - (depth > 0 ? pass : 0.3)) < 1e-9,
               "the pass is everybody's");
    }
}

// ---------------------------------------------------------------- nobody stalls

// What a step takes: reading the weights, then rows beyond `free_rows`, dearer further back. Giving
// a slot to a request takes time too.
struct Cost {
    const char* name;
    double step_us, row_us, row_us_per_position, pass_us;
    int32_t free_rows;
};

class CostedBackend final : public HashBackend {
public:
    CostedBackend(int32_t n_vocab, const oj_backend_options& options, const Cost& cost)
        : HashBackend(n_vocab, options), cost_(cost) {}

    int64_t now() const { return static_cast<int64_t>(now_); }

    void step(const oj_plan& plan, oj_seq_result* results) override {
        HashBackend::step(plan, results);
        int32_t rows = -cost_.free_rows, passes = 0;
        now_ += cost_.step_us;
        for (int32_t i = 0; i < plan.n_seqs; ++i) {
            const oj_seq& seq = plan.seqs[i];
            rows += seq.n_rows;
            now_ += seq.n_rows * seq.pos * cost_.row_us_per_position;
            passes = std::max(passes, results[i].n_drafts);
        }
        draft_us_ = passes * cost_.pass_us;
        now_ += std::max(rows, 0) * cost_.row_us + draft_us_;
    }

    void reset(int slot) override {
        HashBackend::reset(slot);
        now_ += admission_us();
    }

    // A state is larger than what a step may copy.
    oj_state_format state_format() const override {
        return {1, HashBackend::state_format().page_bytes, int64_t{2} << 20};
    }
    void export_page(int page, uint8_t* out) override {
        HashBackend::export_page(page, out);
        now_ += piece_us();
    }
    void export_snapshot(int snapshot, int64_t offset, int64_t n, uint8_t* out) override {
        HashBackend::export_snapshot(snapshot, offset, n, out);
        now_ += piece_us() * static_cast<double>(n) / (64 << 10);
        state_bytes_copied += n;
    }
    int64_t state_bytes_copied = 0;
    double piece_us() const { return 0.05 * cost_.step_us; }

    double admission_us() const { return 0.4 * cost_.step_us; }

    int64_t draft_us() const override { return static_cast<int64_t>(draft_us_); }

private:
    const Cost cost_;
    double now_ = 1, draft_us_ = 0;
};

// One writes; two prompts of 1,000 tokens come. Its longest pause is within the target, prompts
// advance together, and as fast as the target allows.
void check_nobody_stalls(const Model& model, const Cost& cost, float target, int32_t target_us) {
    const std::string name = std::string(cost.name) + ": ";
    oj_engine_options options = small_engine(4, 200, 8);
    options.backend.max_rows = 512;
    options.min_prompt_rows = 1;
    options.step_target = target;
    options.step_target_us = target_us;
    CostedBackend backend(model.hparams.n_vocab, options.backend, cost);
    Runner runner(model, backend, options, [&] { return backend.now(); });
    const auto add = [&](uint64_t id, int32_t n_tokens, int32_t max_tokens) {
        std::mt19937 random(static_cast<uint32_t>(id));
        const Tokens tokens = random_tokens(random, n_tokens);
        oj_request request = plain_request(tokens, max_tokens);
        request.sampling.temperature = 0.8f;
        auto c = make_conversation(model, options, request);
        c->id = id;
        expect(runner.admit(*c) == Admission::admitted, "admitted");
        runner.add(std::move(c));
    };
    add(1, 100, 4000);
    std::vector<double> ordinary;
    double longest = 0;
    int32_t most_apart = 0, mixed = 0;
    int64_t n_running = 1, last = 0;
    for (int step = 0; step < 6000 && (step <= 100 || n_running > 1); ++step) {
        if (step == 100) {
            add(2, 1000, 1);
            add(3, 1000, 1);
        }
        const bool reads = std::any_of(runner.running().begin(), runner.running().end(),
                                       [](const auto& c) { return c->n_waiting() > 1; });
        runner.step();
        std::vector<int32_t> read;
        for (const auto& c : runner.running()) {
            if (c->id > 1) read.push_back(c->computed);
        }
        if (read.size() == 2) most_apart = std::max(most_apart, std::abs(read[0] - read[1]));
        n_running = static_cast<int64_t>(runner.running().size());
        bool wrote = false;
        for (const oj_event& event : runner.take_events())
            wrote |= event.request == 1 && event.kind == OJ_EVENT_TOKEN;
        if (!wrote) continue;
        const auto pause = static_cast<double>(backend.now() - last);
        last = backend.now();
        if (step > 10 && step < 100) ordinary.push_back(pause);
        if (reads && step >= 100) longest = std::max(longest, pause);
        mixed += step >= 100;
    }
    expect(n_running == 1, name + "both prompts are read");
    std::sort(ordinary.begin(), ordinary.end());
    const double usual = ordinary[ordinary.size() / 2];
    // One row is read at least, beside the last one of the other prompt.
    const double row_us = cost.row_us + 2000 * cost.row_us_per_position;
    const double least =
        cost.step_us + 3 * row_us + options.draft * cost.pass_us + 2 * backend.admission_us();
    const double limit = target_us > 0 ? target_us : target * usual;
    // While rows are few, a step may take a tenth longer than its target; costs lag a little too.
    const double slack = cost.free_rows == 0 ? 1.15 : 1.1;
    expect(longest <= std::max(slack * limit, least),
           name + "a pause of " + std::to_string(longest / usual) + " ordinary steps");
    expect(most_apart <= 16, name + "two prompts advance together");
    const double room = (limit - usual) / row_us;
    expect(mixed <= 60 + 2 * 2000 / std::max(room, 1.0), name + "prompts are not starved");
    expect(mixed > 5, name + "they are read in many steps");
}

struct BesideEvictions {
    double longest;   // pause, in ordinary steps
    double n_copied;  // states
};

// Of one who writes, while every 100 steps a prompt comes for which stored conversations leave the
// pool: to host memory of so many states with their pages, if there is any.
BesideEvictions beside_evictions(const Model& model, const Cost& cost, int64_t n_states) {
    const bool kept = n_states > 0;
    oj_engine_options options = small_engine(2, 100, 12);
    options.backend.max_rows = 512;
    options.min_prompt_rows = 1;
    options.draft = 0;
    CostedBackend backend(model.hparams.n_vocab, options.backend, cost);
    Runner runner(model, backend, options, [&] { return backend.now(); });
    const oj_state_format bytes = backend.state_format();
    const StateFormat format{1, static_cast<size_t>(bytes.page_bytes),
                             static_cast<size_t>(bytes.snapshot_bytes)};
    PrefixStore store(format, n_states * (bytes.snapshot_bytes + (64 << 10)), nullptr,
                      [](const std::string&) {});
    if (kept) runner.keep_in(store);
    uint64_t id = 0;
    const auto add = [&](int32_t n_tokens, int32_t max_tokens) {
        std::mt19937 random(static_cast<uint32_t>(++id));
        const Tokens tokens = random_tokens(random, n_tokens);
        oj_request request = plain_request(tokens, max_tokens);
        const int32_t boundary = n_tokens / 2;
        request.boundaries = &boundary;
        request.n_boundaries = 1;
        auto c = make_conversation(model, options, request);
        c->id = id;
        expect(runner.admit(*c) == Admission::admitted, "admitted");
        runner.add(std::move(c));
    };
    for (int i = 0; i < 8; ++i) {  // the pool is full of others
        add(700, 1);
        while (runner.step()) {
        }
    }
    add(100, 3000);
    const uint64_t writer = id;
    const int64_t evicted = runner.stats().evicted_pages;
    std::vector<double> ordinary;
    double longest = 0;
    int64_t last = 0;
    for (int step = 0; step < 2000; ++step) {
        if (step % 100 == 99 && runner.running().size() < 2) add(200, 1);
        runner.step();
        for (const oj_event& event : runner.take_events()) {
            if (event.request != writer || event.kind != OJ_EVENT_TOKEN) continue;
            const auto pause = static_cast<double>(backend.now() - last);
            last = backend.now();
            if (step > 10 && step < 90) ordinary.push_back(pause);
            if (step > 90) longest = std::max(longest, pause);
        }
    }
    expect(runner.stats().evicted_pages > evicted + 20, "others have to go");
    expect(store.n_prefixes() >= std::min<int64_t>(20, n_states / 2), "and are kept");
    std::sort(ordinary.begin(), ordinary.end());
    return {longest / ordinary[ordinary.size() / 2],
            static_cast<double>(backend.state_bytes_copied) /
                static_cast<double>(bytes.snapshot_bytes)};
}

// A state takes one and a half steps to copy, its pages some more.
void check_nobody_waits_for_evictions(const Model& model, const Cost& cost) {
    const BesideEvictions kept = beside_evictions(model, cost, 1000);
    const double dropped = beside_evictions(model, cost, 0).longest;
    const std::string name = std::string(cost.name) + ": ";
    expect(kept.longest <= dropped + 0.25, name + std::to_string(kept.longest) +
                                               " ordinary steps, and " + std::to_string(dropped) +
                                               " where nothing is copied");
    // Stores too small for all that could be copied ahead: still each state once.
    for (const int64_t n_states : {1, 2, 4}) {
        const double n_copied = beside_evictions(model, cost, n_states).n_copied;
        expect(n_copied <= kept.n_copied + 1, name + std::to_string(n_copied) +
                                                  " states copied, and " +
                                                  std::to_string(kept.n_copied));
    }
}

}  // namespace
}  // namespace oj::test

int main() {
    using namespace oj::test;
    check_shares();
    check_costs();
    check_first_row_is_dear();
    check_draft_costs();
    for (const Cost& cost : {Cost{"a small model on a CPU", 200, 200, 0.05, 80, 0},
                             Cost{"rows cost nearly a step", 100, 400, 0, 50, 0},
                             Cost{"a large model on a GPU", 17000, 150, 0.01, 900, 12},
                             Cost{"rows are free", 20000, 1, 0, 1000, 0}}) {
        check_nobody_stalls(*micro(), cost, 2.5f, 0);
        check_nobody_stalls(*micro(), cost, 1.5f, 0);
        check_nobody_stalls(*micro(), cost, 2.5f, static_cast<int32_t>(4 * cost.step_us));
        check_nobody_waits_for_evictions(*micro(), cost);
    }
    return report();
}
