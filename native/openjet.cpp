// The C interface (include/openjet.h): handles, argument checks, exceptions to statuses.

#include "openjet.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "handles.h"
#include "model/model.h"

using oj::Error;

namespace {

// A backend alone, with the model it computes.
struct OpenBackend {
    std::shared_ptr<const oj::Model> model;
    std::unique_ptr<oj::Backend> backend;
};

// Never destroyed: threads of the host may still be inside a call when the process exits.
oj::Handles<oj_model, const oj::Model>& models() {
    static auto& handles = *new oj::Handles<oj_model, const oj::Model>;
    return handles;
}

oj::Handles<oj_backend, OpenBackend>& backends() {
    static auto& handles = *new oj::Handles<oj_backend, OpenBackend>;
    return handles;
}

oj::Handles<oj_engine, oj::Engine>& engines() {
    static auto& handles = *new oj::Handles<oj_engine, oj::Engine>;
    return handles;
}

oj_status report(oj_error* error, int32_t code, const char* message) {
    if (error) {
        error->code = code;
        std::strncpy(error->message, message, sizeof error->message - 1);
        error->message[sizeof error->message - 1] = '\0';
    }
    return static_cast<oj_status>(code);
}

template <typename Body>
oj_status guarded(oj_error* error, Body body) {
    try {
        body();
        return report(error, OJ_OK, "");
    } catch (const Error& e) {
        return report(error, e.code(), e.what());
    } catch (const std::bad_alloc&) {
        return report(error, OJ_ERR_MEMORY, "out of memory");
    } catch (const std::exception& e) {
        return report(error, OJ_ERR_FAULT, e.what());
    }
}

void require(const void* argument, const char* name) {
    if (!argument) throw Error(OJ_ERR_INVALID, std::string(name) + " is NULL");
}

void require_array(const void* array, int32_t n, const char* name) {
    if (n < 0) throw Error(OJ_ERR_INVALID, std::string("the number of ") + name + " is negative");
    if (n > 0) require(array, name);
}

// Only that arrays are there; what is in them is the backend's to check.
void check_plan_arrays(const oj_plan& plan) {
    require_array(plan.tokens, plan.n_rows, "plan.tokens");
    require_array(plan.seqs, plan.n_seqs, "plan.seqs");
    for (int32_t i = 0; i < plan.n_seqs; ++i) {
        const oj_seq& seq = plan.seqs[i];
        require_array(seq.pages, seq.n_pages, "seq.pages");
        require_array(seq.penalty_ids, seq.n_penalty, "seq.penalty_ids");
        require_array(seq.penalty_counts, seq.n_penalty, "seq.penalty_counts");
        if (!seq.sampling) continue;
        require_array(seq.sampling->bias_ids, seq.sampling->n_bias, "sampling.bias_ids");
        require_array(seq.sampling->bias_values, seq.sampling->n_bias, "sampling.bias_values");
    }
}

std::shared_ptr<const oj::Model> model_of(const oj_model* handle) {
    auto model = models().find(handle);
    if (!model) throw Error(OJ_ERR_CLOSED, "the model is not open");
    return model;
}

std::shared_ptr<OpenBackend> backend_of(const oj_backend* handle) {
    auto backend = backends().find(handle);
    if (!backend) throw Error(OJ_ERR_CLOSED, "the backend is not open");
    return backend;
}

std::shared_ptr<oj::Engine> engine_of(const oj_engine* handle) {
    auto engine = engines().find(handle);
    if (!engine) throw Error(OJ_ERR_CLOSED, "the engine is not open");
    return engine;
}

void fill_meta(const oj::GgufKey& key, oj_meta* meta) {
    const auto type = static_cast<int32_t>(key.type);
    meta->key = key.name.data();
    meta->key_size = key.name.size();
    meta->type = key.is_array ? static_cast<int32_t>(oj::GgufType::array) : type;
    meta->element_type = type;
    meta->count = key.count;
    meta->data = key.values;
    meta->size = key.bytes;
}

}  // namespace

uint32_t oj_abi_version(void) {
    return OJ_ABI_VERSION;
}

uint32_t oj_sizeof(const char* struct_name) {
#define OJ_STRUCT(name)     \
    {                       \
        #name, sizeof(name) \
    }
    static const struct {
        const char* name;
        size_t size;
    } structs[] = {
        OJ_STRUCT(oj_error),
        OJ_STRUCT(oj_model_info),
        OJ_STRUCT(oj_meta),
        OJ_STRUCT(oj_tensor_info),
        OJ_STRUCT(oj_backend_options),
        OJ_STRUCT(oj_sampling),
        OJ_STRUCT(oj_seq),
        OJ_STRUCT(oj_plan),
        OJ_STRUCT(oj_logprob),
        OJ_STRUCT(oj_seq_result),
        OJ_STRUCT(oj_state_format),
        OJ_STRUCT(oj_memory_plan),
        OJ_STRUCT(oj_script_rule),
        OJ_STRUCT(oj_engine_options),
        OJ_STRUCT(oj_thinking),
        OJ_STRUCT(oj_request),
        OJ_STRUCT(oj_request_stats),
        OJ_STRUCT(oj_event),
        OJ_STRUCT(oj_mask_request),
        OJ_STRUCT(oj_engine_stats),
        OJ_STRUCT(oj_saved),
    };
#undef OJ_STRUCT
    for (const auto& known : structs) {
        if (struct_name && std::strcmp(struct_name, known.name) == 0) {
            return static_cast<uint32_t>(known.size);
        }
    }
    return 0;
}

// ---------------------------------------------------------------- model

oj_status oj_model_open(const char* path, oj_model** model, oj_error* error) {
    return guarded(error, [&] {
        require(path, "path");
        require(model, "model");
        *model = models().add(std::make_shared<const oj::Model>(oj::load_model(path)));
    });
}

void oj_model_close(oj_model* model) {
    models().remove(model);
}

void oj_model_get_info(const oj_model* handle, oj_model_info* info) {
    if (!info) return;
    *info = oj_model_info();
    const auto model = models().find(handle);
    if (!model) return;
    const oj::Hparams& h = model->hparams;
    info->file_bytes = static_cast<int64_t>(model->file->size());
    info->tensor_bytes = static_cast<int64_t>(model->weight_bytes);
    info->parameters = model->parameters;
    info->n_vocab = h.n_vocab;
    info->n_embd = h.n_embd;
    info->n_layer = h.n_layers;
    info->n_attention = static_cast<int32_t>(
        std::count(h.layer_kinds.begin(), h.layer_kinds.end(), oj::LayerKind::attention));
    info->n_ff = h.n_ff;
    info->n_head = h.n_heads;
    info->n_head_kv = h.n_kv_heads;
    info->head_dim = h.head_dim;
    info->ssm_k_heads = h.n_k_heads;
    info->ssm_v_heads = h.n_v_heads;
    info->ssm_head_dim = h.state_dim;
    info->context_length = h.n_ctx_train;
    info->has_mtp = h.has_mtp;
    info->tied_output = model->tied;
    const int64_t per_layer = int64_t{h.n_v_heads} * h.state_dim * h.state_dim +
                              int64_t{h.conv_kernel - 1} * h.conv_channels();
    info->state_bytes = 4 * ((h.n_layers - info->n_attention) * per_layer + h.n_embd);
}

int32_t oj_model_meta_at(const oj_model* handle, int32_t index, oj_meta* meta) {
    const auto model = models().find(handle);
    if (!model || !meta || index < 0) return 0;
    const auto& keys = model->file->keys();
    if (static_cast<size_t>(index) >= keys.size()) return 0;
    fill_meta(keys[static_cast<size_t>(index)], meta);
    return 1;
}

int32_t oj_model_meta(const oj_model* handle, const char* key, oj_meta* meta) {
    const auto model = models().find(handle);
    if (!model || !key || !meta) return 0;
    const oj::GgufKey* found = model->file->find_key(key);
    if (!found) return 0;
    fill_meta(*found, meta);
    return 1;
}

int32_t oj_model_tensor_at(const oj_model* handle, int32_t index, oj_tensor_info* info) {
    const auto model = models().find(handle);
    if (!model || !info || index < 0) return 0;
    if (static_cast<size_t>(index) >= model->tensors.size()) return 0;
    const oj::Tensor& tensor = model->tensors[static_cast<size_t>(index)];
    info->name = tensor.name.c_str();
    info->type = oj::block_type_info(tensor.type).name;
    info->rows = tensor.rows;
    info->cols = tensor.cols;
    info->bytes = static_cast<int64_t>(tensor.bytes());
    return 1;
}

// ---------------------------------------------------------------- backend

oj_status oj_backend_open(const oj_model* model, const oj_backend_options* options,
                          oj_backend** backend, oj_error* error) {
    return guarded(error, [&] {
        require(options, "options");
        require(backend, "backend");
        oj::check_backend_options(*options);
        auto open = std::make_shared<OpenBackend>();
        open->model = model_of(model);
        open->backend = oj::make_backend(*open->model, *options, nullptr, 0);
        *backend = backends().add(std::move(open));
    });
}

void oj_backend_close(oj_backend* backend) {
    backends().remove(backend);
}

oj_status oj_backend_step(oj_backend* backend, const oj_plan* plan, oj_seq_result* results,
                          oj_error* error) {
    return guarded(error, [&] {
        require(plan, "plan");
        require(results, "results");
        check_plan_arrays(*plan);
        backend_of(backend)->backend->step(*plan, results);
    });
}

oj_status oj_backend_reset(oj_backend* backend, int32_t slot, oj_error* error) {
    return guarded(error, [&] { backend_of(backend)->backend->reset(slot); });
}

oj_status oj_backend_save(oj_backend* backend, int32_t slot, int32_t snapshot, oj_error* error) {
    return guarded(error, [&] { backend_of(backend)->backend->save(slot, snapshot); });
}

oj_status oj_backend_load(oj_backend* backend, int32_t snapshot, int32_t slot, oj_error* error) {
    return guarded(error, [&] { backend_of(backend)->backend->load(snapshot, slot); });
}

oj_status oj_backend_copy_page(oj_backend* backend, int32_t from, int32_t to, oj_error* error) {
    return guarded(error, [&] { backend_of(backend)->backend->copy_page(from, to); });
}

oj_status oj_backend_state_format(oj_backend* backend, oj_state_format* format, oj_error* error) {
    return guarded(error, [&] {
        require(format, "format");
        *format = backend_of(backend)->backend->state_format();
    });
}

oj_status oj_backend_export_page(oj_backend* backend, int32_t page, uint8_t* out, oj_error* error) {
    return guarded(error, [&] {
        require(out, "out");
        backend_of(backend)->backend->export_page(page, out);
    });
}

oj_status oj_backend_import_page(oj_backend* backend, int32_t page, const uint8_t* bytes,
                                 oj_error* error) {
    return guarded(error, [&] {
        require(bytes, "bytes");
        backend_of(backend)->backend->import_page(page, bytes);
    });
}

oj_status oj_backend_export_snapshot(oj_backend* backend, int32_t snapshot, uint8_t* out,
                                     oj_error* error) {
    return guarded(error, [&] {
        require(out, "out");
        oj::Backend& from = *backend_of(backend)->backend;
        from.export_snapshot(snapshot, 0, from.state_format().snapshot_bytes, out);
    });
}

oj_status oj_backend_import_snapshot(oj_backend* backend, int32_t snapshot, const uint8_t* bytes,
                                     oj_error* error) {
    return guarded(error, [&] {
        require(bytes, "bytes");
        backend_of(backend)->backend->import_snapshot(snapshot, bytes);
    });
}

oj_status oj_backend_read(oj_backend* backend, int32_t which, int32_t index, float* out,
                          oj_error* error) {
    return guarded(error, [&] {
        require(out, "out");
        backend_of(backend)->backend->read(which, index, out);
    });
}

oj_status oj_backend_memory(const oj_model* model, const oj_backend_options* options,
                            oj_memory_plan* plan, oj_error* error) {
    return guarded(error, [&] {
        require(options, "options");
        require(plan, "plan");
        oj::check_backend_options(*options);
        *plan = oj::plan_memory(*model_of(model), *options);
    });
}

// ---------------------------------------------------------------- engine

oj_status oj_engine_open(const oj_model* handle, const oj_engine_options* options,
                         oj_engine** engine, oj_error* error) {
    return guarded(error, [&] {
        require(options, "options");
        require(engine, "engine");
        const auto model = model_of(handle);
        oj::check_options(*model, *options);
        auto backend =
            oj::make_backend(*model, options->backend, options->script, options->n_script);
        *engine = engines().add(std::make_shared<oj::Engine>(model, std::move(backend), *options));
    });
}

void oj_engine_stop(oj_engine* handle) {
    if (const auto engine = engines().find(handle)) engine->stop();
}

void oj_engine_close(oj_engine* handle) {
    if (const auto engine = engines().remove(handle)) engine->stop();
}

oj_status oj_engine_health(oj_engine* handle, oj_error* error) {
    return guarded(error, [&] { engine_of(handle)->check_health(); });
}

oj_status oj_submit(oj_engine* handle, const oj_request* request, uint64_t* id, oj_error* error) {
    return guarded(error, [&] {
        require(request, "request");
        require(id, "id");
        *id = engine_of(handle)->submit(*request);
    });
}

void oj_cancel(oj_engine* handle, uint64_t id) {
    guarded(nullptr, [&] { engine_of(handle)->cancel(id); });
}

int32_t oj_poll(oj_engine* handle, oj_event* events, int32_t max, int32_t timeout_ms) {
    const auto engine = engines().find(handle);
    if (!engine) return -OJ_ERR_CLOSED;
    if (!events || max < 1) return -OJ_ERR_INVALID;
    return engine->poll(events, max, timeout_ms);
}

int32_t oj_poll_masks(oj_engine* handle, oj_mask_request* asked, int32_t timeout_ms) {
    const auto engine = engines().find(handle);
    if (!engine) return -OJ_ERR_CLOSED;
    if (!asked) return -OJ_ERR_INVALID;
    return engine->poll_masks(asked, timeout_ms);
}

oj_status oj_set_masks(oj_engine* handle, uint64_t id, int32_t position, const uint32_t* masks,
                       int32_t n_masks, const int32_t* forced, int32_t n_forced, oj_error* error) {
    return guarded(error, [&] {
        engine_of(handle)->set_masks(id, position, masks, n_masks, forced, n_forced);
    });
}

void oj_engine_get_stats(oj_engine* handle, oj_engine_stats* stats) {
    if (!stats) return;
    const auto engine = engines().find(handle);
    *stats = engine ? engine->stats() : oj_engine_stats();
}

oj_status oj_engine_save(oj_engine* handle, const int32_t* tokens, int32_t n_tokens,
                         const char* name, oj_saved* saved, oj_error* error) {
    return guarded(error, [&] {
        require_array(tokens, n_tokens, "tokens");
        require(name, "name");
        require(saved, "saved");
        *saved = engine_of(handle)->save({tokens, tokens + n_tokens}, name);
    });
}

oj_status oj_engine_restore(oj_engine* handle, const char* name, int32_t* tokens,
                            int32_t max_tokens, oj_saved* restored, oj_error* error) {
    return guarded(error, [&] {
        require_array(tokens, max_tokens, "tokens");
        require(name, "name");
        require(restored, "restored");
        std::vector<int32_t> found;
        *restored = engine_of(handle)->restore(name, &found);
        const auto n = std::min(found.size(), static_cast<size_t>(max_tokens));
        std::copy_n(found.begin(), n, tokens);
    });
}

oj_status oj_engine_erase(oj_engine* handle, const int32_t* tokens, int32_t n_tokens,
                          int32_t* n_erased, oj_error* error) {
    return guarded(error, [&] {
        require_array(tokens, n_tokens, "tokens");
        require(n_erased, "n_erased");
        *n_erased = engine_of(handle)->erase({tokens, tokens + n_tokens});
    });
}

int32_t oj_engine_note(oj_engine* handle, char* text, int32_t size) {
    const auto engine = engines().find(handle);
    if (!engine) return -OJ_ERR_CLOSED;
    if (!text || size < 1) return -OJ_ERR_INVALID;
    const std::string line = engine->take_note();
    const auto n = std::min(line.size(), static_cast<size_t>(size) - 1);
    std::memcpy(text, line.data(), n);
    text[n] = '\0';
    return static_cast<int32_t>(n);
}
