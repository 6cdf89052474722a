// Stored prefixes beyond the backend's memory: in host memory under a byte budget and, with a state
// directory, in files that survive a restart. The least recently used conversations go first: from
// memory to a file, from there to nothing.
//
// The step thread calls it and never waits for the disk: one thread of the store reads and writes
// files; only construction, close(), save() and restore() do so themselves. A file that is of no
// use is one line for `note`, and from then on as if it were not there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/state_directory.h"
#include "engine/worker.h"

namespace oj {

// A prefix whose bytes are at hand.
struct SpilledPrefix {
    bool shared = false;
    StateBytes state;
    std::vector<StateBytes> pages;
};

// Where the bytes of a prefix come from.
class PrefixSource {
public:
    virtual ~PrefixSource() = default;
    virtual void export_state(int64_t offset, int64_t n, uint8_t* out) = 0;  // so many bytes
    virtual void export_page(size_t i, uint8_t* out) = 0;  // of positions [64 i, 64 i + 64)
};

class PrefixStore {
public:
    using Tokens = std::vector<int32_t>;
    using Hashes = std::vector<uint64_t>;  // hashes[n]: of the first n tokens
    using Note = std::function<void(const std::string&)>;

    // directory: NULL for none. Of its files it reads what they are about, not their bytes.
    PrefixStore(const StateFormat& format, int64_t host_bytes,
                std::unique_ptr<StateDirectory> directory, Note note);

    // Keeps the whole of `tokens`, unless it is kept already. Takes only the bytes it lacks, in
    // pieces, while go_on() says so after each; false: the next call with these tokens takes more.
    // A call with others that are not kept begins anew.
    bool put(const Tokens& tokens, bool shared, PrefixSource& source,
             const std::function<bool()>& go_on = to_the_end);
    // Whether put() returned false and nothing came between; then the same without its tokens.
    bool is_taking() const { return taking_.has_value(); }
    bool take_more(bool shared, PrefixSource& source, const std::function<bool()>& go_on);
    static bool to_the_end() { return true; }
    // Keeps a whole conversation whose bytes are at hand. Returns its id, for fate_of().
    uint64_t add(SavedConversation conversation);

    // The longest kept prefix of at most `limit` tokens; 0: there is none.
    int32_t longest(const Tokens& tokens, const Hashes& hashes, int32_t limit);

    enum class Fetch { ready, later, lost };
    // The bytes of a prefix that longest() found. later: they are being read, ask again; lost: its
    // file turned out to be unusable and is not kept any more.
    Fetch fetch(const Tokens& tokens, const Hashes& hashes, int32_t length, SpilledPrefix* out);

    // later: it is being written to a file; lost: nothing keeps it any more.
    Fetch fate_of(uint64_t id);

    struct Erased {
        int32_t length = 0;         // of the longest prefix that was kept
        std::future<void> removed;  // files
    };
    // Forgets the conversations that these tokens continue, files included.
    Erased erase(const Tokens& tokens, const Hashes& hashes);

    // These files of the directory are gone, or hold something else now.
    void forget_files(const std::vector<std::string>& names);

    // Ends the store's thread. From then on the most recently used conversations come first: put()
    // expects them in that order and writes files itself where memory is short.
    void finish_thread();
    // Writes what is only in memory, the most recently used first: nobody may wait for the rest.
    void flush();

    StateDirectory* directory() const { return directory_.get(); }  // NULL: none
    // Of a prefix with so many pages of its own.
    int64_t bytes_of(int32_t n_pages) const {
        return static_cast<int64_t>(format_.state_bytes + n_pages * format_.page_bytes);
    }
    int64_t most_bytes() const;  // that can be kept in memory, or be on its way to a file
    int64_t host_bytes() const { return *used_ - idle_bytes_; }
    // Memory that nothing kept needs any more, and is part of the budget until it is freed: a piece
    // at a time, since the system takes milliseconds for a conversation's.
    int64_t idle_bytes() const { return idle_bytes_; }
    bool free_idle(const std::function<bool()>& go_on);  // true: all of it
    int32_t n_prefixes() const;

private:
    // A conversation, or what a file has of one: tokens and states without their bytes.
    struct Contents {
        SavedConversation saved;
        Hashes hashes;  // of each state's tokens
    };

    // A conversation. Its bytes are in memory or in a file; in memory, `file` has fewer of them.
    struct Kept : Contents {
        uint64_t id;
        std::string file;                         // empty: none
        std::shared_ptr<const Contents> in_file;  // of one in memory that has a file
        std::string writing;  // the file that the store's thread is writing; empty: none
        std::vector<std::pair<int32_t, uint64_t>> lost;  // states that its files may have
        uint64_t changes = 0;
        uint64_t last_use = 0;

        bool in_memory() const { return !saved.states.empty() && saved.states.back().bytes; }
    };

    struct Place {
        Kept* kept = nullptr;
        size_t state = 0;
        int32_t length() const { return kept ? kept->saved.states[state].length : 0; }
    };

    // What put() has taken so far.
    struct Taking {
        Tokens tokens;
        uint64_t hash;
        uint64_t home;                  // id of the conversation that goes on from them; 0: none
        std::vector<StateBytes> pages;  // the first ones
        StateBytes state;
        uint8_t* state_bytes = nullptr;
        int64_t n_state_bytes = 0;  // taken
    };

    enum class Taken { all, some, no_room };

    struct Idle {
        StateBytes bytes;
        int64_t n;
    };

    struct Load {
        uint64_t id;  // of the Kept
        int32_t length;
        std::shared_ptr<std::atomic<int64_t>> started_us;  // by the store's thread
        int64_t asked_us;
        bool done = false;
        std::optional<SpilledPrefix> prefix;  // nothing: it failed
    };

    void scan();
    Place find(const Tokens& tokens, const uint64_t* hashes, int32_t least, int32_t most) const;
    Kept& insert(SavedConversation conversation, Hashes hashes);
    Kept* home_of(const Tokens& tokens);
    bool knows(const Tokens& tokens, uint64_t hash, bool shared);
    bool begin_taking(const Tokens& tokens, uint64_t hash, bool shared);
    bool make_room(size_t n);
    Taken take(PrefixSource& source, const std::function<bool()>& go_on);
    void keep_taken(bool shared);
    void end_taking();
    void without_memory();
    void add_state(Kept& kept, SavedState state, uint64_t hash);
    StateBytes counted(std::shared_ptr<const uint8_t[]> bytes, size_t n) const;
    bool closing() const { return directory_ && !worker_; }
    Kept* with_id(uint64_t id) const;  // NULL: none
    void use(Kept& kept);
    void with_files(std::function<void()> work);
    uint64_t tick();
    void drop(uint64_t id);
    void leave_memory(uint64_t id);
    void release_bytes(Kept& kept);
    void let_go(StateBytes& bytes, size_t n);
    void free_last();

    int64_t limit() const;
    void shrink(int64_t n_bytes = 0, const Kept* spared = nullptr);
    static std::string name_of(const Kept& kept);  // of the file it would be written to
    void write(Kept& kept);
    void written(uint64_t id, uint64_t changes, const std::string& file,
                 const std::vector<std::string>& removed,
                 const std::shared_ptr<const Contents>& contents);
    Fetch fetch_from_file(Kept& kept, size_t state, SpilledPrefix* out);
    void start_load(const Kept& kept, size_t state);
    void collect();

    const StateFormat format_;
    const int64_t budget_;
    const std::unique_ptr<StateDirectory> directory_;
    const Note note_;
    // Bytes in memory, counted by those who hold them: conversations share pages, and what is being
    // written stays until it is.
    const std::shared_ptr<std::atomic<int64_t>> used_;
    std::vector<std::unique_ptr<Kept>> kept_;
    std::vector<Load> loads_;
    std::optional<Taking> taking_;
    std::vector<Idle> idle_;
    int64_t idle_bytes_ = 0;  // of used_
    int64_t retry_us_ = 0;    // when memory may be written to files again
    uint64_t clock_ = 0;
    int64_t closing_ns_ = 0;  // when what is written while closing was used, roughly
    uint64_t last_id_ = 0;
    std::unique_ptr<Worker> worker_;  // the last member: its jobs use those above
};

}  // namespace oj
