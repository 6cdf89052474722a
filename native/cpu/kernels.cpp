#include "cpu/kernels.h"

#include <cstdlib>
#include <string>

#include "model/error.h"

namespace oj::cpu {

namespace {

bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

}  // namespace

const Kernels& select_kernels() {
    __builtin_cpu_init();
    const char* asked = std::getenv("OPENJET_CPU_ISA");
    std::string isa = asked == nullptr ? "" : asked;
    if (isa.empty()) isa = has_avx512() ? "avx512" : has_avx2() ? "avx2" : "portable";
    if (isa == "portable") return kernels_portable;
    if (isa == "avx2" && has_avx2()) return kernels_avx2;
    if (isa == "avx512" && has_avx512()) return kernels_avx512;
    throw Error(OJ_ERR_INVALID, "OPENJET_CPU_ISA=" + isa +
                                    ": expected portable, avx2 or avx512, and one that this "
                                    "processor has; unset it to choose automatically");
}

}  // namespace oj::cpu
