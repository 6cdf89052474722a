// A thread that does jobs in order. What they found out is handed back as functions that the owner
// runs in its own thread, so that nothing else needs a lock. A job that throws has the result that
// it was posted with for that.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace oj {

class Worker {
public:
    using Result = std::function<void()>;
    using Job = std::function<Result()>;

    Worker() : thread_([this] { run(); }) {}
    ~Worker() { finish(); }

    void post(Job job, Result failed) {
        std::lock_guard<std::mutex> lock(mutex_);
        jobs_.push_back({std::move(job), std::move(failed)});
        changed_.notify_one();
    }

    // Before all others.
    void post_first(Job job, Result failed) {
        std::lock_guard<std::mutex> lock(mutex_);
        jobs_.push_front({std::move(job), std::move(failed)});
        changed_.notify_one();
    }

    // For an owner without the thread.
    static Result result_of(const Job& job, const Result& failed) {
        try {
            return job();
        } catch (...) {
            return failed;
        }
    }

    // What was found out since the last call.
    std::vector<Result> take_results() {
        std::lock_guard<std::mutex> lock(mutex_);
        return std::exchange(results_, {});
    }

    // Does all jobs and ends the thread.
    void finish() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            finishing_ = true;
            changed_.notify_one();
        }
        if (thread_.joinable()) thread_.join();
    }

private:
    struct Posted {
        Job job;
        Result failed;
    };

    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            changed_.wait(lock, [&] { return finishing_ || !jobs_.empty(); });
            if (jobs_.empty()) return;
            std::optional<Posted> posted = std::move(jobs_.front());
            jobs_.pop_front();
            lock.unlock();
            Result result = result_of(posted->job, posted->failed);
            posted = std::nullopt;  // with what it holds
            lock.lock();
            results_.push_back(std::move(result));
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Posted> jobs_;
    std::vector<Result> results_;
    bool finishing_ = false;
    std::thread thread_;
};

}  // namespace oj
