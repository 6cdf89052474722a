// A step on the device: the sequence of phases, in which blocks wait for each other, and a single
// phase for the control build.
#pragma once

#include "cuda/attention.cuh"
#include "cuda/delta.cuh"
#include "cuda/delta_out.cuh"
#include "cuda/gemm.cuh"
#include "cuda/mtp.cuh"
#include "cuda/sample.cuh"
#include "cuda/step_pack.h"
#include "cuda/vector.cuh"
#include "cuda/wait.cuh"

namespace oj::cuda {

// An entry of the schedule that the block visits; behind the last one, `entry` is n_entries or
// more.
struct Visit {
    int entry;
    SequenceEntry what;
};

// What a block keeps of the step in shared memory: nothing of it is in registers while a phase
// runs.
struct StepShared {
    Context context;
    Schedule schedule;
    Grid grid;
    GridBarrier* barrier;
    uint64_t* stamps;
    uint32_t stress;
    int32_t relaxed_polls;
    int entry;     // of the schedule, where the block is
    Phase phase;   // of that entry
    Visit next;    // its next one,
    Phase coming;  // the phase of that,
    Visit later;   // and the one behind it
    Stream streams[block_warps];
};

// Shared memory of a block: of the phase, of the step, the weight ring, which takes what the card
// has.
constexpr int ring_at =
    phase_shared_bytes + (static_cast<int>(sizeof(StepShared)) + 127) / 128 * 128;
constexpr int least_shared_bytes = 99 << 10;  // what every supported card has
static_assert(ring_at + smallest_ring_bytes <= least_shared_bytes);
static_assert(pairs_together(whole_block_bytes(BlockType::Q4_K), 1,
                             (least_shared_bytes - ring_at) / block_warps),
              "on every supported card");

OJ_DEVICE StepShared& step_memory() {
    return *reinterpret_cast<StepShared*>(shared_memory() + phase_shared_bytes);
}

// By a warp, or by all threads of the block.
template <int threads, class T>
OJ_DEVICE void copy_to_shared(const T& from, T* to) {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    auto* source = reinterpret_cast<const uint32_t*>(&from);
    auto* target = reinterpret_cast<uint32_t*>(to);
    for (int i = thread_index() % threads; i < static_cast<int>(sizeof(T) / 4); i += threads)
        target[i] = source[i];
}

// Lane i's of 32 entries from `first` on, by one warp.
OJ_DEVICE Visit candidate(const Schedule& s, int first) {
    Visit mine = {first + lane_index(), {}};
    if (mine.entry < s.n_entries) mine.what = in_global(s.sequence)[mine.entry];
    return mine;
}

// The first of the entries from the lanes' candidates on at which this block has work, or the end.
OJ_DEVICE void choose_visit(const Schedule& s, int block, Visit mine, Visit* chosen) {
    uint32_t works;
    for (;;) {
        works = warp_ballot(mine.what.n_blocks > block || mine.entry >= s.n_entries);
        if (works != 0) break;
        mine = candidate(s, mine.entry - lane_index() + warp_lanes);
    }
    if ((works & (0u - works)) == 1u << lane_index()) *chosen = mine;
}

// What one warp loads of the visits to come while the block waits: `later`'s phase, a part in each
// lane, and where the visit behind that may be. None of it changes during a step.
struct Ahead {
    uint32_t words[(sizeof(Phase) / 4 + warp_lanes - 1) / warp_lanes];
    Visit candidate;
};

OJ_DEVICE Ahead load_ahead(const StepShared& step) {
    constexpr int n_words = sizeof(Phase) / 4;
    const Schedule& s = step.schedule;
    Ahead ahead = {};
    if (step.later.entry >= s.n_entries) return ahead;
    auto* from = reinterpret_cast<const uint32_t*>(in_global(s.phases) + step.later.what.phase);
    OJ_UNROLL_ALL
    for (int i = 0; i * warp_lanes < n_words; ++i) {
        int at = i * warp_lanes + lane_index();
        if (at < n_words) ahead.words[i] = from[at];
    }
    ahead.candidate = candidate(s, step.later.entry + 1);
    return ahead;
}

// `later` is the next visit, and the one behind it takes its place.
OJ_DEVICE void advance(StepShared& step, const Ahead& ahead) {
    constexpr int n_words = sizeof(Phase) / 4;
    if (lane_index() == 0) step.next = step.later;
    warp_sync();
    if (step.next.entry >= step.schedule.n_entries) return;
    auto* to = reinterpret_cast<uint32_t*>(&step.coming);
    OJ_UNROLL_ALL
    for (int i = 0; i * warp_lanes < n_words; ++i) {
        int at = i * warp_lanes + lane_index();
        if (at < n_words) to[at] = ahead.words[i];
    }
    choose_visit(step.schedule, step.grid.block, ahead.candidate, &step.later);
}

// By one warp; the block meets before it works on the phase.
OJ_DEVICE void enter_next(StepShared& step) {
    copy_to_shared<warp_lanes>(step.coming, &step.phase);
    warp_sync();
    if (lane_index() == 0) {
        step.entry = step.next.entry;
        step.phase.wave = step.next.what.wave;
        set_products(step.context.scratch, step.phase);
    }
}

// The block's part in a schedule begins: its first visits are known, its first weights are on their
// way.
OJ_DEVICE StepShared& open_step(StepHeader& header, const Schedule& schedule) {
    StepShared& step = step_memory();
    if (thread_index() == 0) {
        step.schedule = schedule;
        step.grid = {block_index(), block_count(), shared_memory()};
        step.barrier = &header.barrier;
        step.stamps = header.stamps;
        step.stress = header.stress;
        step.relaxed_polls = header.relaxed_polls;
    }
    copy_to_shared<block_threads>(header.context, &step.context);
    block_sync();
    if (uniform_warp_index() == 1) {
        choose_visit(step.schedule, step.grid.block, candidate(step.schedule, 0), &step.later);
        warp_sync();
        advance(step, load_ahead(step));
    }
    open_stream(step.schedule, ring_at, header.ring_bytes, step.streams[uniform_warp_index()]);
    block_sync();
    return step;
}

OJ_DEVICE void run_phase(const Context& c, const Schedule& schedule, const Grid& grid,
                         const Phase& p, Stream& stream) {
    switch (p.kind) {
        case PhaseKind::embed:
            return phase_embed(c, grid, p);
        case PhaseKind::norm_input:
            return phase_norm_input(c, grid, p);
        case PhaseKind::multiply:
            return phase_multiply(c, schedule, stream, p);
        case PhaseKind::delta_core:
            return phase_delta_core(c, grid, p);
        case PhaseKind::delta_out:
            return phase_delta_out(c, grid, p);
        case PhaseKind::attn_prepare:
            return phase_attn_prepare(c, grid, p);
        case PhaseKind::attn_splits:
            return phase_attn_splits(c, grid, p);
        case PhaseKind::attn_fold:
            return phase_attn_fold(c, grid, p);
        case PhaseKind::act_input:
            return phase_act_input(c, grid, p);
        case PhaseKind::head_input:
            return phase_head_input(c, grid, p);
        case PhaseKind::choose:
            return phase_choose(c, grid, p);
        case PhaseKind::verify:
            return phase_verify(c, grid, p);
        case PhaseKind::mtp_join:
            return phase_mtp_join(c, grid, p);
        case PhaseKind::draft_norm:
            return phase_draft_norm(c, grid, p);
        case PhaseKind::draft_choose:
            return phase_draft_choose(c, grid, p);
    }
}

// A delay of its own for every (seed, block, meeting).
OJ_DEVICE uint32_t stress_delay(uint32_t seed, int block, int meeting) {
    uint32_t x = seed * 2654435761u + static_cast<uint32_t>(block) * 40503u +
                 static_cast<uint32_t>(meeting) * 2246822519u;
    x = (x ^ x >> 15) * 2246822519u;
    return (x ^ x >> 13) % 1024;
}

// The block begins its next entry once everything before that is done. False if the step is given
// up.
OJ_DEVICE bool begin_next(StepShared& step) {
    bool failed = false;
    Ahead ahead = {};
    if (uniform_warp_index() == 1) {
        ahead = load_ahead(step);
        enter_next(step);
    }
    if (thread_index() == 0) {
        const Visit& next = step.next;
        failed = !wait_for_arrivals(&step.barrier->arrived, next.what.begins_at,
                                    &step.barrier->fault, step.relaxed_polls != 0);
        if (step.stress != 0) delay(stress_delay(step.stress, block_index(), 2 * next.entry));
    }
    if (block_any(failed)) return false;
    if (uniform_warp_index() == 1) advance(step, ahead);
    return true;
}

// The block arrives at the end of the entry it is at. What needs no other block is done before it
// waits again.
OJ_DEVICE void end_entry(StepShared& step) {
    const bool multiplied = step.phase.kind == PhaseKind::multiply;
    const int entry = step.entry;
    block_sync();
    if (thread_index() == 0) {
        if (step.stress != 0) delay(stress_delay(step.stress, block_index(), 2 * entry + 1));
        add_release(&step.barrier->arrived, 1);
    }
    if (multiplied) fill(step.schedule, step.streams[uniform_warp_index()]);
}

OJ_DEVICE void stamp(const StepShared& step, int entry) {
    if (step.stamps == nullptr || block_index() != 0 || thread_index() != 0) return;
    step.stamps[entry] = nanoseconds();
}

OJ_DEVICE void run_phase(StepShared& step) {
    run_phase(step.context, step.schedule, step.grid, step.phase,
              step.streams[uniform_warp_index()]);
}

// The persistent kernel: all blocks are resident and visit the same entries, each only those at
// which it has work.
OJ_DEVICE void run_step(StepHeader& header) {
    StepShared& step = open_step(header, header.schedule);
    while (step.next.entry < step.schedule.n_entries) {
        if (!begin_next(step)) return;
        stamp(step, step.entry);
        run_phase(step);
        end_entry(step);
    }
    stamp(step, step.schedule.n_entries);
}

// One entry alone: the control build's kernel. Where the card can, it starts while the kernel
// before it ends, and has its first weights by then.
OJ_DEVICE void run_entry(StepHeader& header, int entry) {
    Schedule only = header.schedule;
    only.sequence += entry;
    only.n_entries = 1;
    const int run = only.sequence->run;
    only.n_runs = run < 0 ? 0 : 1;
    if (run >= 0) {
        only.runs += run;
        only.only = only.phases[only.sequence->phase].product;
    }
    StepShared& step = open_step(header, only);
    launch_next_kernel();
    wait_for_kernel_before();
    if (step.next.entry > 0) return;  // other blocks' work
    if (uniform_warp_index() == 0) enter_next(step);
    block_sync();
    stamp(step, entry);
    run_phase(step);
    block_sync();
    stamp(step, entry + 1);
}

}  // namespace oj::cuda
