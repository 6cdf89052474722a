// Inputs of matrix products: float rows and their int8 forms, as far as the weights want them.
#pragma once

#include "cpu/kernels.h"
#include "cpu/memory.h"

namespace oj::cpu {

// Which int8 forms a set of matrices reads.
struct Forms {
    bool group256 = false;
    bool group32 = false;

    Forms with(BlockType type) const {
        Forms forms = *this;
        const int group = tile_format(type).group;
        forms.group256 |= group == super_group;
        forms.group32 |= group == small_group;
        return forms;
    }
};

class Activations {
public:
    Activations(int max_rows, int max_cols)
        : values_(size(max_rows, max_cols), "scratch"),
          codes256_(size(max_rows, max_cols), "scratch"),
          codes32_(size(max_rows, max_cols), "scratch"),
          scales256_(size(max_rows, max_cols) / super_group + max_rows, "scratch"),
          scales32_(size(max_rows, max_cols) / small_group, "scratch"),
          sums16_(size(max_rows, max_cols) / 16, "scratch"),
          sums32_(size(max_rows, max_cols) / 32, "scratch"),
          sums_(size(max_rows, max_cols) / 32, "scratch") {}

    // Floats of a row of `cols` columns, to be written before quantize().
    float* row(int r, int cols) const { return values_.data() + static_cast<size_t>(r) * cols; }

    // Columns [first, first + n) of row r; both multiples of the groups wanted.
    void quantize(const Kernels& k, Forms forms, int r, int cols, int first, int n) const {
        size_t at = static_cast<size_t>(r) * cols + first;
        const float* x = values_.data() + at;
        if (forms.group256) {
            k.quantize256(x, n, codes256_.data() + at, scales256_.data() + at / super_group,
                          sums16_.data() + at / 16, sums32_.data() + at / 32);
        }
        if (forms.group32) {
            k.quantize32(x, n, codes32_.data() + at, scales32_.data() + at / small_group,
                         sums_.data() + at / 32);
        }
    }

    size_t bytes() const {
        size_t shorts = sums16_.size() + sums32_.size() + sums_.size();
        size_t floats = values_.size() + scales256_.size() + scales32_.size();
        return codes256_.size() + codes32_.size() + 2 * shorts + 4 * floats;
    }

    ActivationView view(int cols) const {
        return {cols,           values_.data(), codes256_.data(), scales256_.data(),
                sums16_.data(), sums32_.data(), codes32_.data(),  scales32_.data(),
                sums_.data()};
    }

private:
    static size_t size(int rows, int cols) { return static_cast<size_t>(rows) * cols; }

    Pages<float> values_;
    Pages<int8_t> codes256_;
    Pages<int8_t> codes32_;
    Pages<float> scales256_;
    Pages<float> scales32_;
    Pages<int16_t> sums16_;
    Pages<int16_t> sums32_;
    Pages<int16_t> sums_;
};

}  // namespace oj::cpu
