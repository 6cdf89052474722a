// The kernels for AVX2.
#include "cpu/kernels.h"
#include "engine/sampling.h"
#include "openjet.h"

#include <immintrin.h>

#pragma GCC target("avx2,fma,f16c")

namespace oj::cpu {

namespace {

#include "cpu/simd_avx2.h"

#include "cpu/gemm_kernels.h"
#include "cpu/vector_kernels.h"

#include "cpu/attention_kernels.h"
#include "cpu/delta_kernels.h"
#include "cpu/kernel_table.h"

}  // namespace

constexpr Kernels kernels_avx2 = make_kernels("avx2");

}  // namespace oj::cpu
