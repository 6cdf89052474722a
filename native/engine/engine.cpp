#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "engine/request.h"
#include "model/model.h"

namespace oj {

namespace {

constexpr size_t kMaxEvents = 16384;                          // unfetched; steps wait for room
constexpr auto kMaskGrace = std::chrono::microseconds(200);   // a step waits this long for masks
constexpr auto kCheckPeriod = std::chrono::milliseconds(20);  // of deadlines, while nothing runs
constexpr int32_t kMaskTimeoutMs = 30000;

oj_engine_options without_pointers(oj_engine_options options) {
    options.script = nullptr;  // the backend and the store have copies
    options.n_script = 0;
    options.state_dir = nullptr;
    options.backend.draft_head_ids = nullptr;
    return options;
}

}  // namespace

Engine::Engine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
               const oj_engine_options& options)
    : model_(std::move(model)),
      options_(without_pointers(options)),
      backend_(std::move(backend)),
      runner_(*model_, *backend_, options_),
      store_(open_store(options)),
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
    admit_ = true;
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

int32_t Engine::poll_masks(oj_mask_request* asked, int32_t timeout_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    asked_.wait_for(lock, std::chrono::milliseconds(std::max(0, timeout_ms)),
                    [&] { return !mask_requests_.empty() || stopping_; });
    if (stopping_) return -OJ_ERR_CLOSED;
    if (mask_requests_.empty()) return 0;
    *asked = mask_requests_.front();
    mask_requests_.pop_front();
    return 1;
}

void Engine::set_masks(uint64_t id, int32_t position, const uint32_t* masks, int32_t n_masks,
                       const int32_t* forced, int32_t n_forced) {
    const int32_t n_vocab = model_->hparams.n_vocab;
    check_masks(masks, n_masks, forced, n_forced, n_vocab);
    const size_t n_words = (static_cast<size_t>(n_vocab) + 31) / 32;
    MaskReply reply{id, position, n_masks, {}, {}};
    reply.masks.assign(masks, masks + static_cast<size_t>(n_masks) * n_words);
    reply.forced.assign(forced, forced + n_forced);
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return;
    mask_replies_.push_back(std::move(reply));
    work_.notify_one();
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
        asked_.notify_all();
    }
    std::call_once(joined_, [this] { thread_.join(); });
}

// ---------------------------------------------------------------- the step thread

void Engine::run() {
    pthread_setname_np(pthread_self(), "openjet-step");
    oj_finish finish = OJ_FINISH_CANCEL;
    try {
        while (wait_for_work()) {
            run_commands();
            keep_masks();
            end_requests();
            while (admit_one()) {
            }
            const bool stepped = runner_.step();
            publish(stepped);
        }
    } catch (const std::exception& error) {
        std::lock_guard<std::mutex> lock(mutex_);
        fault_ = std::string("the backend failed: ") + error.what();
        finish = OJ_FINISH_ERROR;
    }
    end_all(finish);
    keep_all(finish != OJ_FINISH_ERROR);
}

// False when the engine stops.
bool Engine::wait_for_work() {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto has_work = [&] {
        if (stopping_) return true;
        if (events_.size() >= kMaxEvents) return false;
        return (admit_ && queue_.size() > 0) || !cancels_.empty() || !mask_replies_.empty() ||
               !commands_.empty() || runner_.has_work();
    };
    if (queue_.size() == 0 && runner_.running().empty()) {
        work_.wait(lock, has_work);
    } else {
        // Somebody waits, for masks or for a slot, and may run out of time.
        while (!work_.wait_for(lock, kCheckPeriod, has_work) && events_.size() >= kMaxEvents) {
        }
    }
    // Those who could step now would leave behind those whose masks are just being made.
    work_.wait_for(lock, kMaskGrace, [&] { return stopping_ || mask_replies_.size() >= n_asked_; });
    n_asked_ = 0;
    admit_ = false;
    return !stopping_;
}

void Engine::keep_masks() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (MaskReply& reply : mask_replies_) {
        if (runner_.keep_masks(reply)) continue;
        Conversation* const waiting = queue_.find(reply.request);  // it had to make room
        if (waiting) waiting->constraint.keep(std::move(reply));
    }
    mask_replies_.clear();
}

// Cancelled and late requests, and those whose masks do not come.
void Engine::end_requests() {
    std::vector<uint64_t> cancels;
    const int64_t now = now_us();
    const int64_t mask_timeout_us =
        int64_t{1000} * (options_.mask_timeout_ms ? options_.mask_timeout_ms : kMaskTimeoutMs);
    const auto finish_of = [&](const Conversation& c) -> int32_t {
        if (std::find(cancels.begin(), cancels.end(), c.id) != cancels.end()) {
            return OJ_FINISH_CANCEL;
        }
        if (c.deadline_us > 0 && now >= c.deadline_us) return OJ_FINISH_DEADLINE;
        return c.constraint.is_late(now, mask_timeout_us) ? OJ_FINISH_CONSTRAINT : -1;
    };
    {
        std::lock_guard<std::mutex> lock(mutex_);
        cancels.swap(cancels_);
        queue_.erase_if([&](Conversation& c) {
            const int32_t finish = finish_of(c);
            if (finish >= 0) runner_.end(c, static_cast<oj_finish>(finish));
            return finish >= 0;
        });
    }
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

void Engine::publish(bool stepped) {
    std::lock_guard<std::mutex> lock(mutex_);
    // Taken from the runner once they are here: no last event is lost when memory runs out.
    events_.insert(events_.end(), runner_.events().begin(), runner_.events().end());
    const std::vector<oj_event> events = runner_.take_events();
    const std::vector<oj_mask_request> asked = runner_.take_mask_requests();
    for (auto& c : runner_.preempted())
        queue_.push_front(std::move(c));
    runner_.preempted().clear();
    stats_ = runner_.stats();
    if (!events.empty()) published_.notify_all();
    for (const oj_event& event : events) {
        if (event.kind == OJ_EVENT_DONE) drop_mask_requests(event.request);
    }
    mask_requests_.insert(mask_requests_.end(), asked.begin(), asked.end());
    n_asked_ = asked.size();
    if (!asked.empty()) asked_.notify_all();
    admit_ = admit_ || stepped || !events.empty();
}

void Engine::drop_mask_requests(uint64_t id) {
    mask_requests_.erase(
        std::remove_if(mask_requests_.begin(), mask_requests_.end(),
                       [&](const oj_mask_request& asked) { return asked.request == id; }),
        mask_requests_.end());
}

// The last events of everybody, and of the step thread.
void Engine::end_all(oj_finish finish) {
    const auto end = [&](Conversation& c) {
        if (!c.ended) runner_.end(c, finish);
        return true;
    };
    for (const auto& c : runner_.preempted()) {
        if (c) end(*c);
    }
    for (const auto& c : runner_.running())
        end(*c);
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.erase_if(end);
    const std::vector<oj_event> events = runner_.take_events();
    commands_.clear();  // whoever waits for one is told that the engine is closed
    events_.insert(events_.end(), events.begin(), events.end());
    stats_ = runner_.stats();
    stats_.running = 0;
    finished_ = true;
    published_.notify_all();
}

}  // namespace oj
