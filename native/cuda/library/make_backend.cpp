// The backends of libopenjet_cuda.so.
#include "cuda/backend.h"
#include "engine/draft_head.h"

namespace oj {

namespace {

void require_cuda(int32_t kind) {
    if (kind == OJ_BACKEND_CUDA) return;
    throw Error(OJ_ERR_UNSUPPORTED, "this is the CUDA library; the backend of kind " +
                                        std::to_string(kind) + " is in libopenjet_cpu.so");
}

}  // namespace

std::unique_ptr<Backend> make_backend(const Model& model, const oj_backend_options& options,
                                      const oj_script_rule*, int) {
    require_cuda(options.kind);
    return std::make_unique<cuda::CudaBackend>(model, options, cuda::tuning_from_environment());
}

oj_memory_plan plan_memory(const Model& model, const oj_backend_options& options) {
    require_cuda(options.kind);
    size_t draft_ids = draft_head_ids(model.vocab, options).size();
    oj_memory_plan plan = cuda::measure_memory(model, options, static_cast<int>(draft_ids));
    plan.available = cuda::free_device_memory(options.device);
    return plan;
}

}  // namespace oj
