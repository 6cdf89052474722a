// Conversations kept beyond the backend's memory: opening the store, saving, restoring, erasing.
#include <chrono>

#include "engine/engine.h"
#include "engine/request.h"

namespace oj {

namespace {

constexpr size_t kMaxNotes = 64;
constexpr auto kRetry = std::chrono::milliseconds(5);  // while a file is being read

void check_bytes(const char* name, int64_t value) {
    if (value >= 0) return;
    throw Error(OJ_ERR_INVALID,
                std::string(name) + " is " + std::to_string(value) + ", expected 0 or more");
}

}  // namespace

std::unique_ptr<PrefixStore> Engine::open_store(const oj_engine_options& options) {
    check_bytes("host_bytes", options.host_bytes);
    check_bytes("state_bytes", options.state_bytes);
    const StateFormat format =
        make_state_format(*model_, options.backend, backend_->state_format());
    std::unique_ptr<StateDirectory> directory;
    if (options.state_dir) {
        directory = std::make_unique<StateDirectory>(
            options.state_dir, static_cast<uint64_t>(options.state_bytes), format);
    }
    auto store = std::make_unique<PrefixStore>(format, options.host_bytes, std::move(directory),
                                               [this](const std::string& line) { note(line); });
    if (options.host_bytes > 0 || options.state_dir) runner_.keep_in(*store);
    return store;
}

// ---------------------------------------------------------------- callers

oj_saved Engine::save(const std::vector<int32_t>& tokens, const std::string& name) {
    StateDirectory& folder = directory(name);
    SavedConversation saved;
    bool done = false;
    while (!done) {
        between_steps([&] { done = runner_.export_stored(tokens, &saved); });
        if (!done) std::this_thread::sleep_for(kRetry);
    }
    if (saved.tokens.empty()) {
        throw Error(OJ_ERR_INVALID, "nothing is stored of this conversation");
    }
    std::vector<std::string> removed;
    try {
        removed = folder.write(name, saved, folder.now_ns());
    } catch (const Error& error) {  // not to be mistaken for the model's file
        throw Error(error.code() == OJ_ERR_IO ? OJ_ERR_INVALID : error.code(), error.what());
    }
    if (!removed.empty()) between_steps([&] { store_->forget_files(removed); });
    return {static_cast<int32_t>(saved.tokens.size()),
            static_cast<int64_t>(state_file_bytes(folder.format(), saved))};
}

oj_saved Engine::restore(const std::string& name, std::vector<int32_t>* tokens) {
    StateDirectory& folder = directory(name);
    SavedConversation saved;
    try {
        saved = folder.open(name).read_all();
    } catch (const Error& error) {
        throw Error(OJ_ERR_INVALID, error.what());
    }
    *tokens = saved.tokens;
    const oj_saved restored{static_cast<int32_t>(saved.tokens.size()),
                            static_cast<int64_t>(state_file_bytes(folder.format(), saved))};
    uint64_t id = 0;
    between_steps([&] { id = store_->add(std::move(saved)); });
    // Where host memory has no room, it is being written to a file of the engine's own.
    for (auto fate = PrefixStore::Fetch::later; fate == PrefixStore::Fetch::later;) {
        between_steps([&] { fate = store_->fate_of(id); });
        if (fate == PrefixStore::Fetch::later) std::this_thread::sleep_for(kRetry);
        if (fate != PrefixStore::Fetch::lost) continue;
        throw Error(OJ_ERR_MEMORY, "no room to keep " + name + ", of " +
                                       std::to_string(restored.n_bytes) +
                                       " bytes; raise host_cache or state_bytes");
    }
    return restored;
}

int32_t Engine::erase(const std::vector<int32_t>& tokens) {
    int32_t n_erased = 0;
    std::future<void> removed;
    between_steps([&] { n_erased = runner_.erase(tokens, &removed); });
    if (removed.valid()) removed.wait();
    return n_erased;
}

StateDirectory& Engine::directory(const std::string& name) const {
    StateDirectory* found = store_->directory();
    if (!found) {
        throw Error(OJ_ERR_INVALID,
                    "conversations are saved in the state directory; open the engine with one");
    }
    found->check_foreign_name(name);
    return *found;
}

void Engine::between_steps(const std::function<void()>& work) {
    std::future<void> done;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        check_serving();
        commands_.emplace_back(work);
        done = commands_.back().get_future();
        work_.notify_one();
    }
    try {
        done.get();
    } catch (const std::future_error&) {
        throw Error(OJ_ERR_CLOSED, "the engine was stopped");
    }
}

void Engine::note(const std::string& line) {
    std::lock_guard<std::mutex> lock(notes_mutex_);
    if (notes_.size() < kMaxNotes) notes_.push_back(line);
}

std::string Engine::take_note() {
    std::lock_guard<std::mutex> lock(notes_mutex_);
    if (notes_.empty()) return "";
    std::string line = std::move(notes_.front());
    notes_.pop_front();
    return line;
}

// ---------------------------------------------------------------- the step thread

void Engine::run_commands() {
    std::vector<std::packaged_task<void()>> commands;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        commands.swap(commands_);
    }
    for (auto& command : commands)
        command();
}

// With a state directory, what is stored survives the engine.
void Engine::keep_all(bool backend_works) {
    if (!store_->directory()) return;
    const auto attempt = [&](const std::function<void()>& work) {
        try {
            work();
        } catch (const std::exception& error) {
            note(std::string("conversations are not kept: ") + error.what());
        }
    };
    attempt([&] { store_->finish_thread(); });
    if (backend_works) attempt([&] { runner_.spill_all(); });
    attempt([&] { store_->flush(); });
}

}  // namespace oj
