// The device of tests: host memory, and kernels run by the emulator when they are asked for.
#include <cstdlib>
#include <cstring>

#include "cuda/device.h"
#include "cuda/repack.cuh"
#include "cuda/step_kernel.cuh"

namespace oj::cuda {

namespace {

constexpr int n_resident = 4;
constexpr int most_shared_bytes = 227 << 10;  // a block's: the largest of the supported cards

class EmulatedDevice final : public Device {
public:
    DeviceInfo info() override {
        int64_t memory = int64_t{1} << 36;
        return {"emulated", 0,     0, n_resident, smallest_ring_bytes, most_shared_bytes - ring_at,
                memory,     memory};
    }

    uint8_t* allocate(int64_t bytes, const char* what) override {
        void* memory = std::aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256));
        if (memory == nullptr) {
            throw Error(OJ_ERR_MEMORY,
                        "no room for " + std::to_string(bytes) + " bytes of " + what);
        }
        return static_cast<uint8_t*>(memory);
    }
    void release(uint8_t* memory) override { std::free(memory); }
    uint8_t* allocate_host(int64_t bytes, const char* what) override {
        return allocate(bytes, what);
    }
    void release_host(uint8_t* memory) override { release(memory); }

    void copy(void* to, const void* from, int64_t bytes) override {
        if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    }
    void clear(void* at, int64_t bytes) override {
        if (bytes > 0) std::memset(at, 0, static_cast<size_t>(bytes));
    }

    void repack(const RepackJob& job) override {
        for (int64_t piece = 0; piece < job.pieces(); ++piece)
            repack_piece(job, piece);
    }

    int resident_blocks(int) override { return n_resident; }

    void run_step(StepHeader* header, int n_entries, const StepLaunch& launch) override {
        const int shared = ring_at + launch.ring_bytes;
        try {
            if (launch.mode == StepMode::persistent) {
                emulate(launch.n_blocks, shared, ++seed_, [&] { oj::cuda::run_step(*header); });
                return;
            }
            for (int i = 0; i < n_entries; ++i)
                emulate(launch.n_blocks, shared, ++seed_, [&] { run_entry(*header, i); });
        } catch (const EmulationError& error) {
            throw Error(OJ_ERR_FAULT, error.what());
        }
    }

    void wait() override {}

private:
    uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<Device> open_device(int index) {
    if (index == 0) return std::make_unique<EmulatedDevice>();
    throw Error(OJ_ERR_UNSUPPORTED, "there is one emulated device, device 0");
}

int64_t free_device_memory(int index) {
    return open_device(index)->info().free_bytes;
}

}  // namespace oj::cuda
