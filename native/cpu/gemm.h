// y = W x for a batch of rows, tiles shared out among threads by bytes.
#pragma once

#include <initializer_list>

#include "cpu/activations.h"
#include "cpu/thread_pool.h"
#include "cpu/weights.h"

namespace oj::cpu {

struct Product {
    const Matrix* weight;
    float* out;        // [rows][weight->rows]
    bool add = false;  // to what is there
};

Forms forms_of(std::initializer_list<const Matrix*> weights);

// This thread's part of several products with the same input. Barriers are the caller's.
void multiply(const Worker& worker, const Kernels& kernels, const Activations& input, int rows,
              std::initializer_list<Product> products);

}  // namespace oj::cpu
