// Proves that a program's schedule is right, without a device: what each phase reads and writes is
// a table, and the rules below follow it through a step. Every function returns the first fault in
// words, or "" if there is none.
#pragma once

#include <string>
#include <vector>

#include "cuda/meetings.h"
#include "cuda/program.h"
#include "cuda/shares.h"

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
std::string check_runs(const Program& program, const StepWork& work,
                       const std::vector<SequenceEntry>& sequence,
                       const std::vector<ProductRun>& runs);

// Every byte of the products' weights belongs to one bundle of one warp, which lies where its tiles
// do, and no warp or block has more than its share of a product and a unit.
std::string check_shares(const std::vector<const Phase*>& products, const Shares& shares,
                         int n_blocks);

}  // namespace oj::cuda
