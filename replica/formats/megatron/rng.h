// The random states of a run of kintsugi.megatron as Megatron keeps them: "rng_state", a cell for each pipeline stage and tensor
// parallel rank (megatron/training/checkpointing.py, get_rng_state).
//
// What: made of what each rank registered: "random" (Python's, NumPy's, torch's generators), "rng_tracker" (Megatron's named ones)
// and "megatron.rank" (where the rank stands). As Megatron does, data-parallel rank 0 speaks for the others.
// Errors: none; a rank whose states are of another form has none.
// Threads: pure.
#pragma once

#include <vector>

#include "replica/formats/catalog.h"

namespace kintsugi::formats::megatron {

inline constexpr std::string_view kRankObject = "megatron.rank";
inline constexpr std::string_view kRngState = "rng_state";

// Cells as megatron-core writes them: a list of one, which is a list of one dictionary.
std::vector<CatalogObject> RngStatesOfRun(const std::vector<CatalogObject>& objects);

}  // namespace kintsugi::formats::megatron
