// The kernels for plain C++.
#include "cpu/kernels.h"
#include "engine/sampling.h"
#include "openjet.h"

namespace oj::cpu {

namespace {

#include "cpu/simd_portable.h"

#include "cpu/gemm_kernels.h"
#include "cpu/vector_kernels.h"

#include "cpu/attention_kernels.h"
#include "cpu/delta_kernels.h"
#include "cpu/kernel_table.h"

}  // namespace

constexpr Kernels kernels_portable = make_kernels("portable");

}  // namespace oj::cpu
