// What an optimizer keeps of some parameters and not of others, by the names of a checkpoint's tensors.
//
// What: a tensor is a state where its name says so (callbacks/state/state_word.h). A parameter lacks a state where it has some of those
// that another parameter has, and none that the other has not: so a group with another kind of optimizer lacks nothing,
// and neither does what has no states at all (frozen parameters, buffers).
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/export.h"

namespace kintsugi::checkpoint {

// A sentence for each such parameter, at most ten and one that counts the others.
KINTSUGI_EXPORT std::vector<std::string> MissingStates(const std::vector<std::string>& keys);

}  // namespace kintsugi::checkpoint
