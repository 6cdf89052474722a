// A model as phases, and the order in which a step visits them.
#pragma once

#include <vector>

#include "cuda/phase.h"
#include "model/model.h"

namespace oj::cuda {

// With the layers of the MTP block counted in, if wanted.
Dims dims_of(const Model& model, bool with_mtp);

// Where the device finds the weights of a model.
class WeightAddresses {
public:
    virtual ~WeightAddresses() = default;

    // The packed matrix.
    virtual const uint8_t* matrix(const Tensor& tensor) const = 0;
    // The floats of a vector as in the file; ssm_conv1d is transposed to [tap][channel].
    virtual const float* vector(const Tensor& tensor) const = 0;
};

int n_tiles(const Tensor& tensor);

// What decides which phases a step visits.
struct StepShape {
    int n_rows;
    int n_logits;
    int waves;  // of attention splits
    int most_drafts;
    int draft_waves;
};

struct PhaseRange {
    int begin, end;
};

struct Program {
    std::vector<Phase> phases;
    int n_products;
    PhaseRange layers;  // embedding and layers
    int head_input, output, choose;
    PhaseRange store;  // the MTP block over the rows of the step; may be empty
    int verify;
    std::vector<PhaseRange> drafts;  // the MTP block by depth: OJ_MAX_DRAFTS, or none

    std::vector<SequenceEntry> sequence(const StepShape& shape) const;
};

// The multiply phases.
std::vector<const Phase*> products_of(const Program& program);

// `draft_head` is what drafts are chosen with; NULL leaves the MTP block out.
Program make_program(const Model& model, const WeightAddresses& weights, const Tensor* draft_head);

}  // namespace oj::cuda
