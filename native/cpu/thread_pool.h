// Persistent threads that run one function together, phase by phase.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace oj::cpu {

class ThreadPool;

// One thread's view of a running job.
class Worker {
public:
    Worker(ThreadPool& pool, int index, int count) : pool_(pool), index_(index), count_(count) {}

    int index() const { return index_; }
    int count() const { return count_; }

    // Waits until every thread of the job is here; what they wrote before is then visible.
    void barrier();

    // Calls f(i) for this thread's share of 0..n-1. Which thread gets an item depends on nothing
    // but n, and no item's result may depend on it.
    template <class F>
    void share(int n, F&& f) const {
        for (int i = index_; i < n; i += count_)
            f(i);
    }

private:
    ThreadPool& pool_;
    int index_;
    int count_;
};

class ThreadPool {
public:
    // Physical cores that this process may run on, as far as its CPU quota goes.
    static int default_threads();

    explicit ThreadPool(int threads);  // OJ_ERR_MEMORY where the system gives no more threads
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return count_; }

    // What run() remembers of the jobs of one kind, which take about as long as each other. Whoever
    // runs them keeps it.
    struct Kind {
        int alone = 0;       // jobs still to run on the caller alone
        int next_alone = 0;  // ... after the next stall
    };

    // Runs job on every thread, the caller's included, and returns when all are done. The job must
    // not throw. One caller at a time.
    //
    // Where other processes keep the cores busy, a step waits at barriers for threads that do not
    // run. When that costs more than the threads gain twice in a row, the next jobs of this kind
    // run on the caller alone: what a short job waited says nothing about a long one.
    void run(Kind* kind, const std::function<void(Worker&)>& job);

private:
    friend class Worker;

    void close();
    void run_together(const std::function<void(Worker&)>& job);
    void work(int index);
    void barrier(bool is_caller);
    bool wait_for_job(unsigned seen);

    const int count_;
    std::vector<std::thread> workers_;

    // Jobs are numbered; a worker spins a little for the next number, then sleeps.
    std::atomic<unsigned> job_number_{0};
    const std::function<void(Worker&)>* job_ = nullptr;
    std::mutex mutex_;
    std::condition_variable wake_;
    int sleeping_ = 0;      // guarded by mutex_
    bool closing_ = false;  // written before job_number_ moves for the last time

    // The caller's alone.
    std::chrono::nanoseconds stalled_{0};  // in this job's barriers, beyond an ordinary wait

    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> phase_{0};
};

inline void Worker::barrier() {
    if (count_ > 1) pool_.barrier(index_ == 0);
}

}  // namespace oj::cpu
