// What a rank's mirrored objects become in a run of other ranks than those that saved them, by what each object says.
//
// Errors: kFailedPrecondition names the object, and what it must say or which rank saved nothing.
// Threads: pure, but for the objects' own functions. Source of the four ways: descriptors.h, TakeOver.
#pragma once

#include <functional>

#include "callbacks/state/registry.h"

namespace kintsugi::resume {

// The mirrored bytes that `rank` saved, by key; kNotFound where it saved none.
using SavedBy = std::function<Result<std::map<std::string, std::vector<uint8_t>>>(Rank rank)>;

// That every registered object says how it is taken over.
KINTSUGI_EXPORT Status CheckTakeOver(const StateRegistry& registry);

// For StateRegistry::RestoreMirrored on `self`; empty where it has no mirrored objects. `ranks`: those that saved,
// ascending. `saved_by` is asked for no rank that no object needs.
KINTSUGI_EXPORT Result<std::vector<uint8_t>> TakeOverObjects(const StateRegistry& registry, Rank self,
                                                             const std::vector<Rank>& ranks, const SavedBy& saved_by);

}  // namespace kintsugi::resume
