// The engine's answers after conversations were spilled, restored, and kept over a restart.

#include <sys/stat.h>

#include "service.h"
#include "state_files.h"

namespace oj::test {
namespace {

uint64_t submit(Service& service, const Tokens& tokens, int32_t draft) {
    oj_request request = plain_request(tokens, 10);
    const auto boundary = static_cast<int32_t>(tokens.size()) / 2;
    request.boundaries = &boundary;
    request.n_boundaries = 1;
    request.draft = draft;
    return service.submit(request);
}

const Answer& wait(Service& service, uint64_t id) {
    const Answer& answer = service.wait(id);
    expect(answer.finish == OJ_FINISH_LENGTH, "a request ends as it should");
    return answer;
}

const Answer& ask(Service& service, const Tokens& tokens) {
    return wait(service, submit(service, tokens, -1));
}

Answer alone(const Tokens& tokens) {
    static std::map<Tokens, Answer> known;
    const auto found = known.find(tokens);
    if (found != known.end()) return found->second;
    Service service(small_engine(1, 40, 0));
    return known[tokens] = ask(service, tokens);
}

// Conversations over one shared start, with too little memory of every kind, engines that come and
// go, and files that get damaged in between: every answer is what the request gets alone. The hash
// backend checks each KV position that a row reads.
void check_random_schedule(uint32_t seed) {
    std::mt19937 random(seed);
    const Folder folder;
    const bool on_disk = random() % 3 > 0;
    const Tokens start = random_tokens(random, 130);
    std::vector<Tokens> histories{start};
    const auto n_pages = static_cast<int32_t>(12 + random() % 16);
    for (int life = 0; life < 3; ++life) {
        oj_engine_options options = small_engine(static_cast<int32_t>(1 + random() % 4), n_pages,
                                                 static_cast<int32_t>(1 + random() % 5));
        options.context = 600;
        const int64_t budgets[] = {0, 20000, 100000, 10000000};
        options.host_bytes = budgets[random() % 4];
        options.state_dir = on_disk ? folder.path.c_str() : nullptr;
        options.state_bytes = budgets[1 + random() % 3];
        Service service(options);
        for (int round = 0; round < 4; ++round) {
            std::vector<std::pair<uint64_t, Tokens>> asked;
            for (int i = 0; i < 3; ++i) {
                Tokens prompt = histories[random() % histories.size()];
                if (prompt.size() > 500) prompt = start;
                const auto more = random_tokens(random, static_cast<int32_t>(1 + random() % 70));
                prompt.insert(prompt.end(), more.begin(), more.end());
                const auto draft = static_cast<int32_t>(random() % 4) - 1;
                asked.emplace_back(submit(service, prompt, draft), prompt);
            }
            for (auto& [id, prompt] : asked) {
                const Answer& answer = wait(service, id);
                expect(same(answer, alone(prompt)),
                       "the same answer, seed " + std::to_string(seed));
                prompt.insert(prompt.end(), answer.tokens.begin(), answer.tokens.end());
                histories.push_back(prompt);
            }
            if (random() % 4 == 0) service.engine->erase(histories[random() % histories.size()]);
        }
        service.check_idle();
        service.engine->stop();
        if (random() % 3 > 0) continue;
        for (const std::string& name : files_of(folder.path)) {
            const std::string path = folder.path + "/" + name;
            std::string bytes = read_file(path);
            bytes[random() % bytes.size()] ^= 4;
            write_file(path, bytes.substr(0, random() % 2 ? bytes.size() : bytes.size() / 2));
        }
    }
}

void check_restart() {
    const Folder folder;
    oj_engine_options options = small_engine(2, 64, 8);
    options.state_dir = folder.path.c_str();
    options.state_bytes = 1 << 24;
    std::mt19937 random(1);
    Tokens tokens = random_tokens(random, 300);
    {
        Service service(options);
        const Answer& answer = ask(service, tokens);
        tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
    }  // stopped right behind the last event
    tokens.push_back(3);
    Service service(options);
    const Answer& answer = ask(service, tokens);
    expect(answer.stats.cached_tokens == 309,
           "the live end survives: " + std::to_string(answer.stats.cached_tokens));
    expect(same(answer, alone(tokens)), "the same answer");

    expect(service.engine->save(tokens, "mine").n_tokens == 311, "saved to its prompt's end");
    expect(service.engine->erase(tokens) == 311, "erased");
    tokens.push_back(4);
    expect(ask(service, tokens).stats.cached_tokens == 150, "but for what others may start with");
    service.engine->erase(tokens);
    Tokens restored;
    expect(service.engine->restore("mine", &restored).n_tokens == 311, "restored");
    expect(std::equal(restored.begin(), restored.end(), tokens.begin()), "its tokens");
    expect(ask(service, tokens).stats.cached_tokens == 311, "and goes on from there");
    expect_error(OJ_ERR_INVALID, "No such file", [&] { service.engine->restore("no", &restored); });
    expect_error(OJ_ERR_INVALID, "nothing is stored", [&] { service.engine->save({1, 2}, "x"); });
    expect_error(OJ_ERR_INVALID, "without folders",
                 [&] { service.engine->save(tokens, "../mine"); });
    const std::string blocked = folder.path + "/x.openjet-tmp";
    expect(mkdir(blocked.c_str(), 0700) == 0, "a folder where the file would be written");
    expect_error(OJ_ERR_INVALID, "cannot create", [&] { service.engine->save(tokens, "x"); });
    rmdir(blocked.c_str());
    service.engine->stop();
    expect_error(OJ_ERR_CLOSED, "stopped", [&] { service.engine->erase(tokens); });
}

// Saving what has left the pool takes nothing from those who are in it, and is whole even while the
// pool has no room for it.
void check_save_of_spilled() {
    const Folder folder;
    oj_engine_options options = small_engine(1, 12, 2);
    options.host_bytes = 1 << 24;
    options.state_dir = folder.path.c_str();
    options.state_bytes = 1 << 24;
    Service service(options);
    std::mt19937 random(1);
    Tokens tokens = random_tokens(random, 300);
    const Answer& answer = ask(service, tokens);
    tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
    ask(service, random_tokens(random, 650));
    const auto pages_used = [&] {
        const oj_engine_stats stats = service.engine->stats();
        return std::pair(stats.pages_cached, stats.evicted_pages);
    };
    const auto before = pages_used();
    expect(before.second > 0, "it had to leave");
    expect(service.engine->save(tokens, "mine").n_tokens == 309, "all of it is saved");
    service.engine->erase({1});  // statistics follow what was done before
    const auto after = pages_used();
    expect(after.second == before.second, "and nobody had to make room");
    service.engine->erase(tokens);
    Tokens restored;
    expect(service.engine->restore("mine", &restored).n_tokens == 309, "it comes back");
    tokens.push_back(3);
    const Answer& follow_up = ask(service, tokens);
    expect(follow_up.stats.cached_tokens == 309, "and goes on from there");
    expect(same(follow_up, alone(tokens)), "the same answer");
}

// Whoever is told that a conversation was restored can go on with it.
void check_restore_without_room() {
    const Folder folder;
    oj_engine_options options = small_engine(2, 64, 8);
    options.state_dir = folder.path.c_str();
    options.state_bytes = 1 << 24;
    std::mt19937 random(1);
    Tokens tokens = random_tokens(random, 300);
    {
        Service service(options);
        ask(service, tokens);
        service.engine->save(tokens, "mine");
    }
    tokens.push_back(3);
    Tokens restored;
    {
        Service service(options);
        service.engine->erase(tokens);
        service.engine->restore("mine", &restored);
        expect(ask(service, tokens).stats.cached_tokens == 300, "from a file of its own");
    }
    struct stat info = {};
    stat((folder.path + "/mine").c_str(), &info);
    for (const std::string& name : files_of(folder.path)) {
        if (name != "mine") unlink((folder.path + "/" + name).c_str());
    }
    options.state_bytes = info.st_size + 10;
    Service service(options);
    expect_error(OJ_ERR_MEMORY, "no room to keep mine",
                 [&] { service.engine->restore("mine", &restored); });
}

}  // namespace
}  // namespace oj::test

// An argument is the number of random schedules.
int main(int argc, char** argv) {
    using namespace oj::test;
    check_restart();
    check_save_of_spilled();
    check_restore_without_room();
    const int n_schedules = argc > 1 ? std::atoi(argv[1]) : 20;
    for (int seed = 0; seed < n_schedules; ++seed)
        check_random_schedule(static_cast<uint32_t>(seed));
    return report();
}
