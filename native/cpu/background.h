// A thread for what may as well be done later.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

namespace oj::cpu {

// Runs work(stop) on a thread of the lowest priority. The destructor sets `stop` and waits. Where
// the system gives no thread, nothing is run.
class Background {
public:
    template <class Work>
    explicit Background(Work work) {
        try {
            thread_ = std::thread([this, work = std::move(work)] {
                setpriority(PRIO_PROCESS, 0, 19);  // on Linux of the calling thread alone
                work(stop_);
            });
        } catch (const std::system_error&) {
        }
    }

    ~Background() {
        stop_ = true;
        if (thread_.joinable()) thread_.join();
    }

    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

private:
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace oj::cpu
