// A step on the device: the sequence of phases with a meeting of all blocks behind each, and a
// single phase for the control build.
#pragma once

#include "cuda/attention.cuh"
#include "cuda/delta.cuh"
#include "cuda/gemm.cuh"
#include "cuda/mtp.cuh"
#include "cuda/sample.cuh"
#include "cuda/step_pack.h"
#include "cuda/vector.cuh"

namespace oj::cuda {

// Longer than any step takes, also under a checking tool.
constexpr uint64_t longest_wait = 20'000'000'000;  // nanoseconds

// What a block keeps of the step in shared memory: nothing of it is in registers while a phase
// runs.
struct StepShared {
    Context context;
    Schedule schedule;
    Grid grid;
    int entry;        // of the schedule, where the block is
    Phase phases[2];  // of this entry and the next one, by parity
    Stream streams[block_warps];
};

// Shared memory of a block: of the phase, of the step, the weight ring.
constexpr int ring_at =
    phase_shared_bytes + (static_cast<int>(sizeof(StepShared)) + 127) / 128 * 128;
constexpr int ring_bytes = 72 << 10;
constexpr int step_shared_bytes = ring_at + ring_bytes;
static_assert(step_shared_bytes <= 99 << 10, "what one block gets on every supported card");

OJ_DEVICE StepShared& step_memory() {
    return *reinterpret_cast<StepShared*>(shared_memory() + phase_shared_bytes);
}

template <class T>
OJ_DEVICE void copy_to_shared(const T& from, T* to) {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    auto* source = reinterpret_cast<const uint32_t*>(&from);
    auto* target = reinterpret_cast<uint32_t*>(to);
    for (int i = thread_index(); i < static_cast<int>(sizeof(T) / 4); i += block_threads)
        target[i] = source[i];
}

// By all threads; enter_phase() by one of them must follow.
OJ_DEVICE void load_phase(StepShared& step, int entry) {
    const Schedule& schedule = step.schedule;
    if (entry < schedule.n_entries) {
        copy_to_shared(schedule.phases[schedule.sequence[entry].phase], &step.phases[entry % 2]);
    }
}

OJ_DEVICE void enter_phase(StepShared& step, int entry) {
    step.entry = entry;
    Phase& p = step.phases[entry % 2];
    p.wave = step.schedule.sequence[entry].wave;
    set_products(step.context.scratch, p);
}

// The block's part in a schedule begins: its first weights are on their way.
OJ_DEVICE StepShared& open_step(const StepHeader& header, const Schedule& schedule) {
    StepShared& step = step_memory();
    if (thread_index() == 0) {
        step.schedule = schedule;
        step.grid = {block_index(), block_count(), shared_memory()};
    }
    copy_to_shared(header.context, &step.context);
    block_sync();
    open_stream(step.schedule, step.grid, ring_at, ring_bytes, step.streams[warp_index()]);
    load_phase(step, 0);
    return step;
}

OJ_DEVICE void begin_first_phase(StepShared& step) {
    block_sync();
    if (thread_index() == 0) enter_phase(step, 0);
    block_sync();
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

// One thread of each block: until `target` blocks have arrived. False after a fault anywhere.
OJ_DEVICE bool wait_for_blocks(GridBarrier& barrier, uint32_t target) {
    uint64_t start = nanoseconds();
    while (load_acquire(&barrier.arrived) < target) {
        if (load_acquire(&barrier.fault) != 0) return false;
        if (nanoseconds() - start > longest_wait) {
            store_release(&barrier.fault, 1);
            return false;
        }
        spin_pause();
    }
    return true;
}

// All blocks meet behind entry `entry`; what they wrote before is seen by all behind it. False if
// the step is given up.
OJ_DEVICE bool meet(StepHeader& header, int entry, StepShared& step) {
    bool failed = false;
    block_sync();
    if (thread_index() == 0) {
        if (header.stress != 0) delay(stress_delay(header.stress, block_index(), 2 * entry));
        add_release(&header.barrier.arrived, 1);
        auto target = static_cast<uint32_t>((entry + 1) * block_count());
        failed = !wait_for_blocks(header.barrier, target);
        if (header.stress != 0) delay(stress_delay(header.stress, block_index(), 2 * entry + 1));
        enter_phase(step, entry + 1);
    }
    return !block_any(failed);
}

OJ_DEVICE void stamp(const StepHeader& header, int entry) {
    if (header.stamps == nullptr || block_index() != 0 || thread_index() != 0) return;
    header.stamps[entry] = nanoseconds();
}

// The persistent kernel: all blocks are resident and visit the same entries.
OJ_DEVICE void run_step(StepHeader& header) {
    StepShared& step = open_step(header, header.schedule);
    begin_first_phase(step);
    for (;;) {
        stamp(header, step.entry);
        run_phase(step.context, step.grid, step.phases[step.entry % 2], step.streams[warp_index()]);
        const int entry = step.entry;
        if (entry + 1 == step.schedule.n_entries) break;
        load_phase(step, entry + 1);
        if (!meet(header, entry, step)) return;
    }
    block_sync();
    stamp(header, step.schedule.n_entries);
}

// One entry alone: the control build's kernel. Where the card can, it starts while the kernel
// before it ends, and has its first weights by then.
OJ_DEVICE void run_entry(StepHeader& header, int entry) {
    StepShared& step =
        open_step(header, {header.schedule.phases, header.schedule.sequence + entry, 1});
    launch_next_kernel();
    wait_for_kernel_before();
    begin_first_phase(step);
    stamp(header, entry);
    run_phase(step.context, step.grid, step.phases[0], step.streams[warp_index()]);
    block_sync();
    stamp(header, entry + 1);
}

}  // namespace oj::cuda
