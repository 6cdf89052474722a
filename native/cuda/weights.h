// A model's weights on the device: every matrix packed (tile.h), vectors as they are, and the token
// embeddings in host memory that the device reads a few rows of.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "cuda/device.h"
#include "cuda/program.h"

namespace oj::cuda {

// Where each tensor lies in the region of the weights.
class WeightLayout {
public:
    // `n_draft_ids` rows of the draft head; 0: all of them. The model must outlive this.
    WeightLayout(const Model& model, bool with_mtp, size_t n_draft_ids);

    struct Place {
        const Tensor* tensor;
        int64_t offset;
    };

    const std::vector<Place>& matrices() const { return matrices_; }
    const std::vector<Place>& vectors() const { return vectors_; }
    int64_t offset(const Tensor& tensor) const { return offsets_.at(key(tensor)); }
    int64_t bytes() const { return bytes_; }
    bool has_mtp() const { return has_mtp_; }

    // The head's rows that drafts are chosen from: a tensor by its shape; its rows are gathered.
    const Tensor& draft_head() const { return draft_head_; }
    bool is_gathered(const Tensor& tensor) const { return &tensor == &draft_head_; }

private:
    // What makes two tensors the same: a tied output is token_embd under another name.
    using Key = std::tuple<const uint8_t*, BlockType, int64_t, int64_t>;
    static Key key(const Tensor& tensor) {
        return {tensor.data, tensor.type, tensor.rows, tensor.cols};
    }

    void add_layer(const Layer& layer);
    void add_matrix(const Tensor& tensor);
    void add_vector(const Tensor& tensor);
    bool place(const Tensor& tensor, int64_t bytes, std::vector<Place>* places);

    bool has_mtp_;
    Tensor draft_head_;
    std::vector<Place> matrices_, vectors_;
    std::map<Key, int64_t> offsets_;
    int64_t bytes_ = 0;
};

class Weights final : public WeightAddresses {
public:
    // Copies and packs; takes as long as reading the file.
    Weights(Device& device, const Model& model, bool with_mtp,
            const std::vector<int32_t>& draft_ids);

    const uint8_t* matrix(const Tensor& tensor) const override {
        return memory_.data() + layout_.offset(tensor);
    }
    const float* vector(const Tensor& tensor) const override {
        return reinterpret_cast<const float*>(memory_.data() + layout_.offset(tensor));
    }

    const Tensor* draft_head() const { return layout_.has_mtp() ? &layout_.draft_head() : nullptr; }
    const uint8_t* embed() const { return embed_.data(); }

private:
    WeightLayout layout_;
    DeviceBuffer<uint8_t> memory_;
    HostBuffer<uint8_t> embed_;
};

}  // namespace oj::cuda
