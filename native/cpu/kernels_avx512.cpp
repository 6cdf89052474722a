// The kernels for AVX-512 with VNNI.
#include "cpu/kernels.h"
#include "engine/sampling.h"
#include "openjet.h"

// GCC's own headers pass registers that are undefined on purpose (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")

namespace oj::cpu {

namespace {

#include "cpu/simd_avx512.h"

#include "cpu/gemm_kernels.h"
#include "cpu/vector_kernels.h"

#include "cpu/attention_kernels.h"
#include "cpu/delta_kernels.h"
#include "cpu/kernel_table.h"

}  // namespace

constexpr Kernels kernels_avx512 = make_kernels("avx512");

}  // namespace oj::cpu
