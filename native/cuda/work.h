// How many work items each phase has: the loops of the phases and the plan of who takes part in
// them (plan_meetings) count alike. Items are dealt to blocks in turn, so that the first
// min(items, n_blocks) blocks have work.
#pragma once

#include "cuda/phase.h"

namespace oj::cuda {

constexpr int piece_columns = super_group;  // of a row, what a warp works on at a time

OJ_HD int pieces_of_row(int cols) {
    return (cols + piece_columns - 1) / piece_columns;
}

// Rows that a multiply phase multiplies.
OJ_HD int multiply_rows(const Phase& p, const StepView& view) {
    return p.targets[0] == Target::logits ? view.n_logits : view.n_rows;
}

// A row's pieces and its rotation.
OJ_HD int embed_items(const Dims& d, const StepView& view) {
    return view.n_rows * (pieces_of_row(d.n_embd) + 1);
}

// Parts of a head of `state_dim` columns that are worked on apart.
OJ_HD constexpr int delta_parts(int state_dim) {
    return state_dim < 64 ? 1 : state_dim / 64;
}
OJ_HD int delta_core_items(const Dims& d, const StepView& view) {
    return view.n_runs * d.n_v_heads * delta_parts(d.state_dim);
}

// Pieces of rows, then strips of a run's channels: a warp has a row of its past in eight lanes.
constexpr int past_lanes = 8, strip_channels = past_lanes * super_group / 32;
OJ_HD int delta_strips(const Dims& d) {
    return (d.conv_channels() + strip_channels - 1) / strip_channels;
}
OJ_HD int delta_out_items(const Dims& d, const StepView& view) {
    return view.n_rows * pieces_of_row(d.v_channels()) + view.n_runs * delta_strips(d);
}

OJ_HD int prepare_heads(const Dims& d, bool kv_only) {
    return (kv_only ? 0 : d.n_heads) + 2 * d.n_kv_heads;
}

// Splits of row groups, each in `parts` parts. Few splits leave blocks idle, so then there are more
// parts; how queries are grouped changes no bits.
struct SplitWork {
    int splits, idle_parts, parts;

    OJ_HD int items() const { return splits * parts; }
};
constexpr int max_item_columns = 3;  // column groups of an item: their outputs are registers

OJ_HD SplitWork split_work(const Dims& d, const StepView& view, int n_blocks) {
    int most_columns = d.n_heads / d.n_kv_heads;  // of a whole row group
    SplitWork work = {view.n_groups * d.n_kv_heads * view.wave_splits, 1, 1};
    if (work.splits == 0) return work;
    work.idle_parts = n_blocks / work.splits;
    if (work.idle_parts > most_columns) work.idle_parts = most_columns;
    work.parts = (most_columns + max_item_columns - 1) / max_item_columns;
    if (work.parts < work.idle_parts) work.parts = work.idle_parts;
    return work;
}

// Scalar attention over a float codec: (row, head, split).
OJ_HD int float_split_items(const Dims& d, const StepView& view) {
    return view.n_rows * d.n_heads * view.wave_splits;
}

// Blocks that choose one of `rows` rows' tokens together: neighbouring ones, as many as there are.
OJ_HD int team_blocks(int rows, int n_blocks) {
    int each = rows > 0 ? n_blocks / rows : 1;
    return each < 1 ? 1 : each < max_team ? each : max_team;
}

// Blocks that have work in a phase: at least one, at most all. `view` is what the phase works on.
inline int working_blocks(const Phase& p, const Dims& d, int kv_codec, const StepView& view,
                          int n_blocks) {
    int items = 0;
    switch (p.kind) {
        case PhaseKind::multiply:
            return n_blocks;
        case PhaseKind::embed:
            items = embed_items(d, view);
            break;
        case PhaseKind::delta_core:
            items = delta_core_items(d, view);
            break;
        case PhaseKind::delta_out:
            items = delta_out_items(d, view);
            break;
        case PhaseKind::attn_prepare:
            items = view.n_rows * prepare_heads(d, p.kv_only != 0);
            break;
        case PhaseKind::attn_splits:
            items = kv_codec == OJ_KV_Q8_0 ? split_work(d, view, n_blocks).items()
                                           : float_split_items(d, view);
            break;
        case PhaseKind::attn_fold:
            items = view.n_rows * pieces_of_row(d.q_rows());
            break;
        case PhaseKind::act_input:
            items = view.n_rows * pieces_of_row(d.n_ff);
            break;
        case PhaseKind::verify:
            items = view.n_runs;
            break;
        case PhaseKind::choose:
            items = view.n_sampled * team_blocks(view.n_sampled, n_blocks);
            break;
        case PhaseKind::draft_choose:
            items = view.n_rows * team_blocks(view.n_rows, n_blocks);
            break;
        case PhaseKind::norm_input:
        case PhaseKind::head_input:
        case PhaseKind::mtp_join:
        case PhaseKind::draft_norm:
            items = view.n_rows;
            break;
    }
    return items < 1 ? 1 : items < n_blocks ? items : n_blocks;
}

}  // namespace oj::cuda
