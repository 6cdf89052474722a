// A step on the device: the sequence of phases, in which blocks wait for each other, and a single
// phase for the control build.
#pragma once

#include "cuda/attention.cuh"
#include "cuda/delta.cuh"
#include "cuda/gemm.cuh"
#include "cuda/mtp.cuh"
#include "cuda/sample.cuh"
#include "cuda/step_pack.h"
#include "cuda/vector.cuh"
#include "cuda/wait.cuh"

namespace oj::cuda {

// What a block keeps of the step in shared memory: nothing of it is in registers while a phase
// runs.
struct StepShared {
    Context context;
    Schedule schedule;
    Grid grid;
    int entry;  // of the schedule, where the block is
    Phase phase;
    Stream streams[block_warps];
};

// Shared memory of a block: of the phase, of the step, the weight ring, which takes what the card
// has.
constexpr int ring_at =
    phase_shared_bytes + (static_cast<int>(sizeof(StepShared)) + 127) / 128 * 128;
static_assert(ring_at + smallest_ring_bytes <= 99 << 10, "what every supported card has");

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

// By one warp; the block meets before it works on the phase.
OJ_DEVICE void enter_phase(StepShared& step, int entry) {
    const SequenceEntry& next = step.schedule.sequence[entry];
    copy_to_shared<warp_lanes>(step.schedule.phases[next.phase], &step.phase);
    warp_sync();
    if (lane_index() == 0) {
        step.entry = entry;
        step.phase.wave = next.wave;
        set_products(step.context.scratch, step.phase);
    }
}

// The first entry behind `entry` at which this block has work.
OJ_DEVICE int next_entry(const StepShared& step, int entry) {
    const Schedule& s = step.schedule;
    do {
        ++entry;
    } while (entry < s.n_entries && s.sequence[entry].n_blocks <= step.grid.block);
    return entry;
}

// The block's part in a schedule begins: its first weights are on their way.
OJ_DEVICE StepShared& open_step(const StepHeader& header, const Schedule& schedule) {
    StepShared& step = step_memory();
    if (thread_index() == 0) {
        step.schedule = schedule;
        step.grid = {block_index(), block_count(), shared_memory()};
    }
    copy_to_shared<block_threads>(header.context, &step.context);
    block_sync();
    open_stream(step.schedule, step.grid, ring_at, header.ring_bytes, step.streams[warp_index()]);
    return step;
}

OJ_DEVICE void run_phase(const Context& c, const Grid& grid, const Phase& p, Stream& stream) {
    switch (p.kind) {
        case PhaseKind::embed:
            return phase_embed(c, grid, p);
        case PhaseKind::norm_input:
            return phase_norm_input(c, grid, p);
        case PhaseKind::multiply:
            return phase_multiply(c, stream, p);
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

// The block begins an entry once everything before it is done. False if the step is given up.
OJ_DEVICE bool begin_entry(StepHeader& header, StepShared& step, int entry) {
    bool failed = false;
    if (warp_index() == 1) enter_phase(step, entry);
    if (thread_index() == 0) {
        GridBarrier& barrier = header.barrier;
        failed = !wait_for_arrivals(&barrier.arrived, step.schedule.sequence[entry].begins_at,
                                    &barrier.fault, header.relaxed_polls != 0);
        if (header.stress != 0) delay(stress_delay(header.stress, block_index(), 2 * entry));
    }
    return !block_any(failed);
}

// The block arrives at the end of the entry it is at; its next one. What needs no other block is
// done before it waits again.
OJ_DEVICE int end_entry(StepHeader& header, StepShared& step) {
    const int entry = step.entry;
    const bool multiplied = step.phase.kind == PhaseKind::multiply;
    block_sync();
    if (thread_index() == 0) {
        if (header.stress != 0) delay(stress_delay(header.stress, block_index(), 2 * entry + 1));
        add_release(&header.barrier.arrived, 1);
    }
    if (multiplied) next_multiply(step.streams[warp_index()]);
    return next_entry(step, entry);
}

OJ_DEVICE void stamp(const StepHeader& header, int entry) {
    if (header.stamps == nullptr || block_index() != 0 || thread_index() != 0) return;
    header.stamps[entry] = nanoseconds();
}

OJ_DEVICE void run_phase(StepShared& step) {
    run_phase(step.context, step.grid, step.phase, step.streams[warp_index()]);
}

// The persistent kernel: all blocks are resident and visit the same entries, each only those at
// which it has work.
OJ_DEVICE void run_step(StepHeader& header) {
    StepShared& step = open_step(header, header.schedule);
    int entry = next_entry(step, -1);
    while (entry < step.schedule.n_entries) {
        if (!begin_entry(header, step, entry)) return;
        stamp(header, entry);
        run_phase(step);
        entry = end_entry(header, step);
    }
    stamp(header, step.schedule.n_entries);
}

// One entry alone: the control build's kernel. Where the card can, it starts while the kernel
// before it ends, and has its first weights by then.
OJ_DEVICE void run_entry(StepHeader& header, int entry) {
    StepShared& step =
        open_step(header, {header.schedule.phases, header.schedule.sequence + entry, 1});
    launch_next_kernel();
    wait_for_kernel_before();
    if (warp_index() == 0) enter_phase(step, 0);
    block_sync();
    stamp(header, entry);
    run_phase(step);
    block_sync();
    stamp(header, entry + 1);
}

}  // namespace oj::cuda
