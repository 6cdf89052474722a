// Refuses plans and options that would read or write out of bounds, for every backend.
#pragma once

#include <vector>

#include "model/model.h"
#include "openjet.h"

namespace oj {

// Both throw oj::Error (OJ_ERR_INVALID) naming the field and its rule.

void check_options(const Model& model, const oj_backend_options& options);

// `pending` are the recorded draft rows of each slot.
void check_plan(const Model& model, const oj_backend_options& options, const oj_plan& plan,
                const std::vector<int>& pending);

}  // namespace oj
