// The engine: a thread that serves many requests, one batched step after the other.
//
// The life of a request: submit() checks and queues it (request, queue) -> admit: slot, longest
// stored prefix, pages (runner) -> its prompt is read in chunks beside the others' decoding
// (scheduler) -> its tokens are chosen and verified by the backend (sampling.h), committed and
// turned into events (runner) -> poll() hands them out -> its live end stays for the follow-up
// (prefix_index).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/prefix_store.h"
#include "engine/queue.h"
#include "engine/runner.h"

namespace oj {

// Every method may be called from any thread. Errors are thrown as oj::Error.
class Engine {
public:
    Engine(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
           const oj_engine_options& options);
    ~Engine();

    uint64_t submit(const oj_request& request);
    void cancel(uint64_t id);
    int32_t poll(oj_event* events, int32_t max, int32_t timeout_ms);
    int32_t poll_masks(oj_mask_request* asked, int32_t timeout_ms);
    void set_masks(uint64_t id, int32_t position, const uint32_t* masks, int32_t n_masks,
                   const int32_t* forced, int32_t n_forced);
    oj_engine_stats stats();
    void check_health();  // throws when stopped or lost
    oj_saved save(const std::vector<int32_t>& tokens, const std::string& name);
    oj_saved restore(const std::string& name, std::vector<int32_t>* tokens);
    int32_t erase(const std::vector<int32_t>& tokens);
    std::string take_note();  // "" if there is none
    void stop();

private:
    // the step thread
    void run();
    bool wait_for_work();
    void keep_masks();
    void end_requests();
    bool admit_one();
    void publish(bool stepped);
    void drop_mask_requests(uint64_t id);  // with the lock held
    void end_all(oj_finish finish);
    void keep_all(bool backend_works);

    std::unique_ptr<PrefixStore> open_store(const oj_engine_options& options);
    StateDirectory& directory(const std::string& name) const;
    void between_steps(const std::function<void()>& work);  // waits until the thread has done it
    void run_commands();
    void note(const std::string& line);

    void check_serving() const;  // with the lock held

    const std::shared_ptr<const Model> model_;
    const oj_engine_options options_;
    const std::unique_ptr<Backend> backend_;
    std::mutex notes_mutex_;
    std::deque<std::string> notes_;

    Runner runner_;  // the step thread's own
    const std::unique_ptr<PrefixStore> store_;

    std::mutex mutex_;                   // guards what follows
    std::condition_variable work_;       // for the step thread: requests, cancels, room, stop
    std::condition_variable published_;  // for poll(): events, end
    std::condition_variable asked_;      // for poll_masks(): questions, end
    RequestQueue queue_;
    std::vector<uint64_t> cancels_;
    std::deque<oj_event> events_;
    std::deque<oj_mask_request> mask_requests_;
    std::vector<MaskReply> mask_replies_;
    std::vector<std::packaged_task<void()>> commands_;
    size_t n_asked_ = 0;  // mask requests of the last step
    bool admit_ = false;  // something changed since the last admission
    oj_engine_stats stats_ = {};
    std::string fault_;  // what the backend said when it failed
    uint64_t last_id_ = 0;
    bool stopping_ = false;
    bool finished_ = false;  // the step thread is done

    std::once_flag joined_;
    std::thread thread_;
};

}  // namespace oj
