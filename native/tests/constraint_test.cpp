// Masks, forced tokens and the thinking budget in the engine, on a backend that is no model. The
// matcher here is a rule over hashes of what was said, so that every answer can be checked token by
// token.

#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "engine/prefix_index.h"
#include "model/error.h"
#include "service.h"

namespace oj::test {
namespace {

const int32_t kVocab = micro()->hparams.n_vocab;

// ---------------------------------------------------------------- a rule instead of a grammar

uint64_t hash_of(const Tokens& said) {
    uint64_t hash = 1 << 9;  // nothing is forced at the start: the harder case
    for (int32_t token : said)
        hash = hash_prefix(hash, token);
    return hash;
}

bool allows(const Tokens& said, int32_t id) {
    const uint64_t hash = hash_of(said);
    return (hash_prefix(hash, id) >> 7) % 2 == 0 || id == static_cast<int32_t>(hash % 5);
}

Tokens forced(const Tokens& said) {
    const uint64_t hash = hash_of(said) >> 9;
    if (hash % 4 > 0) return {};
    Tokens tokens;
    for (uint64_t i = 0; i <= hash % 3; ++i)
        tokens.push_back(static_cast<int32_t>((hash >> i) % 6));
    return tokens;
}

std::vector<uint32_t> mask_of(const Tokens& said) {
    std::vector<uint32_t> mask((static_cast<size_t>(kVocab) + 31) / 32);
    for (int32_t id = 0; id < kVocab; ++id)
        mask[static_cast<size_t>(id / 32)] |= static_cast<uint32_t>(allows(said, id)) << (id % 32);
    return mask;
}

// Where a token was neither forced nor allowed, its index; -1 if nowhere.
int32_t first_wrong(const Tokens& said) {
    Tokens before, due;
    for (size_t i = 0; i < said.size(); ++i) {
        if (due.empty()) {
            due = forced(before);
            std::reverse(due.begin(), due.end());
        }
        const bool right = due.empty() ? allows(before, said[i]) : due.back() == said[i];
        if (!right) return static_cast<int32_t>(i);
        before.push_back(said[i]);
        if (due.empty()) continue;
        due.pop_back();
        if (due.empty() && i + 1 < said.size()) {  // the token behind forced ones is masked
            if (!allows(before, said[i + 1])) return static_cast<int32_t>(i + 1);
            before.push_back(said[++i]);
        }
    }
    return -1;
}

// ---------------------------------------------------------------- a service with a mask thread

struct Ask {
    Tokens tokens;
    int32_t max_tokens = 24;
    float temperature = 0;
    bool coupled = true;
    uint64_t seed = 5;
    int32_t draft = -1;
    int32_t constrained = 1;
    int32_t after = -1;
    int64_t deadline_us = 0;
    const uint32_t* allowed = nullptr;
    oj_thinking thinking = {};
};

oj_request request_of(const Ask& ask) {
    oj_request r = plain_request(ask.tokens, ask.max_tokens);
    r.deadline_us = ask.deadline_us;
    r.sampling.temperature = ask.temperature;
    r.sampling.seed = ask.seed;
    r.sampling.coupled = ask.coupled;
    r.draft = ask.draft;
    r.constrained = ask.constrained;
    r.constrain_after = ask.after;
    r.allowed = ask.allowed;
    r.thinking = ask.thinking;
    return r;
}

Answer answer_to(Service& service, const Ask& ask) {
    return service.wait(service.submit(request_of(ask)));
}

// With a thread that makes masks.
class MaskedService : public Service {
public:
    explicit MaskedService(const oj_engine_options& options) : Service(options) {
        masks_ = std::thread([this] { answer_masks(); });
    }

    ~MaskedService() {
        engine->stop();
        masks_.join();
    }

private:
    void answer_masks() {
        std::map<uint64_t, Tokens> said;
        std::mt19937 random(1);
        for (;;) {
            oj_mask_request asked = {};
            const int32_t found = engine->poll_masks(&asked, 100);
            if (found < 0) return;
            if (found == 0) continue;
            if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            answer(asked, &said[asked.request]);
        }
    }

    void answer(const oj_mask_request& asked, Tokens* said) {
        said->insert(said->end(), asked.tokens, asked.tokens + asked.n_tokens);
        const Tokens due = forced(*said);
        said->insert(said->end(), due.begin(), due.end());
        Tokens ahead = *said;
        std::vector<uint32_t> masks = mask_of(ahead);
        int32_t n_masks = 1;
        for (int32_t i = 0; due.empty() && i < asked.n_drafts; ++i) {
            if (!allows(ahead, asked.drafts[i])) break;
            ahead.push_back(asked.drafts[i]);
            if (!forced(ahead).empty()) break;
            const std::vector<uint32_t> mask = mask_of(ahead);
            masks.insert(masks.end(), mask.begin(), mask.end());
            ++n_masks;
        }
        engine->set_masks(asked.request, asked.position, masks.data(), n_masks, due.data(),
                          static_cast<int32_t>(due.size()));
        engine->set_masks(asked.request, asked.position - 1, masks.data(), 1, due.data(), 0);
        engine->set_masks(~asked.request, asked.position, masks.data(), 1, due.data(), 0);
    }

    std::thread masks_;
};

Tokens from(const Tokens& tokens, size_t at) {
    return at >= tokens.size()
               ? Tokens()
               : Tokens(tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.end());
}

// ---------------------------------------------------------------- tests

// Constrained and free conversations in one engine, in a pool that is too small for all: every
// answer keeps the rule and is what the request gets alone and without drafts.
void check_company(uint32_t seed) {
    std::mt19937 random(seed);
    oj_engine_options options = small_engine(4, 14, 6);
    options.context = 6 * kPageSize;
    MaskedService service(options);
    std::vector<std::pair<uint64_t, Ask>> asked;
    for (int i = 0; i < 12; ++i) {
        Ask ask;
        ask.tokens = random_tokens(random, static_cast<int32_t>(1 + random() % 200));
        ask.max_tokens = static_cast<int32_t>(1 + random() % 150);
        ask.temperature = random() % 2 ? 0.0f : 1.0f;
        ask.draft = static_cast<int32_t>(random() % 6) - 1;
        ask.constrained = random() % 3 > 0;
        ask.after = random() % 2 ? -1 : static_cast<int32_t>(random() % 6);
        asked.emplace_back(service.submit(request_of(ask)), ask);
    }
    for (auto& [id, ask] : asked) {
        const Answer answer = service.wait(id);
        expect(answer.finish == OJ_FINISH_LENGTH, "it ends by its length");
        if (ask.constrained) {
            const auto start =
                ask.after < 0
                    ? answer.tokens.begin()
                    : std::find(answer.tokens.begin(), answer.tokens.end(), ask.after) + 1;
            const bool begins = ask.after < 0 || start <= answer.tokens.end();
            if (begins) {
                const auto at = static_cast<size_t>(start - answer.tokens.begin());
                expect(first_wrong(from(answer.tokens, at)) < 0, "every token keeps the rule");
            }
        }
        ask.draft = 0;
        MaskedService alone(small_engine(1, 40, 6));
        expect(answer_to(alone, ask).tokens == answer.tokens,
               "alone and in company, seed " + std::to_string(seed));
    }
}

// Drafts with masks leave the distribution as it is: two samples of the third token, with and
// without drafts, by the second one.
void check_distribution() {
    constexpr int kRequests = 3000;
    std::map<Tokens, double> counts[2];
    for (int32_t drafts : {0, 1}) {
        MaskedService service(small_engine(4, 64, 6));
        std::vector<uint64_t> ids;
        for (int i = 0; i < kRequests; ++i) {
            Ask ask;
            ask.tokens = Tokens{2, 3, 1, 4};
            ask.max_tokens = 5;
            ask.temperature = 1;
            ask.coupled = false;
            ask.seed = static_cast<uint64_t>(i) * 2 + static_cast<uint64_t>(drafts);
            ask.draft = drafts * 2;
            ids.push_back(service.submit(request_of(ask)));
            if (ids.size() < 32 && i + 1 < kRequests) continue;
            for (uint64_t id : ids) {
                const Answer& answer = service.wait(id);
                expect(first_wrong(answer.tokens) < 0, "sampled tokens keep the rule");
                ++counts[drafts][Tokens(answer.tokens.begin(), answer.tokens.begin() + 3)];
            }
            ids.clear();
        }
    }
    double distance = 0;
    size_t n_cells = 0;
    for (const auto& [tokens, count] : counts[0]) {
        const double other = counts[1][tokens];
        if (count + other < 20) continue;
        distance += (count - other) * (count - other) / (count + other);
        ++n_cells;
    }
    const auto n = static_cast<double>(n_cells);
    expect(n_cells >= 4, "there is something to compare");
    expect(distance < n + 5 * std::sqrt(2 * n),
           "drafts under masks change no distribution: " + std::to_string(distance) + " for " +
               std::to_string(n_cells));
}

void check_budget() {
    const Tokens closing = {1, 7, 2};
    for (int32_t budget : {0, 1, 3, 10}) {
        for (int32_t draft : {0, 4}) {
            MaskedService service(small_engine(1, 40, 6));
            Ask ask;
            ask.tokens = Tokens{3, 4, 5};
            ask.draft = draft;
            ask.constrained = 0;
            const Tokens free = answer_to(service, ask).tokens;
            ask.thinking = {6, 7, 1, budget, closing.data(), 3};
            const Tokens limited = answer_to(service, ask).tokens;
            const auto closed = std::find(free.begin(), free.end(), 7) - free.begin();
            if (closed <= budget) {
                expect(limited == free, "a budget that is not used up changes nothing");
                continue;
            }
            Tokens expected(free.begin(), free.begin() + budget);
            expected.insert(expected.end(), closing.begin(), closing.end());
            const Tokens start(limited.begin(), limited.begin() + budget + 3);
            expect(start == expected, "thinking is closed at the budget");
            expect(limited.size() == free.size(), "and the answer goes on behind it");

            ask.constrained = 1;
            ask.after = 7;
            const Tokens held = answer_to(service, ask).tokens;
            expect(Tokens(held.begin(), held.begin() + budget + 2) ==
                       Tokens(expected.begin(), expected.begin() + budget + 2),
                   "also before a constrained answer");
        }
    }
}

void check_allowed() {
    std::vector<uint32_t> allowed(mask_of({}).size());
    allowed[0] = 0b100100;
    MaskedService service(small_engine(1, 40, 6));
    Ask ask;
    ask.tokens = Tokens{3, 4, 5};
    ask.constrained = 0;
    ask.allowed = allowed.data();
    ask.temperature = 1;
    for (int32_t token : answer_to(service, ask).tokens)
        expect(token == 2 || token == 5, "only what is allowed");
}

void check_ends() {
    oj_engine_options options = small_engine(2, 40, 6);
    options.mask_timeout_ms = 30;
    Service deaf(options);
    Ask ask;
    ask.tokens = Tokens{1, 2, 3};
    const uint64_t waiting = deaf.submit(request_of(ask));
    Ask free = ask;
    free.constrained = 0;
    expect(answer_to(deaf, free).finish == OJ_FINISH_LENGTH, "others go on");
    expect(deaf.wait(waiting).finish == OJ_FINISH_CONSTRAINT, "masks that do not come end it");

    options.mask_timeout_ms = 20000;
    Service slow(options);
    ask.deadline_us = 30000;
    expect(answer_to(slow, ask).finish == OJ_FINISH_DEADLINE, "a deadline while waiting for masks");
    ask.deadline_us = 0;
    const uint64_t cancelled = slow.submit(request_of(ask));
    slow.engine->cancel(cancelled);
    expect(slow.wait(cancelled).finish == OJ_FINISH_CANCEL, "a cancel while waiting for masks");

    const uint64_t failed = slow.submit(request_of(ask));
    oj_mask_request asked = {};
    while (slow.engine->poll_masks(&asked, 20000) == 1 && asked.request != failed) {
    }
    slow.engine->set_masks(failed, asked.position, nullptr, 0, nullptr, 0);
    expect(slow.wait(failed).finish == OJ_FINISH_CONSTRAINT, "masks that cannot be made end it");

    const uint32_t nothing[64] = {};
    try {
        slow.engine->set_masks(failed, 0, nothing, 1, nullptr, 0);
        expect(false, "an empty mask is refused");
    } catch (const Error& error) {
        expect(error.code() == OJ_ERR_INVALID, "an empty mask is invalid");
    }
    slow.submit(request_of(ask));
    slow.engine->stop();  // must not hang
}

}  // namespace
}  // namespace oj::test

int main() {
    using namespace oj::test;
    for (uint32_t seed = 1; seed <= 4; ++seed)
        check_company(seed);
    check_distribution();
    check_budget();
    check_allowed();
    check_ends();
    return report();
}
