#include "cpu/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include "model/error.h"

namespace oj::cpu {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int max_alone = 64;         // jobs between two tries with all threads
constexpr int spins_in_step = 2048;   // about 0.1 ms; then yield: somebody else may need the core
constexpr int spins_for_job = 20000;  // about 1 ms: more than lies between two steps; then sleep

// Spins until ready() or, with a limit of yields, gives up.
template <class Ready>
bool spin(int spins, Ready ready) {
    for (int i = 0; i < spins; ++i) {
        if (ready()) return true;
        _mm_pause();
    }
    return ready();
}

// Whole cores that the control group of this process may use, or 0 where it sets no limit.
int quota_cores() {
    std::ifstream file("/sys/fs/cgroup/cpu.max");
    double quota = 0, period = 0;
    if (!(file >> quota >> period) || period <= 0) return 0;  // "max" is no number
    return std::max(1, static_cast<int>(quota / period));
}

}  // namespace

int ThreadPool::default_threads() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
        std::string siblings;
        if (!std::getline(file, siblings)) siblings = "cpu" + std::to_string(cpu);
        cores.insert(siblings);
    }
    int count = std::max(1, static_cast<int>(cores.size()));
    int quota = quota_cores();
    return quota > 0 ? std::min(count, quota) : count;
}

ThreadPool::ThreadPool(int threads) : count_(threads) {
    try {
        for (int i = 1; i < count_; ++i)
            workers_.emplace_back([this, i] { work(i); });
    } catch (const std::exception& error) {  // no more threads, or no room for one
        close();
        throw Error(OJ_ERR_MEMORY, "cannot start " + std::to_string(count_) + " threads (" +
                                       error.what() + "); lower threads=");
    }
}

ThreadPool::~ThreadPool() {
    close();
}

void ThreadPool::close() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
        job_number_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_)
        worker.join();
}

void ThreadPool::run(Kind* kind, const std::function<void(Worker&)>& job) {
    if (count_ == 1 || kind->alone > 0) {
        if (kind->alone > 0) --kind->alone;
        Worker self(*this, 0, 1);
        job(self);
        return;
    }
    auto start = Clock::now();
    stalled_ = {};
    run_together(job);
    auto took = Clock::now() - start;
    // Alone, the job would take up to count_ times what the threads did between the stalls.
    bool stalled = stalled_ > took - took / count_;
    kind->alone = stalled ? kind->next_alone : 0;
    kind->next_alone = stalled ? std::clamp(2 * kind->next_alone, 2, max_alone) : 0;
}

void ThreadPool::run_together(const std::function<void(Worker&)>& job) {
    bool wake = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        job_ = &job;
        job_number_.fetch_add(1, std::memory_order_release);
        wake = sleeping_ > 0;
    }
    if (wake) wake_.notify_all();
    Worker self(*this, 0, count_);
    job(self);
    barrier(true);
}

void ThreadPool::work(int index) {
    pthread_setname_np(pthread_self(), "openjet-pool");
    unsigned seen = 0;
    while (wait_for_job(seen)) {
        ++seen;
        Worker self(*this, index, count_);
        (*job_)(self);
        barrier(false);
    }
}

// True when there is a job after number `seen`, false when the pool closes.
bool ThreadPool::wait_for_job(unsigned seen) {
    auto ready = [&] { return job_number_.load(std::memory_order_acquire) != seen; };
    if (!spin(spins_for_job, ready)) {
        std::unique_lock<std::mutex> lock(mutex_);
        ++sleeping_;
        wake_.wait(lock, ready);
        --sleeping_;
    }
    return !closing_;
}

void ThreadPool::barrier(bool is_caller) {
    unsigned phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
        arrived_.store(0, std::memory_order_relaxed);
        phase_.store(phase + 1, std::memory_order_release);
        return;
    }
    auto ready = [&] { return phase_.load(std::memory_order_acquire) != phase; };
    if (spin(spins_in_step, ready)) return;
    auto start = Clock::now();
    while (!spin(spins_in_step, ready))
        sched_yield();
    if (is_caller) stalled_ += Clock::now() - start;
}

}  // namespace oj::cpu
