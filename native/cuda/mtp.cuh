// Phases of the multi-token-prediction block that the layers' phases do not cover.
#pragma once

#include "cuda/vector.cuh"

namespace oj::cuda {

// What row r of a draft pass continues: the token whose successor is drafted.
struct DraftStart {
    int token, position;  // position -1: this run drafts no more
    const float* hidden;  // of the position before
};

OJ_DEVICE DraftStart draft_start(const Context& c, int r, int depth) {
    int index = c.step.drafting[r];
    const Run& run = c.step.runs[index];
    const oj_seq_result& result = c.scratch.results[index];
    if (result.n_tokens == 0) return {0, -1, nullptr};
    int position = run.position + run.n_certain + result.n_tokens - 1;
    int room = run.n_pages * kv_page - position;  // the block's own rows need pages too
    if (depth >= run.n_draft || depth >= room) return {0, -1, nullptr};
    int64_t n = c.dims.n_embd;
    if (depth == 0) {
        int before = run.first_row + run.n_certain + result.n_tokens - 2;
        return {result.tokens[result.n_tokens - 1], position, c.scratch.hidden + before * n};
    }
    return {result.drafts[depth - 1], position + depth, c.scratch.draft_hidden + r * n};
}

// Hidden of the position before row r of the step; null at position 0.
OJ_DEVICE const float* hidden_before(const Context& c, int r) {
    const Run& run = c.step.runs[c.step.rows[r].run];
    if (r > run.first_row) return c.scratch.hidden + static_cast<int64_t>(r - 1) * c.dims.n_embd;
    if (run.position == 0) return nullptr;
    if (run.fold == 0) return c.states.hidden(run.slot, c.dims.n_delta_layers);
    return c.states.record_hidden(run.slot, run.record_from, c.dims.n_delta_layers, run.fold - 1,
                                  c.dims.n_embd);
}

// Input row r = [norm(embedding of token), norm(before)]; the stream starts at 0. The embedding's
// blocks come from the host while `before` is worked on.
OJ_DEVICE void join_row(const Context& c, const Phase& p, int r, int token, const float* before) {
    constexpr int stride = block_warps * piece_columns;
    constexpr int turns = (max_norm_columns + stride - 1) / stride;
    const int n = c.dims.n_embd, begin = uniform_warp_index() * piece_columns;
    auto count = [&](int k) { return n - k < piece_columns ? n - k : piece_columns; };
    Embedding pieces[turns] = {};
    OJ_UNROLL_ALL
    for (int i = 0; i < turns; ++i) {
        int k = begin + i * stride;
        if (k < n) pieces[i] = load_embedding(c, token, k, count(k));
    }
    float* x = in_global(c.scratch.x) + static_cast<int64_t>(r) * n;
    for (int k = thread_index(); k < n; k += block_threads)
        x[k] = 0.0f;
    auto emit = [&](int first, int end, const LaneColumns& x) {
        write_input(c.scratch.input, p.forms, r, 2 * n, first, end, x);
    };
    if (shuffle(before != nullptr ? 1 : 0, 0) != 0) {  // the same in all lanes
        norm_row(
            n, c.dims.rms_eps, p.weight2,
            [&](float* row) {
                const uint32_t strips = strips_of(n);
                RowPart part = {};
                load_part(before, strips, &part);
                visit_strips(strips, [&](int i, int k) { store_floats<4>(row + k, part.v[i]); });
            },
            [&](int first, const LaneColumns& x) { emit(n + first, 2 * n, x); });
    } else {
        for (int k = begin; k < n; k += stride)
            emit(n + k, 2 * n, {});
    }
    norm_row(
        n, c.dims.rms_eps, p.weight,
        [&](float* row) {
            OJ_UNROLL(1)
            for (int k = begin; k < n; k += stride) {
                unpack_embedding(c, pieces[0], count(k), row + k);
                OJ_UNROLL_ALL
                for (int i = 1; i < turns; ++i)
                    pieces[i - 1] = pieces[i];
            }
        },
        [&](int first, const LaneColumns& x) { emit(first, n, x); });
}

// n_embd is a multiple of 256 where the input is wanted in groups of 256: pieces of the two halves
// do not share one.
OJ_PHASE void phase_mtp_join(const Context& c, const Grid& grid, const Phase& p) {
    if (!p.draft_pass) {
        for (int r = grid.block; r < c.step.n_rows; r += grid.n_blocks)
            join_row(c, p, r, c.step.rows[r].token, hidden_before(c, r));
        return;
    }
    for (int r = grid.block; r < c.draft.n_rows; r += grid.n_blocks) {
        DraftStart start = draft_start(c, r, p.depth);
        if (thread_index() == 0) {
            c.draft.rows[r].token = start.token;
            c.draft.rows[r].position = start.position;
        }
        if (shuffle(start.position, 0) < 0) continue;  // the same in all lanes
        rotate_row(c, r, start.position, thread_index(), block_threads);
        join_row(c, p, r, start.token, start.hidden);
    }
}

OJ_PHASE void phase_draft_norm(const Context& c, const Grid& grid, const Phase& p) {
    for (int r = grid.block; r < c.draft.n_rows; r += grid.n_blocks) {
        float* hidden = c.scratch.draft_hidden + static_cast<int64_t>(r) * c.dims.n_embd;
        norm_hidden(c, p, r, hidden, r);
    }
}

}  // namespace oj::cuda
