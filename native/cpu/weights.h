// Weights as the kernels read them.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

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

// Packs every matrix of a model once; matrices stay valid while the store and the model live.
class WeightStore {
public:
    WeightStore(const Model& model, ThreadPool& pool);

    // The packed form of a matrix of the model.
    Matrix matrix(const Tensor& tensor) const;

    // Bytes that packing a model takes.
    static size_t bytes_needed(const Model& model);

private:
    // What makes two tensors the same matrix: a tied output is token_embd under another name.
    using Key = std::tuple<const uint8_t*, BlockType, int64_t, int64_t>;
    static Key key(const Tensor& tensor) {
        return {tensor.data, tensor.type, tensor.rows, tensor.cols};
    }

    Pages<uint8_t> memory_;
    std::map<Key, size_t> offsets_;
};

}  // namespace oj::cpu
