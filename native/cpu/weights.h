// Weights as the kernels read them.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "cpu/memory.h"
#include "cpu/thread_pool.h"
#include "model/model.h"

namespace oj::cpu {

// One weight matrix: tiles of 16 rows, packed (tile.h) or, for float types, the file's own rows.
struct Matrix {
    BlockType type = BlockType::F32;
    int rows = 0;
    int cols = 0;
    const uint8_t* tiles = nullptr;
    size_t tile_bytes = 0;

    int n_tiles() const;
};

// Packs every matrix of a model once, those of its MTP block and that block's head if asked;
// matrices stay valid while the store and the model live.
class WeightStore {
public:
    WeightStore(const Model& model, bool with_mtp, bool with_draft_head, ThreadPool& pool);

    // The packed form of a matrix of the model.
    Matrix matrix(const Tensor& tensor) const;

    // Bytes that packing a model takes.
    static size_t bytes_needed(const Model& model, bool with_mtp, bool with_draft_head);

private:
    // What makes two tensors the same matrix: a tied output is token_embd under another name.
    using Key = std::tuple<const uint8_t*, BlockType, int64_t, int64_t>;
    static Key key(const Tensor& tensor) {
        return {tensor.data, tensor.type, tensor.rows, tensor.cols};
    }

    Pages<uint8_t> memory_;
    std::map<Key, size_t> offsets_;
};

// Some rows of a weight as a matrix of their own, in the order given.
class RowSubset {
public:
    RowSubset(const Tensor& from, const std::vector<int32_t>& rows, ThreadPool& pool);

    Matrix matrix() const { return matrix_; }

    static size_t bytes_needed(const Tensor& from, size_t n_rows);

private:
    Pages<uint8_t> memory_;
    Matrix matrix_;
};

}  // namespace oj::cpu
