// Random sequences of what the engine asks of the store: all bytes say which tokens they stand for,
// what was erased is nowhere, no file is forgotten, memory is bounded and freed in the end. The
// store's thread takes its own time: what is expected holds whatever it has done yet.
//
//     store_random_test [FIRST_SEED LAST_SEED]

#include <random>
#include <unordered_set>

#include "engine/prefix_index.h"
#include "engine/prefix_store.h"
#include "expect.h"
#include "state_files.h"

namespace oj::test {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int kSeeds = 50;
constexpr int kSteps = 150;
constexpr int32_t kMost = 400;  // tokens

// The first tokens of a conversation, as they are in the backend.
struct Prefix : PrefixSource {
    Prefix(const StateFormat& format, const Tokens& all, int32_t n)
        : format(format), length(n), tokens(all.begin(), all.begin() + n) {}
    static uint8_t byte_of(uint64_t hash, size_t i) {
        return static_cast<uint8_t>((hash ^ i) * 0x9e3779b97f4a7c15ull >> 53);
    }
    // Of a position. Behind the last one, a page has whatever it has.
    uint8_t of_page(size_t page, size_t i, uint8_t behind) const {
        const size_t at = page * kPageSize + i * kPageSize / format.page_bytes;
        return at < tokens.size() ? byte_of(hashes[at + 1], i) : behind;
    }
    void export_state(int64_t offset, int64_t n, uint8_t* out) override {
        watch();
        for (int64_t i = 0; i < n; ++i)
            out[i] = byte_of(hashes.back(), static_cast<size_t>(offset + i));
    }
    void export_page(size_t page, uint8_t* out) override {
        watch();
        for (size_t i = 0; i < format.page_bytes; ++i)
            out[i] = of_page(page, i, 99);
    }
    bool has(const SpilledPrefix& prefix) const {
        bool all = prefix.pages.size() == static_cast<size_t>(pages_for(length));
        for (size_t i = 0; i < format.state_bytes; ++i)
            all &= prefix.state[i] == byte_of(hashes.back(), i);
        for (size_t page = 0; page < prefix.pages.size(); ++page) {
            const StateBytes& bytes = prefix.pages[page];
            for (size_t i = 0; i < format.page_bytes; ++i)
                all &= bytes[i] == of_page(page, i, bytes[i]);
        }
        return all;
    }
    const StateFormat format;
    const int32_t length;
    const Tokens tokens;
    const std::vector<uint64_t> hashes = hash_prefixes(tokens);
    std::function<void()> watch = [] {};
};

class Run {
public:
    explicit Run(int seed) : random_(static_cast<unsigned>(seed)), name_(std::to_string(seed)) {
        const auto one_of = [&](std::initializer_list<int> of) {
            return of.begin()[below(of.size())];
        };
        format_.page_bytes = static_cast<size_t>(one_of({24, 64, 200}));
        format_.state_bytes = static_cast<size_t>(one_of({0, 1, 10, 5000, (3 << 16) + 1}));
        SavedConversation most{Tokens(kMost), std::vector<SavedState>(6), {}};
        most_of_one_ = static_cast<int64_t>(state_file_bytes(format_, most));
        const auto usual = static_cast<int64_t>(7 * format_.page_bytes + 2 * format_.state_bytes);
        budget_ = one_of({0, 1, 2, 3, 6, 100}) * usual + below(format_.page_bytes);
        max_bytes_ = (usual + 3000) * one_of({1, 4, 1000, 1000});
        has_files_ = below(4) > 0;
        most_shared_ = one_of({0, 40, 120});
        while (texts_.size() < 20) {
            Tokens all = texts_.empty() ? Tokens() : texts_[below(texts_.size())].tokens;
            all.resize(below(all.size() + 1));
            while (all.size() < kMost)
                all.push_back(below(3));
            texts_.emplace_back(format_, all, kMost);
        }
        turns_.resize(texts_.size());
        open();
    }

    void steps() {
        for (int i = 0; i < kSteps && failures == 0; ++i)
            step(below(100));
        for (const Prefix& text : texts_)
            erase(text);
        check(store_->free_idle(PrefixStore::to_the_end), "all is freed");
        check_bytes();
        // Shared starts are not erased.
        const auto n_left = static_cast<int64_t>(has_files_ ? 0 : may_be_kept_.size());
        store_->flush();
        check(store_->host_bytes() <= n_left * store_->bytes_of(1), "nothing is left in memory");
    }

private:
    int32_t below(size_t n) { return static_cast<int32_t>(random_() % n); }

    void check(bool holds, const char* what) const {
        if (!holds) expect(false, "seed " + name_ + ": " + what);
    }

    void check_bytes() const {
        const int64_t host = store_->host_bytes(), idle = store_->idle_bytes();
        check(host >= 0 && idle >= 0, "less than nothing");
        // With files, two may be being written, one taken, and one is what that goes on from.
        check(has_files_ ? host <= budget_ + 4 * most_of_one_ : host + idle <= budget_, "bounded");
    }

    void open() {
        std::unique_ptr<StateDirectory> files;
        store_ = nullptr;
        if (has_files_) files = std::make_unique<StateDirectory>(folder_.path, max_bytes_, format_);
        store_ = std::make_unique<PrefixStore>(format_, budget_, std::move(files), [](auto&) {});
    }

    Prefix start_of(const Tokens& tokens, int32_t length) {
        Prefix prefix(format_, tokens, length);
        prefix.watch = [this] { check_bytes(); };
        return prefix;
    }

    // A conversation, often the last one, that goes on or is taken up again somewhere.
    Prefix next() {
        if (below(8) == 0) last_ = static_cast<size_t>(below(texts_.size()));
        int32_t& turn = turns_[last_];
        turn += 1 + below(40);
        if (turn > kMost) turn = 1 + below(30);
        return start_of(texts_[last_].tokens, below(4) == 0 ? 1 + below(turn) : turn);
    }

    void step(int32_t choice) {
        int32_t n_pieces = below(3) > 0 ? below(6) : 1000;
        const auto go_on = [&] { return n_pieces-- > 0; };
        Prefix prefix = next();
        if (choice < 40) {
            for (int32_t i = below(8) == 0 ? 12 : 1; i > 0; --i)
                put(next(), go_on);
        } else if (choice < 52 && store_->is_taking()) {
            Prefix taking = start_of(taking_, static_cast<int32_t>(taking_.size()));
            put_was(taking, store_->take_more(taking.length <= most_shared_, taking, go_on));
        } else if (choice < 70) {
            fetch(start_of(prefix.tokens, 1 + below(prefix.tokens.size())));
        } else if (choice < 76) {
            add(prefix);
        } else if (choice < 84) {
            erase(start_of(prefix.tokens, 1 + below(prefix.tokens.size())));
        } else if (choice < 90) {
            wait_for_files();
            check_own_files();
        } else if (choice < 94) {
            check(!store_->free_idle(go_on) || store_->idle_bytes() == 0, "what is idle is freed");
        } else if (has_files_ && choice < 96) {
            remove_file();
        } else if (has_files_) {
            reopen(choice == 99);
        }
        check_bytes();
    }

    void put(Prefix prefix, const std::function<bool()>& go_on) {
        const bool others = store_->is_taking() && taking_ != prefix.tokens;
        const bool whole = store_->put(prefix.tokens, prefix.length <= most_shared_, prefix, go_on);
        // What is known is no reason to end what is being taken.
        if (!others || !whole || !store_->is_taking()) put_was(prefix, whole);
        if (whole) may_be_kept_.insert(prefix.hashes.back());
        const bool fits = store_->bytes_of(pages_for(prefix.length)) <= budget_;
        if (whole && fits && !has_files_) check(knows(prefix), "there is room, but it is not kept");
    }

    void put_was(const Prefix& prefix, bool whole) {
        check(store_->is_taking() != whole, "it is being taken, or was");
        if (whole) may_be_kept_.insert(prefix.hashes.back());
        if (!whole) taking_ = prefix.tokens;
    }

    int32_t found(const Prefix& prefix, int32_t limit) const {
        const int32_t length = store_->longest(prefix.tokens, prefix.hashes, limit);
        check(length <= limit && may_be_kept(prefix, length), "found, but erased or never put");
        return length;
    }

    bool may_be_kept(const Prefix& prefix, int32_t n) const {
        return n == 0 || may_be_kept_.count(prefix.hashes[static_cast<size_t>(n)]) > 0;
    }

    // Or longer ones of such a conversation, which may have cost it this one.
    bool knows(const Prefix& prefix) const {
        return found(prefix, prefix.length) == prefix.length ||
               std::any_of(texts_.begin(), texts_.end(), [&](const Prefix& text) {
                   return text.hashes[prefix.tokens.size()] == prefix.hashes.back() &&
                          found(text, kMost) > prefix.length;
               });
    }

    void fetch(const Prefix& prefix) {
        const int32_t length = found(prefix, prefix.length);
        for (int i = 0; i < 200 && length > 0 && found(prefix, length) == length; ++i) {
            SpilledPrefix out;
            const auto fetched = store_->fetch(prefix.tokens, prefix.hashes, length, &out);
            const bool ready = fetched == PrefixStore::Fetch::ready;
            check(ready || has_files_, "at hand in memory");
            if (ready) check(start_of(prefix.tokens, length).has(out), "the bytes of the tokens");
            if (ready) check(out.shared == (length <= most_shared_), "shared or not");
            if (fetched != PrefixStore::Fetch::later) return;
            usleep(100);
        }
    }

    void add(Prefix& prefix) {
        SavedConversation saved{prefix.tokens, {}, {}};
        const auto state = [&](Prefix part) {
            std::shared_ptr<uint8_t[]> bytes(new uint8_t[format_.state_bytes]);
            part.export_state(0, static_cast<int64_t>(format_.state_bytes), bytes.get());
            saved.states.push_back({part.length, part.length <= most_shared_, bytes});
            may_be_kept_.insert(part.hashes.back());
        };
        if (prefix.length > 1) state(start_of(prefix.tokens, 1 + below(prefix.tokens.size() - 1)));
        state(prefix);
        while (saved.pages.size() < static_cast<size_t>(pages_for(prefix.length))) {
            std::shared_ptr<uint8_t[]> bytes(new uint8_t[format_.page_bytes]);
            prefix.export_page(saved.pages.size(), bytes.get());
            saved.pages.push_back(bytes);
        }
        store_->add(std::move(saved));
        check(!store_->is_taking(), "nothing is being taken beside it");
    }

    // Of what was erased only shared starts are left, until it is put again.
    void erase(const Prefix& prefix) {
        const int32_t longest = found(prefix, prefix.length);
        PrefixStore::Erased erased = store_->erase(prefix.tokens, prefix.hashes);
        if (!has_files_ && longest > most_shared_) check(erased.length == longest, "it was there");
        check(may_be_kept(prefix, erased.length) && !store_->is_taking(), "erased, all of it");
        for (auto n = static_cast<size_t>(most_shared_) + 1; n < prefix.hashes.size(); ++n)
            may_be_kept_.erase(prefix.hashes[n]);
        erased.removed.wait();
        check_own_files();
    }

    // The store's thread does one thing after the other: nothing is being written after this.
    void wait_for_files() { store_->erase({}, {0}).removed.wait(); }

    void check_own_files() {
        for (const Prefix& text : texts_)
            found(text, kMost);
        if (!has_files_) return;
        for (const std::string& name : store_->directory()->own_files()) {
            const SavedConversation index = store_->directory()->open(name).index();
            const Prefix prefix = start_of(index.tokens, static_cast<int32_t>(index.tokens.size()));
            for (const SavedState& state : index.states)
                check(may_be_kept(prefix, state.length), "a file has what was erased");
            check(knows(prefix), "a file that the store does not know");
        }
    }

    void remove_file() {
        wait_for_files();
        const std::vector<std::string> names = store_->directory()->own_files();
        if (names.empty()) return;
        const std::string& name = names[static_cast<size_t>(below(names.size()))];
        store_->directory()->remove(name);
        if (below(2) == 0) store_->forget_files({name});  // else it finds out
    }

    void reopen(bool saving) {
        if (saving) store_->finish_thread();
        for (int32_t i = saving ? below(5) : 0; i > 0; --i)
            put(next(), PrefixStore::to_the_end);
        if (store_->is_taking()) wait_for_files();  // which ends it
        store_->flush();
        check(store_->host_bytes() == 0, "everything has left memory");
        check_own_files();
        open();
        check_own_files();
    }

    std::mt19937 random_;
    const std::string name_;
    const Folder folder_;
    StateFormat format_{7, 0, 0};
    int64_t budget_, max_bytes_, most_of_one_;
    bool has_files_;
    int32_t most_shared_;  // tokens: as few are a start that conversations have in common
    std::vector<Prefix> texts_;
    std::vector<int32_t> turns_;  // by text: tokens of its conversation by now
    size_t last_ = 0;
    std::unordered_set<uint64_t> may_be_kept_;  // hashes
    Tokens taking_;
    std::unique_ptr<PrefixStore> store_;
};

}  // namespace
}  // namespace oj::test

int main(int argc, char** argv) {
    using namespace oj::test;
    const int first = argc > 1 ? std::atoi(argv[1]) : 1;
    const int last = argc > 2 ? std::atoi(argv[2]) : kSeeds;
    for (int seed = first; seed <= last && failures == 0; ++seed)
        Run(seed).steps();
    return report();
}
