// The backends of libopenjet_cpu.so.

#include "engine/backend.h"
#include "model/error.h"

namespace oj {

namespace {

[[noreturn]] void refuse(int32_t kind) {
    if (kind == OJ_BACKEND_CUDA) {
        throw Error(OJ_ERR_UNSUPPORTED, "this is the CPU library; CUDA is in libopenjet_cuda.so");
    }
    throw Error(OJ_ERR_INVALID, "backend.kind is " + std::to_string(kind) +
                                    ", expected OJ_BACKEND_CPU (0), OJ_BACKEND_CUDA (1) or "
                                    "OJ_BACKEND_SCRIPTED (2)");
}

}  // namespace

std::unique_ptr<Backend> make_backend(const Model& model, const oj_backend_options& options,
                                      const oj_script_rule* script, int n_script) {
    switch (options.kind) {
        case OJ_BACKEND_CPU:
            return make_cpu_backend(model, options);
        case OJ_BACKEND_SCRIPTED:
            return make_scripted_backend(model, options, script, n_script);
        default:
            refuse(options.kind);
    }
}

oj_memory_plan plan_memory(const Model& model, const oj_backend_options& options) {
    switch (options.kind) {
        case OJ_BACKEND_CPU:
            return plan_cpu_memory(model, options);
        case OJ_BACKEND_SCRIPTED:
            return plan_scripted_memory(options);
        default:
            refuse(options.kind);
    }
}

}  // namespace oj
