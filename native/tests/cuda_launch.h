// How tests run device code: on the emulator, or, compiled by nvcc (build.py --gpu-tests), on a
// GPU.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/phase.h"
#include "cuda/platform.h"

#if defined(OJ_EMULATE)
#define OJ_BODY  // of a kernel: what its operator() is declared with
#else
#include <cuda_runtime.h>
#define OJ_BODY __device__
#endif

namespace oj::cuda {

#if defined(OJ_EMULATE)

constexpr bool on_gpu = false;
using LaunchError = EmulationError;

// Runs kernel() in n_blocks blocks that are resident together; `seed` orders the threads.
template <class Kernel>
void launch(int n_blocks, int shared_bytes, uint64_t seed, const Kernel& kernel) {
    emulate(n_blocks, static_cast<size_t>(shared_bytes), seed, [&] { kernel(); });
}

// Blocks that can be resident together.
template <class Kernel>
int resident_blocks(int) {
    return 4;
}

inline int most_shared_bytes() {
    return most_block_shared;
}

inline void* allocate_shared(size_t bytes) {
    return std::aligned_alloc(128, (bytes + 127) / 128 * 128);
}
inline void free_shared(void* memory) {
    std::free(memory);
}
inline void* allocate_device(size_t bytes) {
    return allocate_shared(bytes);
}
inline void free_device(void* memory) {
    std::free(memory);
}
inline void copy_memory(void* to, const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
}
inline void set_memory(void* at, uint8_t byte, size_t bytes) {
    std::memset(at, byte, bytes);
}
inline int64_t free_memory() {
    return int64_t{1} << 30;
}

#else

constexpr bool on_gpu = true;
using LaunchError = std::runtime_error;

inline void require_cuda(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    throw LaunchError(std::string(what) + ": " + cudaGetErrorString(status));
}

template <class Kernel>
__global__ void __launch_bounds__(block_threads, 1) run_kernel(Kernel kernel) {
    kernel();
}

template <class Kernel>
void launch(int n_blocks, int shared_bytes, uint64_t, const Kernel& kernel) {
    auto function = reinterpret_cast<const void*>(run_kernel<Kernel>);
    require_cuda(
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "shared memory");
    void* arguments[] = {const_cast<Kernel*>(&kernel)};
    require_cuda(cudaLaunchCooperativeKernel(function, dim3(static_cast<unsigned>(n_blocks)),
                                             dim3(block_threads), arguments,
                                             static_cast<size_t>(shared_bytes), nullptr),
                 "launch");
    require_cuda(cudaDeviceSynchronize(), "kernel");
}

template <class Kernel>
int resident_blocks(int shared_bytes) {
    auto function = reinterpret_cast<const void*>(run_kernel<Kernel>);
    require_cuda(
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "shared memory");
    int device = 0, multiprocessors = 0, each = 0;
    require_cuda(cudaGetDevice(&device), "device");
    require_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
                 "multiprocessors");
    require_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, function, block_threads,
                                                               static_cast<size_t>(shared_bytes)),
                 "occupancy");
    return each * multiprocessors;
}

inline int most_shared_bytes() {
    int device = 0, most = 0;
    require_cuda(cudaGetDevice(&device), "device");
    require_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                 "shared memory");
    return most;
}

// Pinned memory of the host: kernels read and write it at the same address.
inline void* allocate_shared(size_t bytes) {
    void* memory = nullptr;
    require_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "pinned memory");
    return memory;
}
inline void free_shared(void* memory) {
    cudaFreeHost(memory);
}
inline void* allocate_device(size_t bytes) {
    void* memory = nullptr;
    require_cuda(cudaMalloc(&memory, bytes), "memory of the device");
    return memory;
}
inline void free_device(void* memory) {
    cudaFree(memory);
}
inline void copy_memory(void* to, const void* from, size_t bytes) {
    require_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copy");
}
inline void set_memory(void* at, uint8_t byte, size_t bytes) {
    require_cuda(cudaMemset(at, byte, bytes), "filling memory");
}
inline int64_t free_memory() {
    size_t free = 0, total = 0;
    require_cuda(cudaMemGetInfo(&free, &total), "free memory");
    return static_cast<int64_t>(free);
}

#endif

// Memory of the device alone: counters that blocks wait for, and what is read fast. Starts as zero.
template <class T>
class DeviceMemory {
public:
    explicit DeviceMemory(size_t n) : data_(static_cast<T*>(allocate_device(n * sizeof(T)))) {
        set_memory(data_, 0, n * sizeof(T));
    }
    ~DeviceMemory() { free_device(data_); }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    T* data() const { return data_; }
    T at(size_t i) const {
        T value;
        copy_memory(&value, data_ + i, sizeof(T));
        return value;
    }
    void set(size_t i, const T& value) { copy_memory(data_ + i, &value, sizeof(T)); }

private:
    T* data_;
};

// A launch: how many blocks, and the order in which threads run.
struct Launch {
    int n_blocks;
    uint64_t seed;
};

using PhaseFunction = void (*)(const Context&, const Grid&, const Phase&);

template <PhaseFunction phase>
struct PhaseKernel {
    Context c;
    Phase p;
    OJ_BODY void operator()() const {
        phase(c, {block_index(), block_count(), shared_memory()}, p);
    }
};

template <PhaseFunction phase>
void run_phase(const Context& c, const Phase& p, Launch at) {
    launch(at.n_blocks, phase_shared_bytes, at.seed, PhaseKernel<phase>{c, p});
}

// Of vectors that kernels work on, aligned for vector loads.
template <class T>
struct SharedAllocator {
    using value_type = T;
    SharedAllocator() = default;
    template <class Other>
    SharedAllocator(const SharedAllocator<Other>&) {}
    T* allocate(size_t n) {
        void* memory = allocate_shared((n + 1) * sizeof(T));
        if (memory == nullptr) throw std::bad_alloc();
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, size_t) { free_shared(memory); }
    template <class Other>
    bool operator==(const SharedAllocator<Other>&) const {
        return true;
    }
    template <class Other>
    bool operator!=(const SharedAllocator<Other>&) const {
        return false;
    }
};
template <class T>
using SharedVector = std::vector<T, SharedAllocator<T>>;

}  // namespace oj::cuda
