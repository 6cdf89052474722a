// The device of libopenjet_cuda.so: the CUDA runtime and the kernels. Calls of runtime API newer
// than CUDA 12.0 stand behind a version guard (tools/cuda_api_check.py).
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cuda/device.h"
#include "cuda/repack.cuh"
#include "cuda/step_kernel.cuh"

// One launch a step; all blocks are resident.
OJ_KERNEL oj_step(oj::cuda::StepHeader* header) {
    oj::cuda::run_step(*header);
}

// One launch a phase.
OJ_KERNEL oj_entry(oj::cuda::StepHeader* header, int entry) {
    oj::cuda::run_entry(*header, entry);
}

OJ_KERNEL oj_repack(oj::cuda::RepackJob job) {
    oj::cuda::repack_rows(job);
}

namespace oj::cuda {

namespace {

[[noreturn]] void fail(cudaError_t status, const char* call) {
    throw Error(OJ_ERR_FAULT, std::string("the GPU failed: ") + cudaGetErrorString(status) + " (" +
                                  cudaGetErrorName(status) + " in " + call +
                                  "); this process can use it no more");
}

void check(cudaError_t status, const char* call) {
    if (status != cudaSuccess) fail(status, call);
}

#define OJ_CUDA(call) check(call, #call)

std::string gigabytes(size_t bytes) {
    return std::to_string(bytes / 1'000'000'000) + "." + std::to_string(bytes / 100'000'000 % 10) +
           " GB";
}

class CudaDevice final : public Device {
public:
    explicit CudaDevice(int index) : index_(index) {
        use();
        OJ_CUDA(cudaGetDeviceProperties(&properties_, index));
        prepare_kernels();
        OJ_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    }

    ~CudaDevice() override {
        cudaSetDevice(index_);
        for (const auto& graph : graphs_)
            cudaGraphExecDestroy(graph.second);
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
    }

    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;

    DeviceInfo info() override {
        use();
        size_t free = 0, total = 0;
        OJ_CUDA(cudaMemGetInfo(&free, &total));
        return {properties_.name,           properties_.major,
                properties_.minor,          properties_.multiProcessorCount,
                smallest_ring_bytes,        most_shared_bytes() - ring_at,
                static_cast<int64_t>(free), static_cast<int64_t>(total)};
    }

    uint8_t* allocate(int64_t bytes, const char* what) override {
        use();
        void* memory = nullptr;
        cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(bytes));
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            size_t free = 0, total = 0;
            OJ_CUDA(cudaMemGetInfo(&free, &total));
            throw Error(OJ_ERR_MEMORY, "no room for " + gigabytes(static_cast<size_t>(bytes)) +
                                           " of " + what + " on the GPU, which has " +
                                           gigabytes(free) + " free of " + gigabytes(total) +
                                           "; lower the option it depends on");
        }
        check(status, "cudaMalloc");
        return static_cast<uint8_t*>(memory);
    }

    void release(uint8_t* memory) override {
        cudaSetDevice(index_);
        cudaFree(memory);
    }

    uint8_t* allocate_host(int64_t bytes, const char* what) override {
        use();
        void* memory = nullptr;
        cudaError_t status =
            cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            throw Error(OJ_ERR_MEMORY, "no room for " + gigabytes(static_cast<size_t>(bytes)) +
                                           " of pinned host memory for " + what);
        }
        check(status, "cudaHostAlloc");
        return static_cast<uint8_t*>(memory);
    }

    void release_host(uint8_t* memory) override {
        cudaSetDevice(index_);
        cudaFreeHost(memory);
    }

    void copy(void* to, const void* from, int64_t bytes) override {
        if (bytes == 0) return;
        use();
        OJ_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_));
    }

    void clear(void* at, int64_t bytes) override {
        if (bytes == 0) return;
        use();
        OJ_CUDA(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), stream_));
    }

    void repack(const RepackJob& job) override {
        use();
        int64_t wanted = (job.pieces() + block_threads - 1) / block_threads;
        auto blocks = std::min<int64_t>(wanted, 8 * properties_.multiProcessorCount);
        oj_repack<<<static_cast<unsigned>(blocks), block_threads, 0, stream_>>>(job);
        OJ_CUDA(cudaGetLastError());
    }

    int resident_blocks(int ring_bytes) override {
        use();
        int per_multiprocessor = 0;
        OJ_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &per_multiprocessor, oj_step, block_threads, shared_bytes(ring_bytes)));
        return per_multiprocessor * properties_.multiProcessorCount;
    }

    void run_step(StepHeader* header, int n_entries, const StepLaunch& launch) override {
        use();
        if (launch.mode == StepMode::graph) {
            OJ_CUDA(cudaGraphLaunch(graph(header, n_entries, launch), stream_));
            return;
        }
        void* arguments[] = {&header};
        OJ_CUDA(cudaLaunchCooperativeKernel(
            reinterpret_cast<const void*>(oj_step), dim3(static_cast<unsigned>(launch.n_blocks)),
            dim3(block_threads), arguments, shared_bytes(launch.ring_bytes), stream_));
    }

    void wait() override {
        use();
        OJ_CUDA(cudaStreamSynchronize(stream_));
    }

private:
    // The device is a property of the calling thread.
    void use() { OJ_CUDA(cudaSetDevice(index_)); }

    int most_shared_bytes() const { return static_cast<int>(properties_.sharedMemPerBlockOptin); }
    static size_t shared_bytes(int ring_bytes) { return static_cast<size_t>(ring_at + ring_bytes); }

    // What is not taken as shared memory stays the L1 cache's: the driver chooses it by the launch.
    void prepare_kernels() {
        for (auto kernel :
             {reinterpret_cast<const void*>(oj_step), reinterpret_cast<const void*>(oj_entry)}) {
            cudaError_t status = cudaFuncSetAttribute(
                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared_bytes());
            if (status == cudaErrorNoKernelImageForDevice ||
                status == cudaErrorInvalidDeviceFunction) {
                throw Error(OJ_ERR_UNSUPPORTED,
                            std::string("libopenjet_cuda.so has no code for ") + properties_.name +
                                " (sm_" + std::to_string(properties_.major) +
                                std::to_string(properties_.minor) +
                                "); build it with OPENJET_CUDA_ARCHS set to that");
            }
            check(status, "cudaFuncSetAttribute");
        }
    }

    // A step's launches, recorded once for each number of entries: what an entry does is data.
    cudaGraphExec_t graph(StepHeader* header, int n_entries, const StepLaunch& launch) {
        auto [found, is_new] = graphs_.try_emplace({header, n_entries});
        if (is_new) found->second = record(header, n_entries, launch);
        return found->second;
    }

    cudaGraphExec_t record(StepHeader* header, int n_entries, const StepLaunch& launch) {
        OJ_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < n_entries; ++i) {
            cudaLaunchConfig_t config = {};
            config.gridDim = dim3(static_cast<unsigned>(launch.n_blocks));
            config.blockDim = dim3(block_threads);
            config.dynamicSmemBytes = shared_bytes(launch.ring_bytes);
            config.stream = stream_;
            cudaLaunchAttribute overlap = {};
#if CUDART_VERSION >= 12030
            if (properties_.major >= 9 && i > 0) {
                overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
                overlap.val.programmaticStreamSerializationAllowed = 1;
                config.numAttrs = 1;
            }
#endif
            config.attrs = &overlap;
            OJ_CUDA(cudaLaunchKernelEx(&config, oj_entry, header, i));
        }
        cudaGraph_t graph = nullptr;
        OJ_CUDA(cudaStreamEndCapture(stream_, &graph));
        cudaGraphExec_t executable = nullptr;
        cudaError_t status = cudaGraphInstantiateWithFlags(&executable, graph, 0);
        cudaGraphDestroy(graph);
        check(status, "cudaGraphInstantiateWithFlags");
        return executable;
    }

    int index_;
    cudaDeviceProp properties_ = {};
    cudaStream_t stream_ = nullptr;
    std::map<std::pair<StepHeader*, int>, cudaGraphExec_t> graphs_;
};

// Before anything else is asked: a machine without a driver is no fault.
void require_device(int index) {
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice) count = 0;
    if (status != cudaSuccess && status != cudaErrorNoDevice) {
        throw Error(OJ_ERR_UNSUPPORTED,
                    std::string("no NVIDIA GPU can be used: ") + cudaGetErrorString(status));
    }
    if (index >= 0 && index < count) return;
    throw Error(OJ_ERR_UNSUPPORTED, "device is " + std::to_string(index) + "; this machine has " +
                                        std::to_string(count) + " NVIDIA GPUs that can be used");
}

}  // namespace

std::unique_ptr<Device> open_device(int index) {
    require_device(index);
    return std::make_unique<CudaDevice>(index);
}

int64_t free_device_memory(int index) {
    require_device(index);
    OJ_CUDA(cudaSetDevice(index));
    size_t free = 0, total = 0;
    OJ_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
}

}  // namespace oj::cuda
