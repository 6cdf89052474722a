// Conversations beyond the backend's memory: files and what may happen to them, the store's
// budgets, and the engine's answers after spilling, restoring and restarting.

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "service.h"

namespace oj::test {
namespace {

std::vector<std::string> files_of(const std::string& path) {
    std::vector<std::string> names;
    DIR* folder = opendir(path.c_str());
    while (const dirent* item = folder ? readdir(folder) : nullptr) {
        if (item->d_name[0] != '.') names.emplace_back(item->d_name);
    }
    if (folder) closedir(folder);
    return names;
}

class Folder {
public:
    Folder() {
        char name[] = "/tmp/openjet-store-XXXXXX";
        path = mkdtemp(name);
    }
    ~Folder() {
        for (const std::string& name : files_of(path))
            unlink((path + "/" + name).c_str());
        unlink((path + "/.openjet-lock").c_str());
        rmdir(path.c_str());
    }
    std::string path;
};

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

// ---------------------------------------------------------------- files

constexpr StateFormat kFormat{7, 24, 10};

StateBytes filled(size_t n, int value) {
    std::shared_ptr<uint8_t[]> bytes(new uint8_t[n]);
    std::fill_n(bytes.get(), n, static_cast<uint8_t>(value));
    return bytes;
}

SavedConversation conversation(int32_t n_tokens, int salt) {
    SavedConversation saved;
    for (int32_t i = 0; i < n_tokens; ++i)
        saved.tokens.push_back(i % 5 + salt);
    saved.states = {{3, true, filled(10, salt)}, {n_tokens, false, filled(10, salt + 1)}};
    for (int32_t i = 0; i < pages_for(n_tokens); ++i)
        saved.pages.push_back(filled(24, salt + i));
    return saved;
}

bool same(const SavedConversation& a, const SavedConversation& b) {
    const auto equal = [](const StateBytes& x, const StateBytes& y, size_t n) {
        return std::equal(x.get(), x.get() + n, y.get());
    };
    bool all = a.tokens == b.tokens && a.states.size() == b.states.size() &&
               a.pages.size() == b.pages.size();
    for (size_t i = 0; all && i < a.states.size(); ++i) {
        all = a.states[i].length == b.states[i].length &&
              a.states[i].shared == b.states[i].shared &&
              equal(a.states[i].bytes, b.states[i].bytes, kFormat.state_bytes);
    }
    for (size_t i = 0; all && i < a.pages.size(); ++i)
        all = equal(a.pages[i], b.pages[i], kFormat.page_bytes);
    return all;
}

// Every flipped bit and every shorter or longer file is refused: with an error, without reading
// past anything.
void check_damaged_files() {
    const Folder folder;
    const std::string path = folder.path + "/file";
    const SavedConversation saved = conversation(70, 1);
    write_state_file(path, kFormat, saved);
    const std::string good = read_file(path);
    expect(good.size() == state_file_bytes(kFormat, saved), "the size is known before");
    expect(same(StateFile(path, kFormat).read_all(), saved), "what was written is read");
    const auto refused = [&](const std::string& bytes) {
        write_file(path, bytes);
        try {
            StateFile(path, kFormat).read_all();
            return false;
        } catch (const Error& error) {
            return std::string(error.what()).find(path) != std::string::npos;
        }
    };
    for (size_t i = 0; i < good.size(); ++i) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
        expect(refused(bad), "byte " + std::to_string(i) + " flipped");
        expect(refused(good.substr(0, i)), "cut to " + std::to_string(i) + " bytes");
    }
    expect(refused(good + "x"), "a byte too many");
    write_file(path, good);
    expect_error(OJ_ERR_FORMAT, "another model", [&] { StateFile(path, {8, 24, 10}); });
    expect_error(OJ_ERR_FORMAT, "another model", [&] { StateFile(path, {7, 25, 10}); });
    std::string future = good;
    future[8] = 2;
    write_file(path, future);
    expect_error(OJ_ERR_FORMAT, "format version 2; this build reads 1",
                 [&] { StateFile(path, kFormat); });
    expect_error(OJ_ERR_IO, "No such file", [&] { StateFile(path + "x", kFormat); });
    expect_error(OJ_ERR_FORMAT, "is not a file", [&] { StateFile(folder.path, kFormat); });
    expect(symlink(path.c_str(), (folder.path + "/link").c_str()) == 0, "a link");
    expect_error(OJ_ERR_IO, "symbolic links", [&] { StateFile(folder.path + "/link", kFormat); });
}

void check_directory() {
    const Folder folder;
    const SavedConversation saved = conversation(70, 1);
    const uint64_t bytes = state_file_bytes(kFormat, saved);
    write_file(folder.path + "/old.openjet-tmp", "left behind");
    StateDirectory directory(folder.path, 3 * bytes + 10, kFormat);
    expect(files_of(folder.path).empty(), "half-written files are removed");
    expect_error(OJ_ERR_INVALID, "in use by another engine",
                 [&] { StateDirectory(folder.path, 1, kFormat); });
    expect_error(OJ_ERR_INVALID, "cannot be made",
                 [&] { StateDirectory(folder.path + "/a/b", 1, kFormat); });
    expect(symlink("/etc/passwd", (folder.path + "/link").c_str()) == 0, "a link");
    for (const char* name : {"", ".", "..", "../x", "a/b", "/x", "a\\b", ".x", "a\nb", "link",
                             "conversation-1.openjet", "x.openjet-tmp"})
        expect_error(OJ_ERR_INVALID, "filename", [&] { directory.check_foreign_name(name); });
    expect_error(OJ_ERR_INVALID, "200 bytes",
                 [&] { directory.check_foreign_name(std::string(201, 'x')); });
    directory.check_foreign_name("my chat.bin");
    unlink((folder.path + "/link").c_str());

    // The least recently used of its own files make room; others' never do.
    directory.write("mine.bin", saved);
    std::vector<std::string> names;
    for (uint64_t id : {1, 2, 3}) {
        names.push_back(StateDirectory::own_name(id));
        const std::vector<std::string> removed = directory.write(names.back(), saved);
        expect(removed.empty() || (id == 3 && removed == std::vector<std::string>{names[0]}),
               "the oldest makes room");
        usleep(20000);  // file times are coarse
    }
    directory.touch(names[1]);
    expect(directory.own_files() == std::vector<std::string>({names[2], names[1]}), "by use");
    expect_error(OJ_ERR_MEMORY, "raise state_bytes",
                 [&] { directory.write("large", conversation(1000, 1)); });
    expect(files_of(folder.path).size() == 3, "nothing is removed in vain");
}

// A child that outlives its parent does not keep the folder.
void check_forked_child() {
    const Folder folder;
    int ready[2], until[2];
    expect(pipe(ready) == 0 && pipe(until) == 0, "pipes");
    const pid_t parent = fork();
    if (parent == 0) {
        const StateDirectory directory(folder.path, 1, kFormat);
        if (fork() > 0) _exit(0);
        char byte = 0;
        close(until[1]);
        const bool is_told = write(ready[1], &byte, 1) == 1 && read(until[0], &byte, 1) == 0;
        _exit(is_told ? 0 : 1);
    }
    char byte = 1;
    expect(read(ready[0], &byte, 1) == 1, "there is a child");
    expect(waitpid(parent, nullptr, 0) == parent, "whose parent has ended");
    try {
        StateDirectory(folder.path, 1, kFormat);
    } catch (const Error& error) {
        expect(false, error.what());
    }
    for (int end : {ready[0], ready[1], until[0], until[1]})
        close(end);
}

// A disk that is full while a file is written: no file, and no other one lost.
void check_full_disk() {
    const Folder folder;
    const std::string path = folder.path + "/file";
    write_state_file(path, kFormat, conversation(10, 1));
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before = {};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{400, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    expect_error(OJ_ERR_MEMORY, "make room on its disk",
                 [&] { write_state_file(path, kFormat, conversation(200, 1)); });
    setrlimit(RLIMIT_FSIZE, &before);
    expect(same(StateFile(path, kFormat).read_all(), conversation(10, 1)), "the old file stays");
    expect(files_of(folder.path).size() == 1, "nothing half-written is left");
}

// ---------------------------------------------------------------- the store

// Counts what is taken from the backend; the bytes say what they are of.
class Source : public PrefixSource {
public:
    explicit Source(int salt = 0) : salt_(salt) {}
    void export_state(uint8_t* out) override {
        ++n_states;
        std::fill_n(out, kFormat.state_bytes, static_cast<uint8_t>(100 + salt_));
    }
    void export_page(size_t i, uint8_t* out) override {
        ++n_pages;
        std::fill_n(out, kFormat.page_bytes, static_cast<uint8_t>(i));
    }
    int n_states = 0, n_pages = 0;

private:
    const int salt_;
};

Tokens text(int32_t n, int32_t salt = 0) {
    Tokens tokens;
    for (int32_t i = 0; i < n; ++i)
        tokens.push_back(i < 64 ? i : i + salt);
    return tokens;
}

PrefixStore::Fetch wait_for(PrefixStore& store, const Tokens& tokens, int32_t length,
                            SpilledPrefix* out) {
    const std::vector<uint64_t> hashes = hash_prefixes(tokens);
    for (int i = 0; i < 5000; ++i) {
        if (store.longest(tokens, hashes, length) < length) return PrefixStore::Fetch::lost;
        const PrefixStore::Fetch fetch = store.fetch(tokens, hashes, length, out);
        if (fetch != PrefixStore::Fetch::later) return fetch;
        usleep(1000);
    }
    return PrefixStore::Fetch::later;
}

void check_store_in_memory() {
    const Tokens a = text(200), b = text(200, 1000);
    const int64_t page = kFormat.page_bytes, state = kFormat.state_bytes;
    std::vector<std::string> notes;
    PrefixStore store(kFormat, 6 * page + 3 * state, nullptr,
                      [&](const std::string& line) { notes.push_back(line); });
    Source source;
    store.put(a, false, source);
    expect(source.n_pages == 4 && source.n_states == 1, "everything is taken");
    store.put({a.begin(), a.begin() + 100}, false, source);
    expect(source.n_pages == 4 && source.n_states == 2, "pages are there already");
    store.put(a, false, source);
    expect(source.n_states == 2, "kept once");
    expect(store.host_bytes() == 4 * page + 2 * state, "bytes add up");
    expect(store.longest(a, hash_prefixes(a), 199) == 100, "within the limit");
    expect(store.longest(b, hash_prefixes(b), 200) == 0, "other tokens");
    Tokens forged = a;
    ++forged[120];
    expect(store.longest(forged, hash_prefixes(a), 200) == 100, "a hash alone is no match");

    store.put(b, false, source);
    expect(source.n_pages == 4 + 3, "the common page is shared");
    expect(store.longest(a, hash_prefixes(a), 200) == 0, "the least recently used makes room");
    SpilledPrefix prefix;
    expect(wait_for(store, b, 200, &prefix) == PrefixStore::Fetch::ready, "at hand");
    expect(prefix.pages.size() == 4 && prefix.pages[3][0] == 3 && prefix.state[0] == 100, "bytes");
    expect(store.erase(b, hash_prefixes(b)) == 200 && store.n_prefixes() == 0, "erased");
    prefix = {};
    expect(store.host_bytes() == 0, "nothing is left behind");
    store.put(text(1000), false, source);
    expect(store.n_prefixes() == 0 && store.host_bytes() == 0, "larger than the budget");
    expect(notes.empty(), "nothing to complain about");
}

// At no time is there more in memory than the budget, and without room nothing is taken.
void check_store_memory_is_bounded() {
    const int64_t page = kFormat.page_bytes, state = kFormat.state_bytes;
    const int64_t budget = 6 * page + 3 * state;
    PrefixStore store(kFormat, budget, nullptr, [](const std::string&) {});
    class Watching : public Source {
    public:
        Watching(const PrefixStore& store, int64_t budget) : store_(store), budget_(budget) {}
        void export_state(uint8_t* out) override { watch(kFormat.state_bytes, out); }
        void export_page(size_t, uint8_t* out) override { watch(kFormat.page_bytes, out); }

    private:
        void watch(size_t n, uint8_t* out) const {
            expect(store_.host_bytes() + static_cast<int64_t>(n) <= budget_, "within the budget");
            std::fill_n(out, n, uint8_t{1});
        }
        const PrefixStore& store_;
        const int64_t budget_;
    } watching(store, budget);
    for (int32_t salt : {0, 1000, 2000})
        store.put(text(200, salt), false, watching);
    for (int32_t length : {220, 250, 300, 340, 380}) {
        const Tokens grown = text(length, 2000);
        store.put(grown, false, watching);
        expect(store.longest(grown, hash_prefixes(grown), length) == length, "it grows on");
    }

    const Folder folder;
    const StateFormat large{7, size_t{1} << 30, 10};
    std::vector<std::string> notes;
    PrefixStore with_files(large, 0, std::make_unique<StateDirectory>(folder.path, 1 << 20, large),
                           [&](const std::string& line) { notes.push_back(line); });
    Source source;
    with_files.put(text(200), false, source);
    expect(source.n_states == 0 && source.n_pages == 0, "nothing is taken");
    expect(notes.size() == 1 && notes[0].find("raise host_cache") != std::string::npos, "said");
}

// A conversation keeps its longest states, and the start that it shares with others.
void check_states_of_a_conversation() {
    PrefixStore store(kFormat, 1 << 20, nullptr, [](const std::string&) {});
    Source source;
    const Tokens all = text(640);
    for (int32_t length = 50; length <= 600; length += 50)
        store.put({all.begin(), all.begin() + length}, length == 50, source);
    expect(store.n_prefixes() == 6, "six states");
    expect(store.longest(all, hash_prefixes(all), 349) == 50, "the shared start and the longest");
    expect(store.longest(all, hash_prefixes(all), 640) == 600, "the longest");
    expect(source.n_pages < 12 + 10, "pages are taken once, partial ones again");
}

void check_store_with_files() {
    const Folder folder;
    std::vector<std::string> notes;
    const auto note = [&](const std::string& line) { notes.push_back(line); };
    const auto open = [&](int64_t host_bytes) {
        return std::make_unique<PrefixStore>(
            kFormat, host_bytes, std::make_unique<StateDirectory>(folder.path, 1 << 20, kFormat),
            note);
    };
    const Tokens a = text(200), b = text(300, 1000);
    Source source;
    {
        const auto store = open(0);
        store->put(a, true, source);
        for (int i = 0; i < 5000 && store->host_bytes() > 0; ++i) {
            usleep(1000);
            store->longest(a, hash_prefixes(a), 200);
        }
        expect(store->host_bytes() == 0 && store->n_prefixes() == 1, "it went to a file");
        store->put(a, true, source);
        expect(source.n_states == 1, "and is known to be there");
        SpilledPrefix prefix;
        expect(wait_for(*store, a, 200, &prefix) == PrefixStore::Fetch::ready, "it comes back");
        expect(prefix.shared && prefix.pages.size() == 4 && prefix.pages[2][23] == 2, "as it was");
    }
    {
        const auto store = open(1 << 20);
        store->put(b, false, source);
        expect(files_of(folder.path).size() == 1, "in memory only");
        store->flush();
    }
    expect(files_of(folder.path).size() == 2, "flushed");
    {
        const auto store = open(1 << 20);
        expect(store->n_prefixes() == 2 && store->host_bytes() == 0, "known again");
        SpilledPrefix prefix;
        expect(wait_for(*store, b, 300, &prefix) == PrefixStore::Fetch::ready, "b comes back");
        expect(store->erase(b, hash_prefixes(b)) == 300, "erased");
        expect(files_of(folder.path).size() == 1, "its file too");
        expect(store->erase(a, hash_prefixes(a)) == 0, "not what others start with too");
    }
    expect(notes.empty(), "no complaints so far");
    const std::string name = folder.path + "/" + files_of(folder.path)[0];
    const std::string good = read_file(name);
    std::string bad = good;
    bad.back() = static_cast<char>(~bad.back());  // in the last page, which is read late
    write_file(name, bad);
    {
        const auto store = open(0);
        expect(store->n_prefixes() == 1, "its index is in order");
        SpilledPrefix prefix;
        expect(wait_for(*store, a, 200, &prefix) == PrefixStore::Fetch::lost, "its bytes are not");
        expect(store->n_prefixes() == 0 && notes.size() == 1, "one line, and it is forgotten");
    }
    write_file(name, good.substr(0, good.size() / 2));
    expect(open(0)->n_prefixes() == 0 && notes.size() == 2, "cut: one line");
    expect(notes[1].find(name) != std::string::npos && notes[1].find("ignored") == 0, notes[1]);
}

// A directory without room: what memory has no room for is dropped, with a line.
void check_store_without_room() {
    const Folder folder;
    std::vector<std::string> notes;
    for (bool closing : {false, true}) {
        PrefixStore store(kFormat, 0, std::make_unique<StateDirectory>(folder.path, 10, kFormat),
                          [&](const std::string& line) { notes.push_back(line); });
        if (closing) store.finish_thread();
        Source source;
        store.put(text(200), false, source);
        store.put(text(200, 1000), false, source);
        store.flush();
        expect(store.n_prefixes() == 0 && store.host_bytes() == 0, "nothing is kept");
    }
    expect(!notes.empty() && notes[0].find("a conversation is not kept: no room") == 0, "said");
    expect(files_of(folder.path).empty(), "no files");
}

// What was used last is written first, and is what stays where there is no room for all; file times
// say what was used last nevertheless.
void check_order_of_closing(int64_t host_bytes) {
    SavedConversation sizes;
    sizes.tokens = text(200);
    sizes.states.resize(1);
    const uint64_t bytes = state_file_bytes(kFormat, sizes);
    const Folder folder;
    const auto name = [](const Tokens& tokens) {
        return StateDirectory::own_name(hash_prefixes(tokens).back());
    };
    const Tokens a = text(200), b = text(200, 1000), c = text(200, 2000), d = text(200, 3000);
    std::vector<std::string> notes;
    PrefixStore store(kFormat, host_bytes,
                      std::make_unique<StateDirectory>(folder.path, 3 * bytes, kFormat),
                      [&](const std::string& line) { notes.push_back(line); });
    Source source;
    if (host_bytes > 0) {
        store.put(a, false, source);
        store.put(b, false, source);
    }
    store.finish_thread();
    store.put(d, false, source);
    store.put(c, false, source);
    if (host_bytes == 0) {
        store.put(b, false, source);
        store.put(a, false, source);
    }
    store.flush();
    expect(store.directory()->own_files() == std::vector<std::string>({name(b), name(c), name(d)}),
           "the least recently used first");
    expect(notes.size() == 1 && notes[0].find("raise state_bytes") != std::string::npos,
           "it came last, and made no other go");
}

// One conversation is one file, however often it is restored; a file that is gone is nothing.
void check_files_are_kept_once() {
    const Folder folder;
    PrefixStore store(kFormat, 0, std::make_unique<StateDirectory>(folder.path, 1 << 20, kFormat),
                      [](const std::string&) {});
    store.finish_thread();
    for (int i = 0; i < 3; ++i)
        store.add(conversation(70, 1));
    expect(store.n_prefixes() == 2 && files_of(folder.path).size() == 1, "restored again: once");
    store.forget_files(files_of(folder.path));
    expect(store.n_prefixes() == 0, "not counted on any more");
}

// ---------------------------------------------------------------- the engine

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

}  // namespace
}  // namespace oj::test

// An argument is the number of random schedules.
int main(int argc, char** argv) {
    using namespace oj::test;
    check_damaged_files();
    check_directory();
    check_forked_child();
    check_full_disk();
    check_store_in_memory();
    check_store_memory_is_bounded();
    check_states_of_a_conversation();
    check_store_with_files();
    check_store_without_room();
    check_files_are_kept_once();
    check_order_of_closing(0);
    check_order_of_closing(1 << 20);
    check_restart();
    const int n_schedules = argc > 1 ? std::atoi(argv[1]) : 20;
    for (int seed = 0; seed < n_schedules; ++seed)
        check_random_schedule(static_cast<uint32_t>(seed));
    return report();
}
