// Large zeroed memory, resident only where touched, on huge pages where the system has them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <string>
#include <utility>

#include "model/error.h"

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

    T* data() const { return data_; }
    size_t size() const { return count_; }
    T& operator[](size_t i) const { return data_[i]; }

private:
    size_t bytes() const { return count_ * sizeof(T); }

    void swap(Pages& other) {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
    }

    T* data_ = nullptr;
    size_t count_ = 0;
};

}  // namespace oj::cpu
