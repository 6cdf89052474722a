// What stored prefixes make room for each other, and what the store's thread does with files.
#include <algorithm>

#include "engine/prefix_store.h"
#include "engine/request.h"

namespace oj {

namespace {

constexpr int kMaxWrites = 2;                      // at once; what comes while they last is dropped
constexpr int64_t kMaxWriting = int64_t{1} << 30;  // bytes beside the budget, until written
constexpr int64_t kUnfetchedUs = 5'000'000;
constexpr int64_t kRetryUs = 60'000'000;  // after a file that could not be written

}  // namespace

// What lies in memory at any time, what is being written included.
int64_t PrefixStore::limit() const {
    return budget_ + (directory_ ? kMaxWriting : 0);
}

int64_t PrefixStore::most_bytes() const {
    if (!directory_) return budget_;
    return budget_ + std::min(kMaxWriting, static_cast<int64_t>(directory_->max_bytes()));
}

// Makes room for `n_bytes` more, but not of `spared`.
void PrefixStore::shrink(int64_t n_bytes, const Kept* spared) {
    while (true) {
        int64_t in_flight = 0;
        int n_writes = 0;
        Kept* next = nullptr;
        for (const auto& kept : kept_) {
            if (!kept->in_memory()) continue;
            if (!kept->writing.empty()) {
                in_flight += static_cast<int64_t>(state_file_bytes(format_, kept->saved));
                ++n_writes;
            } else if (kept.get() != spared &&
                       (!next || (kept->last_use < next->last_use) != closing())) {
                next = kept.get();
            }
        }
        const int64_t most = budget_ + std::min(in_flight, kMaxWriting);
        if (!next || host_bytes() + n_bytes <= most) return;
        if (closing() || (directory_ && n_writes < kMaxWrites && now_us() >= retry_us_)) {
            write(*next);
        } else {
            leave_memory(next->id);
        }
    }
}

std::string PrefixStore::name_of(const Kept& kept) {
    return StateDirectory::own_name(kept.hashes.back());
}

// By the store's thread while there is one. What cannot be written leaves memory all the same.
void PrefixStore::write(Kept& kept) {
    const std::string name = name_of(kept);
    if (closing()) closing_ns_ -= 1000;
    const int64_t used_ns = closing() ? closing_ns_ : directory_->now_ns();
    Worker::Job job = [this, id = kept.id, changes = kept.changes, old = kept.file, name, used_ns,
                       contents = std::make_shared<Contents>(kept)]() -> Worker::Result {
        try {
            SavedConversation& saved = contents->saved;
            const std::vector<std::string> removed = directory_->write(name, saved, used_ns);
            if (!old.empty() && old != name) directory_->remove(old);
            saved.pages.clear();
            for (SavedState& state : saved.states)
                state.bytes = nullptr;
            return [this, id, changes, name, removed, contents] {
                written(id, changes, name, removed, contents);
            };
        } catch (const std::exception& error) {
            note_(std::string("a conversation is not kept: ") + error.what());
            throw;
        }
    };
    const Worker::Result failed = [this, id = kept.id] {
        retry_us_ = now_us() + kRetryUs;
        if (Kept* unwritten = with_id(id)) unwritten->writing.clear();
        leave_memory(id);
    };
    if (worker_) {
        std::string writing = name;
        worker_->post(std::move(job), failed);
        kept.writing = std::move(writing);  // only now: if memory runs out, nobody writes it
        return;
    }
    const Worker::Result result = Worker::result_of(job, failed);
    job = nullptr;  // which holds the bytes
    result();
}

void PrefixStore::written(uint64_t id, uint64_t changes, const std::string& file,
                          const std::vector<std::string>& removed,
                          const std::shared_ptr<const Contents>& contents) {
    forget_files(removed);
    forget_files({file});  // what it replaced
    Kept* kept = with_id(id);
    if (!kept) return;  // it was erased meanwhile, the file too
    kept->writing.clear();
    kept->file = file;
    if (kept->changes == changes) {
        release_bytes(*kept);
        kept->lost.clear();
    } else {
        kept->in_file = contents;
    }
}

void PrefixStore::forget_files(const std::vector<std::string>& names) {
    for (size_t i = kept_.size(); i-- > 0;) {
        Kept& kept = *kept_[i];
        if (std::find(names.begin(), names.end(), kept.file) == names.end()) continue;
        kept.file.clear();
        kept.in_file = nullptr;
        if (!kept.in_memory()) drop(kept.id);
    }
}

void PrefixStore::collect() {
    if (!worker_) return;
    for (const Worker::Result& result : worker_->take_results())
        result();
    const int64_t now = now_us();
    const auto unfetched = [&](const Load& l) { return l.done && now - l.asked_us > kUnfetchedUs; };
    loads_.erase(std::remove_if(loads_.begin(), loads_.end(), unfetched), loads_.end());
}

void PrefixStore::finish_thread() {
    if (!worker_) return;
    worker_->finish();
    collect();
    worker_ = nullptr;
    clock_ += uint64_t{1} << 32;  // counts down now
    if (directory_) closing_ns_ = directory_->now_ns();
}

void PrefixStore::flush() {
    finish_thread();
    if (!directory_) return;
    std::vector<std::pair<uint64_t, uint64_t>> left;  // by last use
    for (const auto& kept : kept_) {
        if (kept->in_memory()) left.emplace_back(kept->last_use, kept->id);
    }
    std::sort(left.rbegin(), left.rend());
    for (const auto& [_, id] : left) {
        if (Kept* kept = with_id(id)) write(*kept);
    }
}

}  // namespace oj
