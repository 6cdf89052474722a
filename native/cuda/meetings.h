// Which blocks take part in which entry of a step, and what they wait for.
#pragma once

#include <vector>

#include "cuda/program.h"
#include "cuda/work.h"

namespace oj::cuda {

// What decides it, besides the phase.
struct StepWork {
    const Dims& dims;
    int kv_codec;
    const StepView &step, &draft;
    int n_blocks;

    int blocks(const Phase& p) const {
        return working_blocks(p, dims, kv_codec, p.draft_pass != 0 ? draft : step, n_blocks);
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
    int32_t distance = 0;
    for (size_t i = sequence->size(); i-- > 0;) {
        SequenceEntry& entry = (*sequence)[i];
        ++distance;
        if (program.phases[entry.phase].kind == PhaseKind::multiply) distance = 0;
        entry.next_multiply = distance;
    }
}

}  // namespace oj::cuda
