// A thread that does jobs in order. What they found out is handed back as functions that the owner
// runs in its own thread, so that nothing else needs a lock.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace oj {

class Worker {
public:
    using Result = std::function<void()>;
    using Job = std::function<Result()>;  // one that throws has no result

    Worker() : thread_([this] { run(); }) {}
    ~Worker() { finish(); }

    void post(Job job) {
        std::lock_guard<std::mutex> lock(mutex_);
        jobs_.push_back(std::move(job));
        changed_.notify_one();
    }

    // Before all others.
    void post_first(Job job) {
        std::lock_guard<std::mutex> lock(mutex_);
        jobs_.push_front(std::move(job));
        changed_.notify_one();
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
    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            changed_.wait(lock, [&] { return finishing_ || !jobs_.empty(); });
            if (jobs_.empty()) return;
            const Job job = std::move(jobs_.front());
            jobs_.pop_front();
            lock.unlock();
            Result result;
            try {
                result = job();
            } catch (...) {
                result = [] {};
            }
            lock.lock();
            results_.push_back(std::move(result));
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    std::vector<Result> results_;
    bool finishing_ = false;
    std::thread thread_;
};

}  // namespace oj
