// Proves that a program's schedule is right, without a device: what each phase reads and writes is
// a table, and the rules below follow it through a step. Every function returns the first fault in
// words, or "" if there is none.
#pragma once

#include <string>
#include <vector>

#include "cuda/meetings.h"
#include "cuda/partition.h"
#include "cuda/program.h"

namespace oj::cuda {

// Every weight matrix is multiplied once where it belongs (once a pass for the MTP block), with an
// input of its width in the form it reads, into a buffer that nobody else's product is in; layers
// take their states and pages in turn.
std::string check_program(const Model& model, const WeightAddresses& weights,
                          const Program& program, const Tensor* draft_head);

// Every value is written before it is read, read before it is overwritten, and taken once by the
// phase that uses it up; between a write and another phase's access lies a barrier.
// barriers[i]: whether entries behind i wait for it (empty: always, which check_meetings() proves).
std::string check_sequence(const Program& program, const std::vector<SequenceEntry>& sequence,
                           const StepShape& shape, const std::vector<bool>& barriers = {});

// Whoever has work in an entry takes part in it, no entry begins before all earlier ones are done,
// however long any block takes, and every block comes to the end.
std::string check_meetings(const Program& program, const StepWork& work,
                           const std::vector<SequenceEntry>& sequence);

// The stream of weights comes to the sequence's products, in their order and with their rows.
std::string check_multiplies(const Program& program, const StepWork& work,
                             const std::vector<SequenceEntry>& sequence,
                             const std::vector<Multiply>& multiplies);

// The units of every warp in a multiply phase, part after part, as first_units() has them.
std::vector<UnitRange> partition(const std::vector<Unit>& first_units, const Phase& phase,
                                 int n_blocks);

// Every byte of the phase's weights belongs to one unit of one warp, and no warp or block has more
// than its share and a unit.
std::string check_partition(const Phase& phase, const std::vector<UnitRange>& warps);

}  // namespace oj::cuda
