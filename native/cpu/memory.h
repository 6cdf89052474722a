// Large zeroed memory, resident only where written to, on huge pages where the system has them.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

#include "model/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace oj::cpu {

template <class T>
class Pages {
public:
    Pages() = default;

    // `what` names the memory in the error: "KV pages".
    Pages(size_t count, const char* what) : count_(count) {
        if (count == 0) return;
        void* memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            throw Error(OJ_ERR_MEMORY, "no room for " + std::to_string(bytes()) + " bytes of " +
                                           what + "; lower the option it depends on");
        }
        madvise(memory, bytes(), MADV_HUGEPAGE);
        data_ = static_cast<T*>(memory);
    }

    ~Pages() {
        if (data_ != nullptr) munmap(data_, bytes());
    }

    Pages(Pages&& other) noexcept { swap(other); }

    Pages& operator=(Pages&& other) noexcept {
        swap(other);
        return *this;
    }

    // Makes the beginning resident, as far as *budget bytes reach, and takes them off it. The first
    // write to a page takes the system up to milliseconds, which no step should wait for. Before
    // anything is written.
    void touch(size_t* budget) const {
        const size_t n = std::min(bytes(), *budget);
        auto* memory = reinterpret_cast<volatile char*>(data_);
        for (size_t at = 0; at < n; at += kSystemPage)
            memory[at] = 0;
        *budget -= n;
    }

    // Makes all of it resident and changes nothing, beside whoever reads and writes it, until
    // `stop`. Systems before Linux 5.14 leave it undone.
    void populate(const std::atomic<bool>& stop) const {
        auto* memory = reinterpret_cast<char*>(data_);
        for (size_t at = 0; at < bytes() && !stop.load(std::memory_order_relaxed); at += kPiece) {
            const size_t n = std::min(kPiece, bytes() - at);
            if (madvise(memory + at, n, MADV_POPULATE_WRITE) != 0) return;
        }
    }

    T* data() const { return data_; }
    size_t size() const { return count_; }
    T& operator[](size_t i) const { return data_[i]; }

private:
    static constexpr size_t kSystemPage = 4096;
    static constexpr size_t kPiece = size_t{2} << 20;

    size_t bytes() const { return count_ * sizeof(T); }

    void swap(Pages& other) {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
    }

    T* data_ = nullptr;
    size_t count_ = 0;
};

}  // namespace oj::cpu
