#include "engine/prefix_store.h"

#include <algorithm>
#include <new>

#include "engine/prefix_index.h"
#include "engine/request.h"

namespace oj {

namespace {

constexpr int64_t kPieceBytes = 64 << 10;   // of a state, at once
constexpr size_t kMaxStates = 6;            // of one conversation
constexpr size_t kMaxLoads = 2;             // being read, or read and not fetched yet
constexpr int64_t kLoadUs = 30'000'000;     // after which a file counts as lost
constexpr int64_t kQueuedUs = 300'000'000;  // at most, until that clock starts

size_t common_length(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    const size_t n = std::min(a.size(), b.size());
    return static_cast<size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
        a.begin());
}

SpilledPrefix read_prefix(const StateFile& file, const std::vector<int32_t>& tokens) {
    const SavedConversation& index = file.index();
    const auto length = static_cast<int32_t>(tokens.size());
    const bool is_same = common_length(index.tokens, tokens) == tokens.size();
    for (size_t i = 0; is_same && i < index.states.size(); ++i) {
        if (index.states[i].length != length) continue;
        SpilledPrefix prefix{index.states[i].shared, file.read_state(i), {}};
        for (int32_t page = 0; page < pages_for(length); ++page)
            prefix.pages.push_back(file.read_page(static_cast<size_t>(page)));
        return prefix;
    }
    throw Error(OJ_ERR_FORMAT, "the file was replaced by another one");
}

std::vector<uint64_t> hashes_of_states(const SavedConversation& conversation) {
    const std::vector<uint64_t> of_tokens = hash_prefixes(conversation.tokens);
    std::vector<uint64_t> hashes;
    for (const SavedState& state : conversation.states)
        hashes.push_back(of_tokens[static_cast<size_t>(state.length)]);
    return hashes;
}

}  // namespace

PrefixStore::PrefixStore(const StateFormat& format, int64_t host_bytes,
                         std::unique_ptr<StateDirectory> directory, Note note)
    : format_(format),
      budget_(host_bytes),
      directory_(std::move(directory)),
      note_(std::move(note)),
      used_(std::make_shared<std::atomic<int64_t>>(0)) {
    if (!directory_) return;
    worker_ = std::make_unique<Worker>();
    scan();
}

void PrefixStore::scan() {
    for (const std::string& name : directory_->own_files()) {
        try {
            SavedConversation index = directory_->open(name).index();
            Hashes hashes = hashes_of_states(index);
            Kept& kept = insert(std::move(index), std::move(hashes));
            kept.file = name;
        } catch (const std::exception& error) {
            note_(std::string("ignored: ") + error.what());
        }
    }
}

int32_t PrefixStore::n_prefixes() const {
    size_t n = 0;
    for (const auto& kept : kept_)
        n += kept->saved.states.size();
    return static_cast<int32_t>(n);
}

// ---------------------------------------------------------------- finding

// The longest state between `least` and `most` tokens; one in memory before the same in a file.
// hashes: of the first `least` tokens to that of the first `most`.
PrefixStore::Place PrefixStore::find(const Tokens& tokens, const uint64_t* hashes, int32_t least,
                                     int32_t most) const {
    Place best;
    for (const auto& kept : kept_) {
        for (size_t i = 0; i < kept->saved.states.size(); ++i) {
            const int32_t length = kept->saved.states[i].length;
            const int32_t wanted = std::max(least, best.length());
            if (length < wanted || length > most) continue;
            if (best.kept && length == best.length() &&
                (best.kept->in_memory() || !kept->in_memory())) {
                continue;
            }
            if (kept->hashes[i] != hashes[length - least]) continue;
            if (!std::equal(tokens.begin(), tokens.begin() + length, kept->saved.tokens.begin())) {
                continue;
            }
            best = {kept.get(), i};
        }
    }
    return best;
}

int32_t PrefixStore::longest(const Tokens& tokens, const Hashes& hashes, int32_t limit) {
    collect();
    return find(tokens, hashes.data() + 1, 1, limit).length();
}

PrefixStore::Fetch PrefixStore::fetch(const Tokens& tokens, const Hashes& hashes, int32_t length,
                                      SpilledPrefix* out) {
    const Place place = find(tokens, hashes.data() + length, length, length);
    if (!place.kept) return Fetch::lost;
    Kept& kept = *place.kept;
    if (!kept.in_memory()) return fetch_from_file(kept, place.state, out);
    use(kept);
    const SavedState& state = kept.saved.states[place.state];
    out->shared = state.shared;
    out->state = state.bytes;
    out->pages.assign(kept.saved.pages.begin(), kept.saved.pages.begin() + pages_for(length));
    return Fetch::ready;
}

PrefixStore::Fetch PrefixStore::fetch_from_file(Kept& kept, size_t state, SpilledPrefix* out) {
    const int32_t length = kept.saved.states[state].length;
    const int64_t now = now_us();
    const auto load = std::find_if(loads_.begin(), loads_.end(), [&](const Load& l) {
        return l.id == kept.id && l.length == length;
    });
    if (load == loads_.end()) {
        if (loads_.size() < kMaxLoads) start_load(kept, state);
        return Fetch::later;
    }
    load->asked_us = now;
    if (!load->done && now - *load->started_us < kLoadUs) return Fetch::later;
    std::optional<SpilledPrefix> prefix = std::move(load->prefix);
    loads_.erase(load);
    if (!prefix) {
        drop(kept.id);
        return Fetch::lost;
    }
    use(kept);
    *out = std::move(*prefix);
    return Fetch::ready;
}

void PrefixStore::start_load(const Kept& kept, size_t state) {
    const int32_t length = kept.saved.states[state].length;
    const auto first = kept.saved.tokens.begin();
    // What is being written goes on first, however long it takes.
    const auto started = std::make_shared<std::atomic<int64_t>>(now_us() + kQueuedUs);
    loads_.push_back({kept.id, length, started, now_us(), false, std::nullopt});
    const auto done = [this, id = kept.id, length](std::optional<SpilledPrefix> prefix) {
        for (Load& load : loads_) {
            if (load.id != id || load.length != length) continue;
            load.done = true;
            load.prefix = std::move(prefix);
        }
    };
    worker_->post_first(
        [this, done, started, name = kept.file,
         tokens = Tokens(first, first + length)]() -> Worker::Result {
            *started = now_us();
            try {
                const SpilledPrefix prefix = read_prefix(directory_->open(name), tokens);
                return [done, prefix] { done(prefix); };
            } catch (const std::exception& error) {
                note_(std::string("ignored: ") + error.what());
                throw;
            }
        },
        [done] { done(std::nullopt); });
}

// ---------------------------------------------------------------- keeping

bool PrefixStore::put(const Tokens& tokens, bool shared, PrefixSource& source,
                      const std::function<bool()>& go_on) {
    collect();
    try {
        if (!taking_ || taking_->tokens != tokens) {
            const uint64_t hash = hash_of(tokens);
            if (knows(tokens, hash, shared)) return true;  // what is being taken goes on
            end_taking();
            if (!begin_taking(tokens, hash, shared)) return true;
        }
    } catch (const std::bad_alloc&) {
        without_memory();
        return true;
    }
    return take_more(shared, source, go_on);
}

bool PrefixStore::take_more(bool shared, PrefixSource& source, const std::function<bool()>& go_on) {
    collect();
    try {
        const Taken taken = take(source, go_on);
        if (taken == Taken::some) return false;
        if (taken == Taken::all) keep_taken(shared);
        end_taking();
        shrink();
    } catch (const std::bad_alloc&) {
        without_memory();
    }
    return true;
}

void PrefixStore::without_memory() {
    end_taking();
    free_idle(to_the_end);
    note_("no memory to keep a conversation for later; lower host_cache");
}

bool PrefixStore::knows(const Tokens& tokens, uint64_t hash, bool shared) {
    const auto length = static_cast<int32_t>(tokens.size());
    const Place known = find(tokens, &hash, length, length);
    if (!known.kept) return false;
    known.kept->saved.states[known.state].shared |= shared;
    use(*known.kept);
    return true;
}

// With the pages that are in memory already. False: it would never have room, or be the state that
// its conversation loses.
bool PrefixStore::begin_taking(const Tokens& tokens, uint64_t hash, bool shared) {
    const auto n_pages = static_cast<size_t>(pages_for(static_cast<int32_t>(tokens.size())));
    const int64_t n_bytes = bytes_of(static_cast<int32_t>(n_pages));
    if (n_bytes > limit()) {
        if (directory_) {
            note_("a conversation is not kept: its " + std::to_string(n_bytes) +
                  " bytes have no room in host memory; raise host_cache");
        }
        return false;
    }
    const Kept* home = home_of(tokens);
    const bool is_last = home && tokens.size() > home->saved.tokens.size();  // which stays
    if (home && !shared && !is_last && home->saved.states.size() >= kMaxStates) {
        const auto& states = home->saved.states;
        const auto stays = [&](const SavedState& other) {
            return other.shared || static_cast<size_t>(other.length) > tokens.size();
        };
        if (std::all_of(states.begin(), states.end(), stays)) return false;
    }
    taking_ = Taking{tokens, hash, home ? home->id : 0, {}, nullptr, nullptr, 0};
    for (const auto& kept : kept_) {
        if (!kept->in_memory()) continue;
        const size_t common = common_length(kept->saved.tokens, tokens);
        const size_t n = common == tokens.size() ? n_pages : common / kPageSize;
        if (n <= taking_->pages.size()) continue;
        const auto first = kept->saved.pages.begin();
        taking_->pages.assign(first, first + static_cast<ptrdiff_t>(n));
    }
    return true;
}

// For n bytes of what is being taken. Other conversations make it, if need be; last the one that it
// goes on from.
bool PrefixStore::make_room(size_t n) {
    const auto n_bytes = static_cast<int64_t>(n);
    if (host_bytes() + n_bytes > budget_) {
        shrink(n_bytes, with_id(taking_->home));
        const Kept* home = with_id(taking_->home);
        const bool may_go = home && home->in_memory() && home->writing.empty();
        if (may_go && host_bytes() + n_bytes > limit()) leave_memory(home->id);
    }
    while (*used_ + n_bytes > limit() && !idle_.empty())
        free_last();
    return *used_ + n_bytes <= limit();
}

PrefixStore::Taken PrefixStore::take(PrefixSource& source, const std::function<bool()>& go_on) {
    Taking& taking = *taking_;
    const auto new_bytes = [&](size_t n, uint8_t** bytes) {
        std::shared_ptr<uint8_t[]> made(new uint8_t[n]);
        *bytes = made.get();
        return counted(std::move(made), n);
    };
    const auto n_pages = static_cast<size_t>(pages_for(static_cast<int32_t>(taking.tokens.size())));
    while (taking.pages.size() < n_pages) {
        if (!make_room(format_.page_bytes)) return Taken::no_room;
        uint8_t* out = nullptr;
        StateBytes page = new_bytes(format_.page_bytes, &out);
        source.export_page(taking.pages.size(), out);
        taking.pages.push_back(std::move(page));
        if (!go_on()) return Taken::some;
    }
    if (!taking.state) {
        if (!make_room(format_.state_bytes)) return Taken::no_room;
        taking.state = new_bytes(format_.state_bytes, &taking.state_bytes);
    }
    const auto n_state = static_cast<int64_t>(format_.state_bytes);
    while (taking.n_state_bytes < n_state) {
        const int64_t at = taking.n_state_bytes, n = std::min(kPieceBytes, n_state - at);
        source.export_state(at, n, taking.state_bytes + at);
        taking.n_state_bytes += n;
        if (taking.n_state_bytes < n_state && !go_on()) return Taken::some;
    }
    return Taken::all;
}

void PrefixStore::keep_taken(bool shared) {
    Taking& taking = *taking_;
    SavedState state{static_cast<int32_t>(taking.tokens.size()), shared, taking.state};
    Kept* home = home_of(taking.tokens);
    if (!home) {
        insert({std::move(taking.tokens), {std::move(state)}, taking.pages}, {taking.hash});
        return;
    }
    home->saved.states.reserve(home->saved.states.size() + 1);  // later, memory may run out
    home->hashes.reserve(home->hashes.size() + 1);
    if (taking.tokens.size() > home->saved.tokens.size()) {
        home->saved.pages = taking.pages;
        home->saved.tokens = std::move(taking.tokens);
    }
    add_state(*home, std::move(state), taking.hash);
    use(*home);
}

void PrefixStore::end_taking() {
    if (!taking_) return;
    for (StateBytes& page : taking_->pages)
        let_go(page, format_.page_bytes);
    let_go(taking_->state, format_.state_bytes);
    taking_.reset();
}

uint64_t PrefixStore::add(SavedConversation conversation) {
    collect();
    end_taking();  // its bytes are not to cost this one its room
    const auto length = static_cast<int32_t>(conversation.tokens.size());
    Hashes hashes = hashes_of_states(conversation);
    const Place known = find(conversation.tokens, &hashes.back(), length, length);
    if (known.kept && known.kept->in_memory()) {
        use(*known.kept);
        return known.kept->id;
    }
    for (SavedState& state : conversation.states)
        state.bytes = counted(std::move(state.bytes), format_.state_bytes);
    for (StateBytes& page : conversation.pages)
        page = counted(std::move(page), format_.page_bytes);
    const uint64_t id = insert(std::move(conversation), std::move(hashes)).id;
    shrink();
    while (*used_ > limit() && !idle_.empty())
        free_last();
    return id;
}

PrefixStore::Fetch PrefixStore::fate_of(uint64_t id) {
    collect();
    const Kept* kept = with_id(id);
    if (!kept) return Fetch::lost;
    return kept->writing.empty() ? Fetch::ready : Fetch::later;
}

PrefixStore::Kept* PrefixStore::with_id(uint64_t id) const {
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [&](const auto& kept) { return kept->id == id; });
    return found == kept_.end() ? nullptr : found->get();
}

PrefixStore::Kept& PrefixStore::insert(SavedConversation conversation, Hashes hashes) {
    auto kept = std::make_unique<Kept>();
    kept->id = ++last_id_;
    kept->last_use = tick();
    kept->saved = std::move(conversation);
    kept->hashes = std::move(hashes);
    kept_.push_back(std::move(kept));
    return *kept_.back();
}

// The conversation in memory that goes on from these tokens, or that they go on from.
PrefixStore::Kept* PrefixStore::home_of(const Tokens& tokens) {
    Kept* home = nullptr;
    size_t best = 0;
    for (const auto& kept : kept_) {
        if (!kept->in_memory()) continue;
        const size_t common = common_length(kept->saved.tokens, tokens);
        if (common <= best || common < std::min(kept->saved.tokens.size(), tokens.size())) continue;
        home = kept.get();
        best = common;
    }
    return home;
}

// A conversation with too many states loses the shortest, but not what others start with too.
void PrefixStore::add_state(Kept& kept, SavedState state, uint64_t hash) {
    std::vector<SavedState>& states = kept.saved.states;
    const auto at = std::find_if(states.begin(), states.end(), [&](const SavedState& other) {
        return other.length > state.length;
    });
    kept.hashes.insert(kept.hashes.begin() + (at - states.begin()), hash);
    states.insert(at, std::move(state));
    ++kept.changes;
    if (states.size() <= kMaxStates) return;
    auto excess = std::find_if(states.begin(), states.end() - 1,
                               [](const SavedState& other) { return !other.shared; });
    if (excess == states.end() - 1) excess = states.begin();
    const auto lost = kept.hashes.begin() + (excess - states.begin());
    if (!excess->shared && !(kept.file.empty() && kept.writing.empty())) {
        kept.lost.emplace_back(excess->length, *lost);
    }
    kept.hashes.erase(lost);
    let_go(excess->bytes, format_.state_bytes);
    states.erase(excess);
}

StateBytes PrefixStore::counted(std::shared_ptr<const uint8_t[]> bytes, size_t n) const {
    const uint8_t* data = bytes.get();
    const auto size = static_cast<int64_t>(n);
    *used_ += size;
    return StateBytes(
        data, [bytes = std::move(bytes), used = used_, size](const uint8_t*) { *used -= size; });
}

void PrefixStore::use(Kept& kept) {
    kept.last_use = tick();
    if (kept.file.empty()) return;
    with_files([this, file = kept.file, used_ns = directory_->now_ns()] {
        directory_->touch(file, used_ns);
    });
}

// By the store's thread while there is one: the disk may take its time.
void PrefixStore::with_files(std::function<void()> work) {
    if (!worker_) return work();
    worker_->post(
        [work = std::move(work)]() -> Worker::Result {
            work();
            return [] {};
        },
        [] {});
}

uint64_t PrefixStore::tick() {
    return closing() ? --clock_ : ++clock_;
}

void PrefixStore::drop(uint64_t id) {
    if (Kept* kept = with_id(id)) release_bytes(*kept);
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(),
                               [&](const auto& kept) { return kept->id == id; }),
                kept_.end());
}

// What its file has of it is left, if there is one.
void PrefixStore::leave_memory(uint64_t id) {
    Kept* kept = with_id(id);
    if (!kept) return;
    if (kept->file.empty()) return drop(id);
    release_bytes(*kept);
    static_cast<Contents&>(*kept) = *kept->in_file;
    kept->in_file = nullptr;
    kept->lost.clear();
}

void PrefixStore::release_bytes(Kept& kept) {
    for (SavedState& state : kept.saved.states)
        let_go(state.bytes, format_.state_bytes);
    for (StateBytes& page : kept.saved.pages)
        let_go(page, format_.page_bytes);
    kept.saved.pages.clear();
}

// Others may hold them too. Without memory for the list they are freed at once.
void PrefixStore::let_go(StateBytes& bytes, size_t n) {
    const StateBytes last = std::move(bytes);
    if (!last || last.use_count() > 1) return;
    try {
        idle_.push_back({last, static_cast<int64_t>(n)});
        idle_bytes_ += static_cast<int64_t>(n);
    } catch (const std::bad_alloc&) {
    }
}

void PrefixStore::free_last() {
    idle_bytes_ -= idle_.back().n;
    idle_.pop_back();
}

bool PrefixStore::free_idle(const std::function<bool()>& go_on) {
    while (!idle_.empty()) {
        free_last();
        if (!go_on()) break;
    }
    return idle_.empty();
}

PrefixStore::Erased PrefixStore::erase(const Tokens& tokens, const Hashes& hashes) {
    collect();
    end_taking();
    int32_t longest = 0;
    std::vector<std::string> files;
    for (size_t i = kept_.size(); i-- > 0;) {
        const Kept& kept = *kept_[i];
        int32_t found = 0;
        for (const auto& [length, hash] : kept.lost) {
            const auto n = static_cast<size_t>(length);
            if (n > tokens.size() || hash != hashes[n]) continue;
            if (common_length(kept.saved.tokens, tokens) >= n) found = std::max(found, length);
        }
        for (size_t s = 0; s < kept.saved.states.size(); ++s) {
            const SavedState& state = kept.saved.states[s];
            const auto n = static_cast<size_t>(state.length);
            if (state.shared || n > tokens.size() || kept.hashes[s] != hashes[n]) continue;
            if (common_length(kept.saved.tokens, tokens) < n) continue;
            found = std::max(found, state.length);
        }
        if (found == 0) continue;
        longest = std::max(longest, found);
        if (!kept.file.empty()) files.push_back(kept.file);
        if (!kept.writing.empty()) files.push_back(kept.writing);  // once it is written
        drop(kept.id);
    }
    const auto removed = std::make_shared<std::promise<void>>();
    with_files([this, files, removed] {
        for (const std::string& file : files)
            directory_->remove(file);
        removed->set_value();
    });
    return {longest, removed->get_future()};
}

}  // namespace oj
