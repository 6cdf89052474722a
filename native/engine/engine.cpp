#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "engine/request.h"
#include "model/model.h"

namespace oj {

namespace {

constexpr size_t kMaxEvents = 16384;  // unfetched; steps wait for room

oj_engine_options without_script(oj_engine_options options) {
    options.script = nullptr;  // the backend has its own copy
    options.n_script = 0;
    return options;
}

}  // namespace

Engine::Engine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
               const oj_engine_options& options)
    : model_(std::move(model)),
      options_(without_script(options)),
      backend_(std::move(backend)),
      runner_(*model_, *backend_, options_),
      queue_(options.max_queue, options.max_queue_client),
      stats_(runner_.stats()),
      thread_([this] { run(); }) {}

Engine::~Engine() {
    stop();
}

// ---------------------------------------------------------------- callers

uint64_t Engine::submit(const oj_request& request) {
    std::unique_ptr<Conversation> c = make_conversation(*model_, options_, request);
    std::lock_guard<std::mutex> lock(mutex_);
    check_serving();
    const uint64_t id = last_id_ + 1;
    c->id = id;
    queue_.push(std::move(c));
    last_id_ = id;
    work_.notify_one();
    return id;
}

void Engine::cancel(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return;
    cancels_.push_back(id);
    work_.notify_one();
}

int32_t Engine::poll(oj_event* events, int32_t max, int32_t timeout_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    published_.wait_for(lock, std::chrono::milliseconds(std::max(0, timeout_ms)),
                        [&] { return !events_.empty() || (finished_ && stopping_); });
    if (events_.empty()) return finished_ && stopping_ ? -OJ_ERR_CLOSED : 0;
    const auto n = std::min<size_t>(static_cast<size_t>(max), events_.size());
    std::copy_n(events_.begin(), n, events);
    events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(n));
    work_.notify_one();
    return static_cast<int32_t>(n);
}

oj_engine_stats Engine::stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.waiting = queue_.size();
    return stats_;
}

void Engine::check_health() {
    std::lock_guard<std::mutex> lock(mutex_);
    check_serving();
}

void Engine::check_serving() const {
    if (!fault_.empty()) throw Error(OJ_ERR_FAULT, "the engine is lost, " + fault_);
    if (stopping_) throw Error(OJ_ERR_CLOSED, "the engine was stopped");
}

void Engine::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        work_.notify_one();
        published_.notify_all();
    }
    std::call_once(joined_, [this] { thread_.join(); });
}

// ---------------------------------------------------------------- the step thread

void Engine::run() {
    oj_finish finish = OJ_FINISH_CANCEL;
    try {
        while (wait_for_work()) {
            end_requests();
            while (admit_one()) {
            }
            runner_.step();
            publish();
        }
    } catch (const std::exception& error) {
        std::lock_guard<std::mutex> lock(mutex_);
        fault_ = std::string("the backend failed: ") + error.what();
        finish = OJ_FINISH_ERROR;
    }
    end_all(finish);
}

// False when the engine stops.
bool Engine::wait_for_work() {
    std::unique_lock<std::mutex> lock(mutex_);
    work_.wait(lock, [&] {
        if (stopping_) return true;
        if (events_.size() >= kMaxEvents) return false;
        return queue_.size() > 0 || !cancels_.empty() || runner_.has_work();
    });
    return !stopping_;
}

// Cancelled and late requests.
void Engine::end_requests() {
    std::vector<uint64_t> cancels;
    const int64_t now = now_us();
    const auto finish_of = [&](const Conversation& c) -> int32_t {
        if (std::find(cancels.begin(), cancels.end(), c.id) != cancels.end()) {
            return OJ_FINISH_CANCEL;
        }
        return c.deadline_us > 0 && now >= c.deadline_us ? OJ_FINISH_DEADLINE : -1;
    };
    std::vector<std::unique_ptr<Conversation>> waiting;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        cancels.swap(cancels_);
        waiting = queue_.remove_if([&](const Conversation& c) { return finish_of(c) >= 0; });
    }
    for (const auto& c : waiting)
        runner_.end(*c, static_cast<oj_finish>(finish_of(*c)));
    runner_.end_running(finish_of);
}

// Admits the next request that can run; false if there is none.
bool Engine::admit_one() {
    std::vector<Conversation*> heads;  // only this thread takes requests out
    {
        std::lock_guard<std::mutex> lock(mutex_);
        heads = queue_.heads();
    }
    for (Conversation* head : heads) {
        const Admission admission = runner_.admit(*head);
        if (admission == Admission::no_room) return false;  // nobody overtakes it
        if (admission == Admission::later) continue;
        std::lock_guard<std::mutex> lock(mutex_);
        runner_.add(queue_.pop(head));
        return true;
    }
    return false;
}

void Engine::publish() {
    const std::vector<oj_event> events = runner_.take_events();
    std::vector<std::unique_ptr<Conversation>> preempted = runner_.take_preempted();
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& c : preempted)
        queue_.push_front(std::move(c));
    events_.insert(events_.end(), events.begin(), events.end());
    stats_ = runner_.stats();
    if (!events.empty()) published_.notify_all();
}

// The last events of everybody, and of the step thread.
void Engine::end_all(oj_finish finish) {
    std::vector<std::unique_ptr<Conversation>> waiting = runner_.take_preempted();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto& c : queue_.remove_if([](const Conversation&) { return true; }))
            waiting.push_back(std::move(c));
    }
    for (const auto& c : waiting)
        runner_.end(*c, finish);
    for (const auto& c : runner_.running()) {
        if (!c->ended) runner_.end(*c, finish);
    }
    const std::vector<oj_event> events = runner_.take_events();
    std::lock_guard<std::mutex> lock(mutex_);
    events_.insert(events_.end(), events.begin(), events.end());
    stats_ = runner_.stats();
    stats_.running = 0;
    finished_ = true;
    published_.notify_all();
}

}  // namespace oj
