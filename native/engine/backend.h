// The one line between policy and arithmetic: the engine plans steps, a backend computes them.
#pragma once

#include <memory>

#include "openjet.h"

namespace oj {

struct Model;

// The structs of a step (oj_plan, oj_seq, oj_seq_result) are the C interface's own, documented in
// openjet.h. A backend never decides a policy: which rows, how many drafts, what becomes history
// and what is evicted are in the plan. It must be batch-invariant: a row's result depends on its
// own conversation only, bit for bit (docs/architecture.md, "What must never differ").
//
// MTP, where the file has the block and options.mtp is set. In every step the block runs over each
// certain row, each accepted draft and the chosen token: at position p its input is the token at p
// and the post-norm hidden of p - 1 (zeros at p = 0). The hidden of the last history row is part of
// the slot's state, so a snapshot can be continued with any token. Rows of rejected drafts leave
// stale MTP KV behind, which the next row at that position overwrites before anybody reads it.
//
// Called from one thread. Errors are thrown as oj::Error; after a throw from step() the backend's
// states are undefined and the engine treats it as lost.
class Backend {
public:
    virtual ~Backend() = default;

    virtual void step(const oj_plan& plan, oj_seq_result* results) = 0;

    virtual void reset(int slot) = 0;
    virtual void save(int slot, int snapshot) = 0;
    virtual void load(int snapshot, int slot) = 0;
    virtual void copy_page(int from, int to) = 0;

    // Bytes of a page and of a snapshot, to be kept elsewhere and given back to any page and
    // snapshot, also in another process. Opaque to everybody else; the same for one model and
    // options while the format's version is, which a backend raises whenever they would mean, or a
    // step would compute, something else.
    virtual oj_state_format state_format() const = 0;
    virtual void export_page(int page, uint8_t* out) = 0;
    virtual void import_page(int page, const uint8_t* bytes) = 0;
    // Bytes [offset, offset + n) of it.
    virtual void export_snapshot(int snapshot, int64_t offset, int64_t n, uint8_t* out) = 0;
    virtual void import_snapshot(int snapshot, const uint8_t* bytes) = 0;

    // Time that the last step spent on proposing drafts, us; 0 where that cannot be told. It steers
    // how deep drafts go.
    virtual int64_t draft_us() const { return 0; }

    // See oj_backend_read.
    virtual void read(int which, int index, float* out) = 0;
};

// Each checks the options against the model, then builds. Defined beside the backend.
std::unique_ptr<Backend> make_cpu_backend(const Model& model, const oj_backend_options& options);
std::unique_ptr<Backend> make_scripted_backend(const Model& model,
                                               const oj_backend_options& options,
                                               const oj_script_rule* script, int n_script);
oj_memory_plan plan_cpu_memory(const Model& model, const oj_backend_options& options);
oj_memory_plan plan_scripted_memory(const oj_backend_options& options);

// The backend of options.kind; a kind that this library was not built with is OJ_ERR_UNSUPPORTED.
// Each library defines the two for the backends it has. Only the scripted one takes a script.
std::unique_ptr<Backend> make_backend(const Model& model, const oj_backend_options& options,
                                      const oj_script_rule* script, int n_script);
oj_memory_plan plan_memory(const Model& model, const oj_backend_options& options);

}  // namespace oj
