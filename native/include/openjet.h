/* OpenJet: the whole C interface of the native engine.
 *
 * Three layers, each usable alone:
 *   model    a GGUF file of architecture `qwen35`, mapped read-only
 *   backend  one step at a time: rows in, proposed tokens out (tests, benchmarks, the engine below)
 *   engine   a thread that plans, steps, samples and publishes events for many requests
 *
 * Conventions
 *   - Every function that can fail returns oj_status and fills `error` (may be NULL) with one
 *     sentence for people: which file, key, tensor or option, what was found, what would be right.
 *     No C++ exception crosses this interface.
 *   - Strings are UTF-8, NUL-terminated unless a length stands beside them.
 *   - Pointers passed in are read during the call only, unless stated. Pointers returned belong to
 *     the object they came from and live as long as it does.
 *   - Token ids, positions, counts and indices are int32; times are microseconds (us).
 *   - Thread-safety is stated per function; "any thread" means callable concurrently.
 *   - ABI: check oj_abi_version() == OJ_ABI_VERSION and oj_sizeof() of every struct you allocate.
 */
#ifndef OPENJET_H
#define OPENJET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* -- cdef begin: from here to "cdef end" the text is also what Python parses -- */

#define OJ_ABI_VERSION 1
#define OJ_MAX_DRAFTS 8   /* draft rows of one conversation in one step */
#define OJ_MAX_TOP 20     /* alternatives reported with a token's log-probability */
#define OJ_PAGE_SIZE 64   /* KV positions per page */
#define OJ_MAX_STOPS 16   /* stop strings of one request */
#define OJ_STOP_BYTES 256 /* longest stop string */
#define OJ_MAX_CLOSING 16 /* tokens that close a thinking that is too long */

typedef enum oj_status {
    OJ_OK = 0,
    OJ_ERR_INVALID = 1,     /* an argument or option breaks its rule */
    OJ_ERR_IO = 2,          /* the file cannot be opened or mapped */
    OJ_ERR_FORMAT = 3,      /* not a GGUF, truncated, or damaged */
    OJ_ERR_UNSUPPORTED = 4, /* a valid file or option that this build cannot serve */
    OJ_ERR_MEMORY = 5,      /* no room for weights, pages or states */
    OJ_ERR_BUSY = 6,        /* the queue is full: try later */
    OJ_ERR_CONTEXT = 7,     /* the prompt does not fit the context */
    OJ_ERR_CLOSED = 8,      /* the engine was closed */
    OJ_ERR_FAULT = 9        /* the backend failed; the engine is lost */
} oj_status;

typedef struct oj_error {
    int32_t code; /* oj_status */
    char message[1020];
} oj_error;

/* Any thread. */
uint32_t oj_abi_version(void);
/* Size in bytes of a public struct by its name ("oj_request"), 0 if unknown. Any thread. */
uint32_t oj_sizeof(const char *struct_name);

/* ---------------------------------------------------------------- model ---- */

typedef struct oj_model oj_model;

/* Maps `path` and checks everything a later step relies on. Close with oj_model_close().
 * A model is immutable: any thread may read it; engines and backends must be closed before it. */
oj_status oj_model_open(const char *path, oj_model **model, oj_error *error);
void oj_model_close(oj_model *model);

typedef struct oj_model_info {
    int64_t file_bytes;
    int64_t tensor_bytes;
    int64_t parameters;
    int32_t n_vocab;
    int32_t n_embd;
    int32_t n_layer;     /* main layers, without the MTP block */
    int32_t n_attention; /* full-attention layers among them */
    int32_t n_ff;
    int32_t n_head;
    int32_t n_head_kv;
    int32_t head_dim;
    int32_t ssm_k_heads;
    int32_t ssm_v_heads;
    int32_t ssm_head_dim;
    int32_t context_length; /* the file's training context */
    int32_t has_mtp;
    int32_t tied_output;
    int64_t state_bytes; /* recurrent state of one conversation */
} oj_model_info;

void oj_model_get_info(const oj_model *model, oj_model_info *info);

/* A metadata entry. `type` is the GGUF value type (0 u8, 1 i8, 2 u16, 3 i16, 4 u32, 5 i32, 6 f32,
 * 7 bool, 8 string, 9 array, 10 u64, 11 i64, 12 f64); for arrays `element_type` and `count` say
 * more. `data`/`size` is the raw little-endian value in the mapping: string bytes without length
 * prefix, or array elements back to back (strings in arrays each with a u64 length prefix). */
typedef struct oj_meta {
    const char *key; /* not NUL-terminated */
    uint64_t key_size;
    int32_t type;
    int32_t element_type;
    uint64_t count;
    const void *data;
    uint64_t size;
} oj_meta;

/* Entry by index or by key; 0 if there is none. Any thread. */
int32_t oj_model_meta_at(const oj_model *model, int32_t index, oj_meta *meta);
int32_t oj_model_meta(const oj_model *model, const char *key, oj_meta *meta);

typedef struct oj_tensor_info {
    const char *name;
    const char *type; /* "Q4_K" */
    int64_t rows, cols;
    int64_t bytes;
} oj_tensor_info;

/* Tensor by index in file order; 0 past the end. Any thread. */
int32_t oj_model_tensor_at(const oj_model *model, int32_t index, oj_tensor_info *info);

/* -------------------------------------------------------------- backend ---- */

typedef enum oj_backend_kind {
    OJ_BACKEND_CPU = 0,
    OJ_BACKEND_CUDA = 1,
    OJ_BACKEND_SCRIPTED = 2 /* says what a script says: for tests of everything above it */
} oj_backend_kind;

typedef enum oj_kv_codec { OJ_KV_Q8_0 = 0, OJ_KV_F16 = 1, OJ_KV_F32 = 2 } oj_kv_codec;

typedef struct oj_backend_options {
    int32_t kind;            /* oj_backend_kind */
    int32_t device;          /* CUDA device index */
    int32_t threads;         /* CPU threads, 0 = one per physical core */
    int32_t kv_codec;        /* oj_kv_codec */
    int32_t n_slots;         /* conversations that may run at once (recurrent states) */
    int32_t n_pages;         /* KV pages shared by all conversations */
    int32_t n_snapshots;     /* stored recurrent states */
    int32_t fast_snapshots;  /* CUDA: so many of them on the device, the others in host memory */
    int32_t max_rows;        /* rows of one step, all conversations together */
    int32_t mtp;             /* 1: keep the MTP head's KV in step and propose drafts */
    int32_t draft_head_rows; /* tokens that MTP drafts are chosen from: special and byte tokens and
                                the most common ones; 0 = all */
    const int32_t *draft_head_ids; /* ... or exactly these, ascending; NULL = by draft_head_rows */
    int32_t n_draft_head_ids;
} oj_backend_options;

/* How one conversation's next tokens are chosen. Order: logit bias, penalties, mask, temperature,
 * top-k, top-p, min-p; with temperature_last 1 the filters see temperature 1. Neutral values:
 * temperature 1, top_k 0, top_p 1, min_p 0, presence 0, frequency 0, repetition 1. */
typedef struct oj_sampling {
    float temperature; /* 0 = greedy */
    int32_t top_k;
    float top_p;
    float min_p;
    float presence;
    float frequency;
    float repetition;
    int32_t top_logprobs; /* alternatives to report, 0..OJ_MAX_TOP */
    uint64_t seed;
    int32_t coupled; /* 1: drafts change no token (temperature 0 or a named seed);
                        0: rejection sampling, the same distribution */
    int32_t n_bias;
    const int32_t *bias_ids;
    const float *bias_values;
    int32_t temperature_last;
    int32_t adjusted_logprobs; /* 0: log-probabilities are the model's own; 1: after bias, penalties
                                  and mask; both before temperature and filters */
} oj_sampling;

typedef enum oj_draft_source {
    OJ_DRAFT_MTP = 0,   /* the backend's own proposal of the step before, or its beginning */
    OJ_DRAFT_LOOKUP = 1 /* found in the conversation's own text, or forced: certain (one-hot) */
} oj_draft_source;

/* One conversation's part of a step: rows at consecutive positions, first the certain ones (they
 * are history, the state advances through them), then drafts (recorded, undone unless folded). */
typedef struct oj_seq {
    int32_t slot; /* recurrent state, 0..n_slots-1 */
    int32_t fold; /* draft rows of this slot's previous step that became history; their state is
                     replayed first. 0..(n_rows - n_certain of that step) */
    int32_t pos;  /* absolute position of the first row; fold is already counted in */
    int32_t first_row;    /* index into oj_plan.tokens */
    int32_t n_rows;       /* 0 = only fold */
    int32_t n_certain;    /* 1..n_rows, or 0 when n_rows is 0 */
    int32_t n_sampled;    /* trailing rows whose next token is chosen: 0 while a prompt is read,
                             else n_rows - n_certain + 1 (the last certain row and every draft) */
    int32_t draft_source; /* oj_draft_source of this step's draft rows */
    int32_t n_draft;      /* MTP drafts wanted after the chosen tokens, 0..OJ_MAX_DRAFTS */
    int32_t n_pages;      /* pages[i] holds positions [64 i, 64 i + 64) */
    const int32_t *pages;
    const oj_sampling *sampling; /* NULL when n_sampled is 0 */
    const int32_t *penalty_ids;  /* distinct generated tokens so far, for penalties */
    const int32_t *penalty_counts;
    int32_t n_penalty;
    const uint32_t *const *masks; /* NULL, or per sampled row NULL or n_vocab allowed bits */
} oj_seq;

typedef struct oj_plan {
    const int32_t *tokens; /* [n_rows] */
    int32_t n_rows;
    int32_t n_seqs;
    const oj_seq *seqs;
    int32_t keep_logits; /* 1: every row's logits stay readable until the next step (tests) */
} oj_plan;

typedef struct oj_logprob {
    float logprob; /* of the token; see oj_sampling.adjusted_logprobs */
    int32_t n_top;
    int32_t top_ids[OJ_MAX_TOP];
    float top_logprobs[OJ_MAX_TOP];
} oj_logprob;

/* What the backend proposes; the engine decides how much of it becomes history (next `fold`). */
typedef struct oj_seq_result {
    int32_t n_tokens; /* accepted drafts + 1 chosen token; 0 if nothing was sampled */
    int32_t n_drafts;
    int32_t tokens[OJ_MAX_DRAFTS + 1];
    int32_t drafts[OJ_MAX_DRAFTS]; /* what the MTP head says follows tokens[n_tokens - 1] */
    oj_logprob logprobs[OJ_MAX_DRAFTS + 1];
} oj_seq_result;

typedef struct oj_backend oj_backend;

/* A backend belongs to one thread at a time. `model` must outlive it. */
oj_status oj_backend_open(const oj_model *model, const oj_backend_options *options,
                          oj_backend **backend, oj_error *error);
void oj_backend_close(oj_backend *backend);

/* One forward over all rows, then sampling, verification and drafting; results[n_seqs]. */
oj_status oj_backend_step(oj_backend *backend, const oj_plan *plan, oj_seq_result *results,
                          oj_error *error);

/* Recurrent state (DeltaNet, conv, last hidden) of a slot: to zero; into and out of a snapshot.
 * Refused while draft rows are pending (fold them first, with n_rows = 0). */
oj_status oj_backend_reset(oj_backend *backend, int32_t slot, oj_error *error);
oj_status oj_backend_save(oj_backend *backend, int32_t slot, int32_t snapshot, oj_error *error);
oj_status oj_backend_load(oj_backend *backend, int32_t snapshot, int32_t slot, oj_error *error);
/* KV of all layers: page `from` over page `to` (copy on write). */
oj_status oj_backend_copy_page(oj_backend *backend, int32_t from, int32_t to, oj_error *error);

/* Bytes of a page and of a snapshot (sizes: oj_state_format), to be kept elsewhere. They mean the
 * same to every backend of this kind, model and options with the same version. */
typedef struct oj_state_format {
    uint32_t version;
    int64_t page_bytes;
    int64_t snapshot_bytes;
} oj_state_format;

oj_status oj_backend_state_format(oj_backend *backend, oj_state_format *format, oj_error *error);
oj_status oj_backend_export_page(oj_backend *backend, int32_t page, uint8_t *out, oj_error *error);
oj_status oj_backend_import_page(oj_backend *backend, int32_t page, const uint8_t *bytes,
                                 oj_error *error);
oj_status oj_backend_export_snapshot(oj_backend *backend, int32_t snapshot, uint8_t *out,
                                     oj_error *error);
oj_status oj_backend_import_snapshot(oj_backend *backend, int32_t snapshot, const uint8_t *bytes,
                                     oj_error *error);

/* Rows of the last step with keep_logits: which = 0: logits [n_vocab] of row `index`;
 * which = 1: draft logits [n_vocab], index = seq * OJ_MAX_DRAFTS + depth;
 * which = 2: post-norm hidden [n_embd] of row `index`. For tests and evaluation. */
oj_status oj_backend_read(oj_backend *backend, int32_t which, int32_t index, float *out,
                          oj_error *error);

/* Bytes that such a backend would take: weights it copies, states, pages, scratch. */
typedef struct oj_memory_plan {
    int64_t weights, states, snapshots, pages, scratch;
    int64_t page_bytes, state_bytes;
    int64_t host;      /* CUDA: bytes among these in pinned host memory, the rest on the device */
    int64_t available; /* CUDA: free bytes of the device now; 0 for other backends */
} oj_memory_plan;

oj_status oj_backend_memory(const oj_model *model, const oj_backend_options *options,
                            oj_memory_plan *plan, oj_error *error);

/* A script for OJ_BACKEND_SCRIPTED: the first rule whose `match` tokens occur in the conversation
 * (an empty match always does) says what the model answers; after `reply` comes end-of-generation.
 * Where a mask forbids its next token, the lowest id allowed is said in its place. */
typedef struct oj_script_rule {
    const int32_t *match;
    int32_t n_match;
    const int32_t *reply;
    int32_t n_reply;
    int32_t per_step;    /* tokens a step, 1..OJ_MAX_DRAFTS + 1 */
    int32_t delay_us;    /* sleep in each step that serves this rule */
    int32_t fault_after; /* fail the step after this many reply tokens; -1 = never */
} oj_script_rule;

/* --------------------------------------------------------------- engine ---- */

typedef struct oj_engine oj_engine;

typedef struct oj_engine_options {
    oj_backend_options backend;
    int32_t context;          /* positions one conversation may use */
    int32_t max_queue;        /* waiting requests, all clients */
    int32_t max_queue_client; /* waiting requests of one client */
    int32_t draft;            /* most drafts a step and conversation, 0 = off .. OJ_MAX_DRAFTS */
    float step_target;        /* a step with prompt rows costs at most this times a decode step */
    int32_t min_prompt_rows;  /* ... but reads at least this many prompt rows */
    int32_t mask_timeout_ms;  /* a request ends when its masks take longer; 0 = 30000 */
    /* Stored prefixes that have to leave the backend's memory stay in at most host_bytes of host
     * memory; then, with state_dir, in files of at most state_bytes together. With state_dir,
     * oj_engine_stop writes everything that is stored, and oj_engine_open knows it again. The
     * folder is made if needed and belongs to one engine at a time. */
    int64_t host_bytes;
    const char *state_dir; /* NULL = none; copied */
    int64_t state_bytes;
    const oj_script_rule *script; /* scripted backend only; copied */
    int32_t n_script;
    int32_t step_target_us; /* > 0: a step with prompt rows takes at most this, in place of
                               step_target */
} oj_engine_options;

/* Starts the step thread. The engine keeps the mapping of the model; the handle may be closed. */
oj_status oj_engine_open(const oj_model *model, const oj_engine_options *options,
                         oj_engine **engine, oj_error *error);
/* Cancels everything and joins the step thread; afterwards oj_submit answers OJ_ERR_CLOSED and
 * oj_poll hands out what is left, then -OJ_ERR_CLOSED. Any thread; a second call does nothing. */
void oj_engine_stop(oj_engine *engine);
/* Stops if needed, then frees once no call is inside. Handles are never reused: a call on a closed
 * one answers OJ_ERR_CLOSED. Any thread. */
void oj_engine_close(oj_engine *engine);
/* OJ_OK while the engine serves; OJ_ERR_FAULT with the backend's own words once it is lost;
 * OJ_ERR_CLOSED after oj_engine_stop. Any thread. */
oj_status oj_engine_health(oj_engine *engine, oj_error *error);

/* A limit on the tokens of a span. When it is used up, the closing tokens become history without
 * being chosen, and the request goes on behind them. n_closing 0: no limit. */
typedef struct oj_thinking {
    int32_t open; /* tokens that open and close the span */
    int32_t close;
    int32_t starts_open;    /* 1: it is open at the first generated token */
    int32_t budget;         /* tokens in all such spans together, the closing one not counted */
    const int32_t *closing; /* `close` is among them; copied */
    int32_t n_closing;      /* 0..OJ_MAX_CLOSING */
} oj_thinking;

typedef struct oj_request {
    const int32_t *tokens; /* the prompt */
    int32_t n_tokens;
    const int32_t *boundaries; /* ascending prompt lengths worth a snapshot (end of system + tools,
                                  end of each message); the prompt end needs no entry */
    int32_t n_boundaries;
    const char *client;       /* fairness and the monitor; "" is allowed */
    int32_t max_tokens;       /* clamped to the room left in the context; <= 0: all of it */
    int32_t ignore_eos;       /* 1: end-of-generation tokens are ordinary */
    int64_t deadline_us;      /* from submission; 0 = none */
    oj_sampling sampling;     /* bias arrays are copied */
    const char *const *stops; /* stop strings */
    int32_t n_stops;
    /* Stop strings count in visible text only. hidden[2 i], hidden[2 i + 1]: token ids that open
     * and close hidden span i (thinking, tool calls); starts_hidden: the span already open at the
     * first generated token, or -1. A stop string does not reach across a hidden span. */
    const int32_t *hidden;
    int32_t n_hidden; /* spans */
    int32_t starts_hidden;
    const int32_t *stop_tokens; /* more end-of-generation ids; they count with ignore_eos too */
    int32_t n_stop_tokens;
    int32_t draft; /* -1 = up to the engine's setting, as deep as recent success pays;
                      0..OJ_MAX_DRAFTS = always this many */
    oj_thinking thinking;
    /* Token masks: one bit an id, in words of 32, lowest bit first, at least one of them set.
     * allowed: of every generated token that is not masked by oj_set_masks; NULL = all; copied.
     * constrained 1: every token behind the first generated `constrain_after` (-1: every token)
     * waits for oj_set_masks. */
    const uint32_t *allowed;
    int32_t constrained;
    int32_t constrain_after;
} oj_request;

typedef enum oj_event_kind {
    OJ_EVENT_PROMPT = 0, /* some prompt rows were read: stats.prompt_read moved */
    OJ_EVENT_TOKEN = 1,
    OJ_EVENT_DONE = 2 /* the last event of a request */
} oj_event_kind;

typedef enum oj_finish {
    OJ_FINISH_STOP = 0,   /* end-of-generation token */
    OJ_FINISH_STRING = 1, /* stop string */
    OJ_FINISH_LENGTH = 2, /* max_tokens or the context */
    OJ_FINISH_CANCEL = 3,
    OJ_FINISH_DEADLINE = 4,
    OJ_FINISH_ERROR = 5,     /* the backend failed */
    OJ_FINISH_CONSTRAINT = 6 /* its masks could not be made or did not come in time */
} oj_finish;

typedef struct oj_request_stats {
    int32_t prompt_tokens;
    int32_t cached_tokens; /* prompt tokens that were no row of a forward */
    int32_t prompt_read;   /* prompt tokens done so far, cached included */
    int32_t generated;
    int32_t drafted_at[2][OJ_MAX_DRAFTS]; /* verified, by oj_draft_source and place in the block */
    int32_t accepted_at[2][OJ_MAX_DRAFTS];
    int64_t queued_us;      /* submission to admission */
    int64_t first_token_us; /* submission to first token */
    int64_t total_us;
} oj_request_stats;

typedef struct oj_event {
    uint64_t request;
    int32_t kind;   /* oj_event_kind */
    int32_t token;  /* TOKEN */
    int32_t keep;   /* TOKEN: leading bytes of the token's text that belong to the answer, -1 = all.
                       0 for an end-of-generation token; the bytes before the stop string for the
                       token in which one begins, 0 for those after it. Tokens that may begin a stop
                       string come once that is decided. */
    int32_t finish; /* DONE: oj_finish */
    int32_t stop;   /* DONE by stop string: its index, else -1 */
    oj_logprob logprob;     /* TOKEN */
    oj_request_stats stats; /* so far */
} oj_event;

/* Queues a request. OJ_ERR_BUSY past the queue's limits, OJ_ERR_CONTEXT if the prompt does not fit
 * with one token of answer, OJ_ERR_FAULT once the engine is lost. Any thread. */
oj_status oj_submit(oj_engine *engine, const oj_request *request, uint64_t *id, oj_error *error);
/* The request ends at the next step with OJ_FINISH_CANCEL; unknown or ended ids are ignored. Any
 * thread. */
void oj_cancel(oj_engine *engine, uint64_t id);
/* Waits up to timeout_ms for events of any request and moves at most `max` of them into `events`;
 * returns their number, 0 on timeout, -OJ_ERR_CLOSED once stopped and drained. Any thread. While
 * nobody fetches events, steps wait: some ten thousand are kept at most. */
int32_t oj_poll(oj_engine *engine, oj_event *events, int32_t max, int32_t timeout_ms);

/* What a constrained request needs next. */
typedef struct oj_mask_request {
    uint64_t request;
    int32_t position; /* absolute, of the token to be masked */
    int32_t n_tokens; /* constrained tokens that became history since the last question, forced ones
                         of its answer left out */
    int32_t n_drafts; /* drafts that could be verified with it */
    int32_t tokens[OJ_MAX_DRAFTS + 1 + OJ_MAX_CLOSING];
    int32_t drafts[OJ_MAX_DRAFTS];
} oj_mask_request;

/* Waits up to timeout_ms for a question; 1, or 0 on timeout, or -OJ_ERR_CLOSED once stopped. A
 * request has at most one open question, and sits steps out until it is answered. Any thread. */
int32_t oj_poll_masks(oj_engine *engine, oj_mask_request *asked, int32_t timeout_ms);
/* Answers the question about `position` with n_masks masks back to back: of the next token, then of
 * the one behind each draft in turn, up to the first draft that its mask refuses or that tokens are
 * forced behind. `forced` tokens become history at once; then there is one mask, of the token
 * behind them. n_masks 0: the masks cannot be made, and the request ends with OJ_FINISH_CONSTRAINT.
 * What answers no open question is ignored: requests end at any time. Everything is copied. Any
 * thread. */
oj_status oj_set_masks(oj_engine *engine, uint64_t request, int32_t position, const uint32_t *masks,
                       int32_t n_masks, const int32_t *forced, int32_t n_forced, oj_error *error);

typedef struct oj_engine_stats {
    int64_t steps;
    int64_t rows;         /* rows of all steps */
    int64_t shared_steps; /* steps with rows of two or more conversations */
    int64_t step_us;      /* time inside backend steps */
    int64_t last_step_us;
    int64_t prompt_rows;
    int64_t decode_rows;
    int64_t generated;
    int64_t cached_tokens;
    int64_t evicted_pages;
    int64_t drafted_at[2][OJ_MAX_DRAFTS]; /* as in oj_request_stats */
    int64_t accepted_at[2][OJ_MAX_DRAFTS];
    int32_t running;
    int32_t waiting;
    int32_t pages_total;
    int32_t pages_used;   /* referenced by a running conversation */
    int32_t pages_cached; /* kept for reuse only */
    int32_t snapshots_total;
    int32_t snapshots_used;
    int32_t context;
    int32_t prefixes_kept; /* stored prefixes in host memory or files */
    int64_t host_bytes;    /* of host memory that they take */
} oj_engine_stats;

/* Any thread. */
void oj_engine_get_stats(oj_engine *engine, oj_engine_stats *stats);

typedef struct oj_saved {
    int32_t n_tokens;
    int64_t n_bytes; /* of the file */
} oj_saved;

/* What is stored of the conversation that these tokens are, to a file of state_dir and back. `name`
 * is that of a file in the folder; paths, links and the names of the engine's own files are
 * OJ_ERR_INVALID, and so is a file that cannot be used. oj_engine_restore fills `tokens`, up to
 * max_tokens of them. Any thread; they wait for the disk. */
oj_status oj_engine_save(oj_engine *engine, const int32_t *tokens, int32_t n_tokens,
                         const char *name, oj_saved *saved, oj_error *error);
oj_status oj_engine_restore(oj_engine *engine, const char *name, int32_t *tokens,
                            int32_t max_tokens, oj_saved *restored, oj_error *error);
/* Forgets it, files of state_dir that the engine wrote included, but not what other conversations
 * begin with too. n_erased: tokens that were stored. Any thread. */
oj_status oj_engine_erase(oj_engine *engine, const int32_t *tokens, int32_t n_tokens,
                          int32_t *n_erased, oj_error *error);

/* Moves the oldest unread line of the engine's log into `text`; its length, 0 if there is none, or
 * -OJ_ERR_CLOSED. Lines are about files of state_dir that are of no use. Any thread. */
int32_t oj_engine_note(oj_engine *engine, char *text, int32_t size);

/* -- cdef end -- */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* OPENJET_H */
