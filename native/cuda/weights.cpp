#include "cuda/weights.h"

#include <algorithm>
#include <cstring>

#include "cuda/memory_plan.h"
#include "cuda/tile.h"

namespace oj::cuda {

namespace {

constexpr int64_t staging_bytes = int64_t{32} << 20;

std::vector<float> transposed(const Tensor& conv) {
    std::vector<float> out(static_cast<size_t>(conv.rows * conv.cols));
    for (int64_t c = 0; c < conv.rows; ++c) {
        for (int64_t t = 0; t < conv.cols; ++t)
            out[static_cast<size_t>(t * conv.rows + c)] = conv.f32()[c * conv.cols + t];
    }
    return out;
}

// Two halves of pinned memory and of device memory: one is filled while the other travels.
class Staging {
public:
    explicit Staging(Device& device)
        : device_(device),
          host_(device, 2 * staging_bytes, "staging"),
          raw_(device, 2 * staging_bytes, "staging") {}

    uint8_t* host() const { return host_.data() + half_ * staging_bytes; }
    uint8_t* raw() const { return raw_.data() + half_ * staging_bytes; }

    // The next half; what was started from it before is done.
    void turn() {
        half_ = 1 - half_;
        if (half_ == 0) device_.wait();
    }

private:
    Device& device_;
    HostBuffer<uint8_t> host_;
    DeviceBuffer<uint8_t> raw_;
    int half_ = 0;
};

}  // namespace

WeightLayout::WeightLayout(const Model& model, bool with_mtp, size_t n_draft_ids)
    : has_mtp_(with_mtp) {
    add_matrix(model.output);
    add_vector(model.output_norm);
    for (const Layer& layer : model.layers)
        add_layer(layer);
    if (!with_mtp) return;
    const Mtp& mtp = *model.mtp;
    add_layer(mtp.layer);
    add_matrix(mtp.eh_proj);
    for (const Tensor* vector : {&mtp.enorm, &mtp.hnorm, &mtp.head_norm})
        add_vector(*vector);
    draft_head_ = mtp.head;
    if (n_draft_ids > 0) draft_head_.rows = static_cast<int64_t>(n_draft_ids);
    add_matrix(draft_head_);
}

void WeightLayout::add_layer(const Layer& l) {
    for (const Tensor* matrix :
         {&l.attn_qkv, &l.attn_gate, &l.ssm_beta, &l.ssm_alpha, &l.attn_q, &l.attn_k, &l.attn_v,
          &l.ssm_out, &l.attn_output, &l.ffn_gate, &l.ffn_up, &l.ffn_down}) {
        if (matrix->data != nullptr) add_matrix(*matrix);
    }
    for (const Tensor* vector : {&l.attn_norm, &l.post_attention_norm, &l.attn_q_norm,
                                 &l.attn_k_norm, &l.ssm_conv1d, &l.ssm_a, &l.ssm_dt, &l.ssm_norm}) {
        if (vector->data != nullptr) add_vector(*vector);
    }
}

bool WeightLayout::place(const Tensor& tensor, int64_t bytes, std::vector<Place>* places) {
    if (!offsets_.emplace(key(tensor), bytes_).second) return false;  // has its place
    places->push_back({&tensor, bytes_});
    bytes_ += aligned(bytes);
    return true;
}

void WeightLayout::add_matrix(const Tensor& tensor) {
    place(tensor, n_tiles(tensor) * packed_tile_bytes(tensor.type, tensor.cols), &matrices_);
}

void WeightLayout::add_vector(const Tensor& tensor) {
    place(tensor, static_cast<int64_t>(tensor.bytes()), &vectors_);
}

Weights::Weights(Device& device, const Model& model, bool with_mtp,
                 const std::vector<int32_t>& draft_ids)
    : layout_(model, with_mtp, draft_ids.size()),
      memory_(device, layout_.bytes(), "weights"),
      embed_(device, static_cast<int64_t>(model.token_embd.bytes()), "token embeddings") {
    std::memcpy(embed_.data(), model.token_embd.data, model.token_embd.bytes());
    Staging staging(device);
    auto upload = [&](const void* from, int64_t bytes, uint8_t* to) {
        std::memcpy(staging.host(), from, static_cast<size_t>(bytes));
        device.copy(to, staging.host(), bytes);
        staging.turn();
    };
    for (const WeightLayout::Place& place : layout_.vectors()) {
        const Tensor& tensor = *place.tensor;
        bool is_conv = tensor.rows > 1;
        std::vector<float> turned = is_conv ? transposed(tensor) : std::vector<float>();
        upload(is_conv ? reinterpret_cast<const uint8_t*>(turned.data()) : tensor.data,
               static_cast<int64_t>(tensor.bytes()), memory_.data() + place.offset);
    }
    for (const WeightLayout::Place& place : layout_.matrices()) {
        const Tensor& tensor = *place.tensor;
        bool gathered = layout_.is_gathered(tensor) && !draft_ids.empty();
        auto row_bytes = static_cast<int64_t>(tensor.row_bytes);
        int64_t tile_bytes = packed_tile_bytes(tensor.type, tensor.cols);
        int64_t most = std::max<int64_t>(1, staging_bytes / (row_bytes * tile_rows)) * tile_rows;
        for (int64_t row = 0; row < tensor.rows; row += most) {
            int64_t n = std::min(most, tensor.rows - row);
            for (int64_t i = 0; gathered && i < n; ++i) {
                std::memcpy(staging.host() + i * row_bytes,
                            tensor.row(draft_ids[static_cast<size_t>(row + i)]), tensor.row_bytes);
            }
            if (!gathered)
                std::memcpy(staging.host(), tensor.row(row), static_cast<size_t>(n * row_bytes));
            uint8_t* tiles = memory_.data() + place.offset + row / tile_rows * tile_bytes;
            bool quantised = block_type_info(tensor.type).block_elements > 1;
            device.copy(quantised ? staging.raw() : tiles, staging.host(), n * row_bytes);
            if (quantised) {
                device.repack({tensor.type, staging.raw(), row_bytes, static_cast<int>(n),
                               static_cast<int>(tensor.cols), tiles});
            }
            staging.turn();
        }
    }
    device.wait();
}

}  // namespace oj::cuda
