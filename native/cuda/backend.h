// The CUDA backend: plans become uploads, a step is one run of the device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/memory_plan.h"
#include "cuda/step_pack.h"
#include "cuda/weights.h"
#include "engine/backend.h"

namespace oj::cuda {

// What the environment says about how steps are run; docs/kernel.md lists the variables.
struct Tuning {
    StepMode mode = StepMode::persistent;  // OPENJET_CUDA_STEP
    int blocks = 0;                        // OPENJET_CUDA_BLOCKS; 0: as many as are resident
    int partials = 0;                      // OPENJET_CUDA_PARTIALS; 0: partials_of()
    int ring_kb = 0;                       // OPENJET_CUDA_RING; 0: what the device has
    bool relaxed_polls = false;            // OPENJET_CUDA_POLL: relaxed
    uint32_t stress = 0;                   // OPENJET_CUDA_STRESS: seed of random delays
    int fault = 0;                         // OPENJET_CUDA_FAULT: this step is given up, for tests
    std::string times;                     // OPENJET_CUDA_TIMES: file for the time of each phase
};

Tuning tuning_from_environment();

class CudaBackend final : public Backend {
public:
    CudaBackend(const Model& model, const oj_backend_options& options, const Tuning& tuning);

    void step(const oj_plan& plan, oj_seq_result* results) override;
    void reset(int slot) override;
    void save(int slot, int snapshot) override;
    void load(int snapshot, int slot) override;
    void copy_page(int from, int to) override;
    oj_state_format state_format() const override;
    void export_page(int page, uint8_t* out) override;
    void import_page(int page, const uint8_t* bytes) override;
    void export_snapshot(int snapshot, int64_t offset, int64_t n, uint8_t* out) override;
    void import_snapshot(int snapshot, const uint8_t* bytes) override;
    void read(int which, int index, float* out) override;

private:
    StepHeader header() const;
    void reserve_kept();
    void reserve_upload(int64_t bytes);
    void run(const oj_plan& plan, oj_seq_result* results);
    void note_times();
    void require_settled(int slot, const char* action) const;
    uint8_t* page(int index) const;
    uint8_t* snapshot(int index) const;
    // Through pinned memory, whatever kind `host` is.
    void download(void* host, const void* device, int64_t bytes);
    void upload(void* device, const void* host, int64_t bytes);

    const Model& model_;
    const oj_backend_options options_;
    const Tuning tuning_;
    const std::unique_ptr<Device> device_;
    const StepLaunch launch_;
    const std::vector<int32_t> draft_ids_;
    const Dims dims_;
    const int n_partials_;

    Weights weights_;
    Program program_;
    StepPack pack_;
    DeviceBuffer<uint8_t> states_memory_, scratch_memory_, pages_, fast_snapshots_;
    HostBuffer<uint8_t> slow_snapshots_;
    DeviceBuffer<Phase> phases_;
    DeviceBuffer<Bundle> bundles_;
    DeviceBuffer<int32_t> first_bundles_;
    DeviceBuffer<double> frequencies_;
    DeviceBuffer<int32_t> draft_ids_memory_;
    // On first use: logits of every row, of every draft.
    DeviceBuffer<float> kept_logits_, kept_drafts_;
    DeviceBuffer<uint64_t> stamps_;
    DeviceBuffer<uint8_t> upload_;
    HostBuffer<uint8_t> upload_host_;
    HostBuffer<uint8_t> bounce_;  // results, and whatever else passes
    StatesView states_;
    Scratch scratch_;
    KvView kv_;

    std::vector<SlotRecords> records_;
    int n_steps_ = 0;
    int kept_rows_ = 0;  // rows and
    int kept_seqs_ = 0;  // sequences of the last step, if it kept logits
};

}  // namespace oj::cuda
