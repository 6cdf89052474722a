// How much memory a CUDA backend takes and where in it everything lies. The same functions measure
// (from address 0) and place, so a plan cannot differ from what is used. No device is needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/types.h"
#include "engine/backend.h"
#include "model/model.h"

namespace oj::cuda {

constexpr int64_t memory_alignment = 1024;

constexpr int64_t aligned(int64_t bytes) {
    return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}

// Takes pieces of a region in turn; without a region it only measures.
class Carver {
public:
    explicit Carver(uint8_t* region = nullptr) : region_(region) {}

    template <class T>
    T* take(int64_t count) {
        int64_t at = taken_;
        taken_ += aligned(count * static_cast<int64_t>(sizeof(T)));
        return region_ == nullptr ? nullptr : reinterpret_cast<T*>(region_ + at);
    }

    int64_t taken() const { return taken_; }

    // Goes on behind both; the other one began in this one's region and is for another time.
    void share(const Carver& other) { taken_ = taken_ < other.taken_ ? other.taken_ : taken_; }

private:
    uint8_t* region_;
    int64_t taken_ = 0;
};

// What sizes depend on besides the model's.
struct Limits {
    int n_slots;
    int n_draft_ids;  // rows of the draft head; 0: all, or no MTP block
    bool mtp;
    int n_partials;  // (row, head, split) results of attention that a wave keeps
};

// Rows of a step whose tokens are chosen, at most.
int most_sampled(int n_slots);

// As many as a wave of prompt rows at short contexts and of every decoding row at long ones need;
// never fewer than one split of every row.
int partials_of(const Dims& dims);

// What a device of 24 GB spares for the phases and who multiplies what in them.
constexpr int64_t schedule_bytes = int64_t{24} << 20;

Scratch place_scratch(Carver* carver, const Dims& dims, const Limits& limits);
StatesView place_states(Carver* carver, const Dims& dims, int n_slots);

// All but `data`.
KvView kv_layout(const Dims& dims, int kv_codec);

// Refuses what this backend cannot run, naming the option or the file's key.
void check_cuda(const Model& model, const oj_backend_options& options);

// Everything but `available`. `n_draft_ids` as in Limits.
oj_memory_plan measure_memory(const Model& model, const oj_backend_options& options,
                              int n_draft_ids);

}  // namespace oj::cuda
