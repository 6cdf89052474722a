// The store of conversations that have left the backend's memory: its budgets, its files, what is
// dropped first.

#include <new>

#include "engine/prefix_index.h"
#include "engine/prefix_store.h"
#include "expect.h"
#include "state_files.h"

namespace oj::test {
namespace {

using Tokens = std::vector<int32_t>;

// Counts what is taken from the backend; the bytes say what they are of.
class Source : public PrefixSource {
public:
    explicit Source(int salt = 0) : salt_(salt) {}
    void export_state(int64_t, int64_t n, uint8_t* out) override {
        ++n_states;
        std::fill_n(out, n, static_cast<uint8_t>(100 + salt_));
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
    expect(store.erase(b, hash_prefixes(b)).length == 200 && store.n_prefixes() == 0, "erased");
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
        void export_state(int64_t, int64_t n, uint8_t* out) override { watch(n, out); }
        void export_page(size_t, uint8_t* out) override { watch(kFormat.page_bytes, out); }

    private:
        void watch(size_t n, uint8_t* out) const {
            expect(store_.host_bytes() + store_.idle_bytes() <= budget_, "within the budget");
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

// In pieces: each call takes one, and what was taken is not taken again.
void check_taking_in_pieces() {
    const int64_t page = kFormat.page_bytes;
    const StateFormat large{7, kFormat.page_bytes, size_t{1} << 18};
    const auto once = [] { return false; };
    PrefixStore store(large, 1 << 23, nullptr, [](const std::string&) {});
    Source source;
    const Tokens a = text(200), b = text(200, 1000);
    int n_calls = 1;
    while (!store.put(a, true, source, once)) {
        ++n_calls;
        expect(source.n_pages + source.n_states == n_calls - 1, "one piece a call");
        expect(store.longest(a, hash_prefixes(a), 200) == 0, "not before it is whole");
    }
    expect(source.n_pages == 4 && source.n_states == 4 && n_calls == 8, "all of it, once");
    SpilledPrefix prefix;
    expect(wait_for(store, a, 200, &prefix) == PrefixStore::Fetch::ready, "kept");
    expect(prefix.shared && prefix.pages[3][0] == 3, "its pages");
    expect(std::all_of(&prefix.state[0], &prefix.state[1 << 18], [](int x) { return x == 100; }),
           "its state");
    const int64_t of_a = store.host_bytes();

    expect(!store.put(b, false, source, once) && store.host_bytes() == of_a + page, "one page");
    expect(!store.put(text(300, 2000), false, source, once), "another one begins");
    expect(store.host_bytes() == of_a + page, "and the first one's bytes are gone");
    expect(store.put(b, false, source), "in one go");
    expect(store.longest(b, hash_prefixes(b), 200) == 200, "kept");
    store.put(text(300, 2000), false, source, once);
    store.erase(a, hash_prefixes(a));
    store.erase(b, hash_prefixes(b));
    expect(store.host_bytes() == of_a, "what was begun is not left behind, but a shared start");
}

// What leaves the pool meanwhile is known already, and nothing of what was begun is lost.
void check_taking_goes_on() {
    const auto once = [] { return false; };
    PrefixStore store(kFormat, 1 << 20, nullptr, [](const std::string&) {});
    Source source;
    const Tokens a = text(200), b = text(300, 1000);
    store.put(a, false, source);
    source.n_pages = 0;
    int n_calls = 0;
    for (bool whole = false; !whole && n_calls < 20; ++n_calls) {
        whole = store.is_taking() ? store.take_more(false, source, once)
                                  : store.put(b, false, source, once);
        expect(store.put(a, false, source), "it is kept");
        expect(store.is_taking() == !whole, "the other one is still being taken");
    }
    expect(source.n_pages == 4 && n_calls == 5, "every page once, but for the common one");
    expect(store.longest(b, hash_prefixes(b), 300) == 300, "kept");
}

// Room is made for a piece, not for all at once, and memory is freed a piece at a time.
void check_room_in_pieces() {
    const int64_t page = kFormat.page_bytes, state = kFormat.state_bytes;
    const int64_t budget = 11 * page + 2 * state;
    const auto once = [] { return false; };
    PrefixStore store(kFormat, budget, nullptr, [](const std::string&) {});
    Source source;
    const Tokens a = text(200), b = text(200, 1000), c = text(600, 2000);
    store.put(a, false, source);
    store.put(b, false, source);
    expect(store.host_bytes() == 7 * page + 2 * state && store.idle_bytes() == 0, "of both");
    for (int i = 0; i < 5; ++i)
        store.put(c, false, source, once);
    expect(store.longest(a, hash_prefixes(a), 200) == 0, "the first one makes room");
    expect(store.longest(b, hash_prefixes(b), 200) == 200, "the second one need not yet");
    expect(store.host_bytes() == 9 * page + state, "what is kept, and five pages");
    expect(store.idle_bytes() == budget - store.host_bytes(), "what is not freed yet");
    while (!store.put(c, false, source, once)) {
    }
    expect(store.longest(c, hash_prefixes(c), 600) == 600 && store.n_prefixes() == 1, "for all");
    store.erase(c, hash_prefixes(c));
    expect(store.host_bytes() == 0 && store.idle_bytes() >= 10 * page + state, "nobody's");
    int n_pieces = 1;
    while (!store.free_idle(once))
        ++n_pieces;
    expect(store.idle_bytes() == 0 && n_pieces >= 11, "freed a piece at a time");
}

// What was begun does not cost a restored conversation its room.
void check_restored_beside_taking() {
    const int64_t page = kFormat.page_bytes, state = kFormat.state_bytes;
    PrefixStore store(kFormat, 4 * page + state, nullptr, [](const std::string&) {});
    Source source;
    int n_left = 3;
    const Tokens a = text(200);
    expect(!store.put(a, false, source, [&] { return --n_left > 0; }), "three pages of it");
    const uint64_t id = store.add(conversation(70, 1));
    expect(store.fate_of(id) == PrefixStore::Fetch::ready, "it is kept");
    expect(!store.is_taking() && store.host_bytes() == 2 * page + 2 * state, "and nothing else");
    expect(store.host_bytes() + store.idle_bytes() <= 4 * page + state, "within the budget");
    expect(store.put(a, false, source), "which begins anew");
    expect(store.longest(a, hash_prefixes(a), 200) == 200, "and is kept too");
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
    const int n_states = source.n_states, n_pages = source.n_pages;
    expect(store.put({all.begin(), all.begin() + 130}, false, source), "done with");
    expect(source.n_states == n_states && source.n_pages == n_pages, "not taken to be lost");
    store.put({all.begin(), all.begin() + 420}, false, source);
    expect(store.longest(all, hash_prefixes(all), 449) == 420, "longer than the shortest");
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
        const PrefixStore::Erased erased = store->erase(b, hash_prefixes(b));
        erased.removed.wait();
        expect(erased.length == 300, "erased");
        expect(files_of(folder.path).size() == 1, "its file too");
        expect(store->erase(a, hash_prefixes(a)).length == 0, "not what others start with too");
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

void check_job_that_throws() {
    Worker worker;
    int n_failed = 0;
    worker.post([]() -> Worker::Result { throw 1; }, [&] { ++n_failed; });
    worker.post([]() -> Worker::Result { return [] {}; }, [&] { n_failed += 10; });
    worker.finish();
    for (const Worker::Result& result : worker.take_results())
        result();
    expect(n_failed == 1, "its owner is told, and of no other job");
}

// Even without memory for a line about it, what cannot be written is not kept as being written.
void check_write_that_fails_badly() {
    const Folder folder;
    const Tokens a = text(200);
    Source source;
    PrefixStore store(kFormat, 0, std::make_unique<StateDirectory>(folder.path, 10, kFormat),
                      [](const std::string&) { throw std::bad_alloc(); });
    store.put(a, false, source);
    for (int i = 0; i < 5000 && store.n_prefixes() > 0; ++i) {
        usleep(1000);
        store.longest(a, hash_prefixes(a), 200);
    }
    expect(store.n_prefixes() == 0 && store.host_bytes() == 0, "it is dropped");
}

// What is erased while it is being written, and has another name by now as it went on, is in no
// file once it is said to be removed, nor after the store was closed.
void check_erased_while_written() {
    const Folder folder;
    const Tokens a = text(200), b = text(300);
    Source source;
    PrefixStore store(kFormat, 0, std::make_unique<StateDirectory>(folder.path, 1 << 20, kFormat),
                      [](const std::string&) {});
    store.put(a, false, source);
    store.put(b, false, source);
    store.erase(b, hash_prefixes(b)).removed.wait();
    expect(files_of(folder.path).empty(), "no file has it");
    store.flush();
    expect(files_of(folder.path).empty() && store.n_prefixes() == 0, "nor any later");
}

// A conversation that went on while it was written, and then has no room: what its file has of it
// is still found, and erased. Its writing is held up by a line that nobody takes.
void check_back_to_its_file() {
    const Folder folder;
    const Tokens a = text(200), b = text(300), c = text(64, 1000);
    const uint64_t most = state_file_bytes(kFormat, {a, {{200, false, nullptr}}, {}}) + 20;
    Source source;
    const auto open = [&](PrefixStore::Note note) {
        return std::make_unique<PrefixStore>(
            kFormat, 0, std::make_unique<StateDirectory>(folder.path, most, kFormat),
            std::move(note));
    };
    {
        const auto store = open([](const std::string&) {});
        store->put(c, false, source);
        store->flush();
    }
    std::promise<void> reading, go_on;
    int n_lines = 0;
    const auto store = open([&](const std::string&) {
        if (++n_lines > 1) return;
        reading.set_value();
        go_on.get_future().wait();
    });
    write_file(folder.path + "/" + StateDirectory::own_name(hash_prefixes(c).back()), "damaged");
    SpilledPrefix prefix;
    store->fetch(c, hash_prefixes(c), 64, &prefix);
    reading.get_future().wait();
    store->put(a, false, source);
    store->put(b, false, source);
    go_on.set_value();
    store->flush();
    expect(store->longest(b, hash_prefixes(b), 300) == 200, "what its file has is found");
    expect(store->erase(b, hash_prefixes(b)).length == 200, "and erased");
    const std::string name = StateDirectory::own_name(hash_prefixes(a).back());
    const std::vector<std::string> files = files_of(folder.path);
    expect(std::find(files.begin(), files.end(), name) == files.end(), "its file is removed");
}

// A conversation that has six shared starts goes on all the same.
void check_many_shared_starts() {
    PrefixStore store(kFormat, 1 << 20, nullptr, [](const std::string&) {});
    Source source;
    const Tokens all = text(200);
    for (int32_t length = 10; length <= 60; length += 10)
        store.put({all.begin(), all.begin() + length}, true, source);
    store.put(all, false, source);
    expect(store.longest(all, hash_prefixes(all), 200) == 200, "the longest is kept");
}

// What a conversation has lost in memory, but its file has, is erased too.
void check_erased_from_its_file() {
    const Folder folder;
    const Tokens all = text(400), a(all.begin(), all.begin() + 60);
    Source source;
    PrefixStore store(kFormat, 0, std::make_unique<StateDirectory>(folder.path, 1 << 20, kFormat),
                      [](const std::string&) {});
    for (int32_t length = 50; length <= 350; length += 50)  // the first one is being written
        store.put({all.begin(), all.begin() + length}, false, source);
    store.erase(a, hash_prefixes(a)).removed.wait();
    for (const std::string& name : store.directory()->own_files()) {
        const SavedConversation index = store.directory()->open(name).index();
        expect(index.states[0].length > 60, "no file has it");
    }
}

// The engine's steps go on while the disk is slow: marking a file as used and removing it wait for
// the store's thread, which is held up here by a line that nobody takes.
void check_slow_disk() {
    const Folder folder;
    const Tokens a = text(200), b = text(200, 1000);
    Source source;
    const auto open = [&](PrefixStore::Note note) {
        return std::make_unique<PrefixStore>(
            kFormat, 0, std::make_unique<StateDirectory>(folder.path, 1 << 20, kFormat),
            std::move(note));
    };
    {
        const auto store = open([](const std::string&) {});
        store->finish_thread();
        store->put(b, false, source);
        store->put(a, false, source);
        store->flush();
    }
    const auto name = [&](const Tokens& tokens) {
        return StateDirectory::own_name(hash_prefixes(tokens).back());
    };
    std::promise<void> reading, go_on;
    const auto store = open([&](const std::string&) {
        reading.set_value();
        go_on.get_future().wait();
    });
    write_file(folder.path + "/" + name(b), "damaged");
    SpilledPrefix prefix;
    expect(store->fetch(b, hash_prefixes(b), 200, &prefix) == PrefixStore::Fetch::later, "asked");
    reading.get_future().wait();
    store->put(a, false, source);  // it is there already
    PrefixStore::Erased erased = store->erase(a, hash_prefixes(a));
    expect(erased.length == 200, "not found any more");
    expect(erased.removed.wait_for(std::chrono::seconds(0)) == std::future_status::timeout,
           "removing it waits for the disk, not the caller");
    go_on.set_value();
    erased.removed.wait();
    expect(files_of(folder.path) == std::vector<std::string>({name(b)}), "removed");
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

}  // namespace
}  // namespace oj::test

int main() {
    using namespace oj::test;
    check_store_in_memory();
    check_store_memory_is_bounded();
    check_taking_in_pieces();
    check_taking_goes_on();
    check_room_in_pieces();
    check_restored_beside_taking();
    check_states_of_a_conversation();
    check_store_with_files();
    check_store_without_room();
    check_job_that_throws();
    check_write_that_fails_badly();
    check_erased_while_written();
    check_back_to_its_file();
    check_many_shared_starts();
    check_erased_from_its_file();
    check_slow_disk();
    check_files_are_kept_once();
    check_order_of_closing(0);
    check_order_of_closing(1 << 20);
    return report();
}
