// A device with poisoned buffers, on which single phases are run and compared with the CPU's
// kernels.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "cuda/phase.h"
#include "cuda/quantize.cuh"
#include "cuda_launch.h"
#include "expect.h"

namespace oj::cuda {

using test::expect;
using test::failures;

class Random {
public:
    explicit Random(uint64_t seed) : engine_(seed) {}

    int whole(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
    bool coin() { return whole(0, 1) == 1; }
    float normal(float deviation = 1.0f) {
        return std::normal_distribution<float>(0.0f, deviation)(engine_);
    }
    std::vector<float> normals(size_t n, float deviation = 1.0f) {
        std::vector<float> v(n);
        for (float& x : v)
            x = normal(deviation);
        return v;
    }
    void fill(float* to, size_t n, float deviation = 1.0f) {
        for (size_t i = 0; i < n; ++i)
            to[i] = normal(deviation);
    }
    uint8_t byte() { return static_cast<uint8_t>(engine_()); }

private:
    std::mt19937_64 engine_;
};

// Memory of a device: every buffer starts as rubbish (all bits set: NaN, and codes of -1).
class Memory {
public:
    template <class T>
    T* take(int64_t count) {
        size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64 + 64;
        owned_.emplace_back(static_cast<uint8_t*>(allocate_shared(bytes)), free_shared);
        std::memset(owned_.back().get(), 0xff, bytes);
        return reinterpret_cast<T*>(owned_.back().get());
    }
    template <class T>
    T* copy(const std::vector<T>& from) {
        T* to = take<T>(static_cast<int64_t>(from.size()));
        if (!from.empty()) std::memcpy(to, from.data(), from.size() * sizeof(T));
        return to;
    }

private:
    std::vector<std::unique_ptr<uint8_t, void (*)(void*)>> owned_;
};

inline Input make_input(Memory* memory, int cols) {
    int64_t n = int64_t{max_step_rows} * ((cols + 255) / 256 * 256);
    return {memory->take<float>(n),       memory->take<int8_t>(n), memory->take<float>(n / 256),
            memory->take<int8_t>(n / 16), memory->take<int8_t>(n), memory->take<float>(n / 32),
            memory->take<int16_t>(n / 32)};
}

// A product of `rows` outputs with random contents.
inline Product random_product(Memory* memory, Random* random, int rows, int n_segments,
                              float deviation = 1.0f) {
    int64_t n = int64_t{n_segments} * max_step_rows * rows;
    Product product = {memory->take<float>(n), rows, n_segments};
    random->fill(product.data, static_cast<size_t>(n), deviation);
    return product;
}

// Its segments, added as the CPU's products add them.
inline std::vector<float> summed(const Product& product, int r) {
    std::vector<float> sum(product.rows, 0.0f);
    for (int s = 0; s < product.n_segments; ++s) {
        for (int o = 0; o < product.rows; ++o)
            sum[o] += product.at(s, r)[o];
    }
    return sum;
}

constexpr Launch launches[] = {{1, 1}, {3, 2}, {on_gpu ? 82 : 5, 3}};

inline bool same_bits(const float* a, const float* b, size_t n) {
    return std::memcmp(a, b, n * sizeof(float)) == 0;
}

// Whether row `row` of an input holds the forms of `values`.
inline bool holds_row(const Input& in, const Forms& forms, int row, const std::vector<float>& x) {
    const cpu::Kernels& kernels = cpu::select_kernels();
    int cols = static_cast<int>(x.size());
    bool same = true;
    auto same_at = [&](const auto& mine, const auto* device, auto&& place) {
        for (int i = 0; i < static_cast<int>(mine.size()); ++i)
            same = same && std::memcmp(&mine[i], device + place(i), sizeof mine[i]) == 0;
    };
    auto code = [&](int column) { return input_code(row, column); };
    auto scale = [&](int group) { return input_scale(row, group); };
    if (forms.values)
        same = same && same_bits(x.data(), in.values + static_cast<size_t>(row) * cols, cols);
    std::vector<int8_t> codes(cols);
    std::vector<int16_t> sums16(cols / 16), sums32(cols / 32);
    if (forms.group256) {
        std::vector<float> scales(cols / 256);
        kernels.quantize256(x.data(), cols, codes.data(), scales.data(), sums16.data(),
                            sums32.data());
        same_at(codes, in.codes256, code);
        same_at(scales, in.scales256, scale);
        for (int i = 0; i < cols / 32; ++i) {
            const int8_t* low = in.sums32 + input_sum32(row, i * 32);
            same = same && sums32[i] == low[0] + 256 * low[high_byte_on];
        }
    }
    if (forms.group32) {
        std::vector<float> scales(cols / 32);
        kernels.quantize32(x.data(), cols, codes.data(), scales.data(), sums32.data());
        same_at(codes, in.codes32, code);
        same_at(scales, in.scales32, scale);
        same_at(sums32, in.sums, scale);
    }
    return same;
}

}  // namespace oj::cuda
