// Handles of the C interface: numbers that are never reused, not addresses. A call on a closed or
// foreign handle finds nothing instead of freed memory, and an object lives until the last call
// inside it has returned.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace oj {

template <typename Handle, typename Object>
class Handles {
public:
    Handle* add(std::shared_ptr<Object> object) {
        std::lock_guard<std::mutex> lock(mutex_);
        Handle* handle = reinterpret_cast<Handle*>(++last_);
        objects_.emplace(handle, std::move(object));
        return handle;
    }

    // NULL if there is no such object.
    std::shared_ptr<Object> find(const Handle* handle) {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto found = objects_.find(handle);
        return found == objects_.end() ? nullptr : found->second;
    }

    std::shared_ptr<Object> remove(const Handle* handle) {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto found = objects_.find(handle);
        if (found == objects_.end()) return nullptr;
        std::shared_ptr<Object> object = std::move(found->second);
        objects_.erase(found);
        return object;
    }

private:
    std::mutex mutex_;
    std::unordered_map<const Handle*, std::shared_ptr<Object>> objects_;
    uintptr_t last_ = 0;
};

}  // namespace oj
