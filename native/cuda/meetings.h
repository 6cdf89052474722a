// Which blocks take part in which entry of a step, and what they wait for.
#pragma once

#include <vector>

#include "cuda/partition.h"
#include "cuda/program.h"
#include "cuda/work.h"

namespace oj::cuda {

// What decides it, besides the phase.
struct StepWork {
    const Dims& dims;
    int kv_codec;
    const StepView &step, &draft;
    int n_blocks;

    const StepView& view(const Phase& p) const { return p.draft_pass != 0 ? draft : step; }
    int blocks(const Phase& p) const {
        return working_blocks(p, dims, kv_codec, view(p), n_blocks);
    }
};

// An entry begins when all blocks that work on entries before it have arrived at them. They arrive
// at one counter: since nobody arrives at an entry before it begins, the counter's value says which
// entries are done.
inline void plan_meetings(const Program& program, const StepWork& work,
                          std::vector<SequenceEntry>* sequence) {
    uint32_t arrivals = 0;
    for (SequenceEntry& entry : *sequence) {
        entry.n_blocks = work.blocks(program.phases[entry.phase]);
        entry.begins_at = arrivals;
        arrivals += static_cast<uint32_t>(entry.n_blocks);
    }
}

// The sequence's products, for the stream of weights.
inline std::vector<ProductRun> plan_runs(const Program& program, const StepWork& work,
                                         std::vector<SequenceEntry>* sequence) {
    std::vector<ProductRun> runs;
    for (SequenceEntry& entry : *sequence) {
        const Phase& p = program.phases[entry.phase];
        if (p.kind != PhaseKind::multiply) continue;
        const auto product = static_cast<int16_t>(p.product);
        const int n_rows = multiply_rows(p, work.view(p));
        if (runs.empty() || runs.back().end != product || runs.back().n_rows != n_rows)
            runs.push_back({product, product, n_rows});
        ++runs.back().end;
        entry.run = static_cast<int32_t>(runs.size()) - 1;
    }
    return runs;
}

}  // namespace oj::cuda
