// What the CUDA backend asks of a device. Two sides: device_cuda.cu, and
// emulator/device_emulated.cpp with the same kernels on the host. Every call may throw oj::Error:
// OJ_ERR_MEMORY where memory is asked for, else OJ_ERR_FAULT, after which the device is lost to
// this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/repack.h"
#include "model/model.h"

namespace oj::cuda {

struct DeviceInfo {
    std::string name;
    int major, minor;  // compute capability
    int multiprocessors;
    int smallest_ring, largest_ring;  // bytes of a block's shared memory for weights
    int64_t free_bytes, total_bytes;
};

struct StepHeader;

// How a step is run.
enum class StepMode {
    persistent,  // one cooperative launch, in which blocks wait for each other
    graph,       // one kernel a phase, in a CUDA graph
};

struct StepLaunch {
    StepMode mode;
    int n_blocks;
    int ring_bytes;  // as in the header
};

class Device {
public:
    virtual ~Device() = default;

    virtual DeviceInfo info() = 0;

    virtual uint8_t* allocate(int64_t bytes, const char* what) = 0;
    virtual void release(uint8_t* memory) = 0;
    // Pinned host memory that kernels may read at the same address.
    virtual uint8_t* allocate_host(int64_t bytes, const char* what) = 0;
    virtual void release_host(uint8_t* memory) = 0;

    // In the order of the calls, kernels included; only wait() waits. Host memory is pinned.
    virtual void copy(void* to, const void* from, int64_t bytes) = 0;  // any direction
    virtual void clear(void* at, int64_t bytes) = 0;
    // A quantised matrix's rows become tiles.
    virtual void repack(const RepackJob& job) = 0;
    // Blocks of the step kernel that are on the device all at once.
    virtual int resident_blocks(int ring_bytes) = 0;
    // Runs the step that `header` (device memory) describes; `n_entries` is its sequence's length.
    // Every step of a device has the same launch.
    virtual void run_step(StepHeader* header, int n_entries, const StepLaunch& launch) = 0;
    // Until everything is done.
    virtual void wait() = 0;
};

// Throws OJ_ERR_UNSUPPORTED if there is no such device or this library has no code for it.
std::unique_ptr<Device> open_device(int index);

int64_t free_device_memory(int index);

// Memory of a device, or pinned memory of the host.
template <class T, bool on_host>
class Buffer {
public:
    Buffer() = default;
    Buffer(Device& device, int64_t count, const char* what) : device_(&device), count_(count) {
        if (count == 0) return;
        int64_t bytes = count * static_cast<int64_t>(sizeof(T));
        uint8_t* memory =
            on_host ? device.allocate_host(bytes, what) : device.allocate(bytes, what);
        data_ = reinterpret_cast<T*>(memory);
    }
    ~Buffer() {
        uint8_t* memory = reinterpret_cast<uint8_t*>(data_);
        if (memory == nullptr) return;
        on_host ? device_->release_host(memory) : device_->release(memory);
    }
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }

    T* data() const { return data_; }
    int64_t size() const { return count_; }

private:
    void swap(Buffer& other) {
        std::swap(device_, other.device_);
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
    }

    Device* device_ = nullptr;
    T* data_ = nullptr;
    int64_t count_ = 0;
};

template <class T>
using DeviceBuffer = Buffer<T, false>;
template <class T>
using HostBuffer = Buffer<T, true>;

}  // namespace oj::cuda
