// The optimizer's half of a ZeRO checkpoint: *_optim_states.pt, one for each rank, stages 1 to 3, read and written.
//
// What: a rank's file has, for each group of parameters and each state, a flat buffer: its part of all parameters of
// the group one behind the other, in the order of param_shapes. Stages 1 and 2 cut the whole row over the ranks; what
// param_slice_mappings say is compared with that. Stage 3 cuts each parameter. Pieces are flat ranges.
// Errors: kDataLoss and kInvalidArgument name file, byte and parameter.
// Threads: pure. Source: deepspeed/runtime/zero/{stage_1_and_2,stage3}.py, deepspeed/utils/zero_to_fp32.py (0.19.8,
// read and run).
#pragma once

#include <string>
#include <vector>

#include "replica/formats/deepspeed/model_states.h"

namespace kintsugi::formats::deepspeed {

// Adds "zero.*" and "optimizer_state.*" of the files among `names`; nothing where there are none.
Status AddZeroFiles(Catalog* catalog, const std::string& folder, const std::vector<std::string>& names,
                    const ModelStates& states, const ReadOptions& options);

// The files of all data-parallel ranks, in `folder`.
Result<std::vector<OutlineFile>> LayZeroFiles(const Content& content, const Sorted& sorted, const LayOptions& options,
                                              const std::string& folder);

}  // namespace kintsugi::formats::deepspeed
