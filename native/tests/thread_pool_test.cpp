// Threads that run jobs together, and jobs that run alone where threads are kept from running: that
// is found out for each kind of job.
#include "cpu/thread_pool.h"

#include <chrono>
#include <thread>
#include <vector>

#include "expect.h"

namespace oj::test {
namespace {

using cpu::ThreadPool;
using cpu::Worker;

constexpr int n_threads = 3;

// How many threads run a job of this kind, in which the caller waits for the others if there are
// any: as where these are kept from running.
int threads_of_stalling_job(ThreadPool& pool, ThreadPool::Kind* kind) {
    int count = 0;
    pool.run(kind, [&](Worker& worker) {
        if (worker.index() == 0) count = worker.count();
        if (worker.index() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
    return count;
}

int threads_of_job(ThreadPool& pool, ThreadPool::Kind* kind) {
    int count = 0;
    pool.run(kind, [&](Worker& worker) {
        if (worker.index() == 0) count = worker.count();
    });
    return count;
}

// Until a job has run alone, which takes two stalls in a row. A job whose caller was itself kept
// from running is none, so there may be more before.
void stall(ThreadPool& pool, ThreadPool::Kind* kind) {
    for (int tries = 0; tries < 1000; ++tries) {
        if (threads_of_stalling_job(pool, kind) == 1) return;
    }
    expect(false, "jobs run alone after others that stalled");
}

// A long job must not take count times as long because a short one had to wait.
void test_stalls_count_for_their_kind() {
    ThreadPool pool(n_threads);
    ThreadPool::Kind shorter, longer;
    stall(pool, &shorter);
    expect(threads_of_job(pool, &longer) == n_threads, "another kind runs on every thread");
    expect(threads_of_job(pool, &shorter) == 1, "... while the next of this kind runs alone too");
    expect(threads_of_job(pool, &shorter) == n_threads, "then every thread is tried again");
}

void test_one_stall_may_be_chance() {
    ThreadPool pool(n_threads);
    ThreadPool::Kind kind;
    threads_of_stalling_job(pool, &kind);
    expect(threads_of_job(pool, &kind) == n_threads, "the job behind a stall has every thread");
}

// Every thread once a job, whether jobs run together or alone; behind a barrier all see what was
// written before it.
void test_phases() {
    ThreadPool pool(n_threads);
    ThreadPool::Kind steady, stalling;
    std::vector<int> first(8), second(8);
    for (int job = 1; job <= 200; ++job) {
        if (job % 50 == 0) stall(pool, &stalling);
        pool.run(job % 2 == 0 ? &steady : &stalling, [&](Worker& worker) {
            worker.share(8, [&](int i) { first[i] = job * i; });
            worker.barrier();
            worker.share(8, [&](int i) { second[i] += first[7 - i]; });
        });
    }
    for (int i = 0; i < 8; ++i)
        expect(second[i] == (7 - i) * 200 * 201 / 2, "every item once a job");
}

void test_one_thread() {
    ThreadPool pool(1);
    ThreadPool::Kind kind;
    for (int i = 0; i < 3; ++i)
        expect(threads_of_stalling_job(pool, &kind) == 1, "a pool of one thread is its caller");
}

}  // namespace
}  // namespace oj::test

int main() {
    using namespace oj::test;
    test_stalls_count_for_their_kind();
    test_one_stall_may_be_chance();
    test_phases();
    test_one_thread();
    return report();
}
