// A picture of a plan: for one tensor of two axes, who holds what, and who sends what to whom.
//
// What: on the left the stored tensors it is made of, each piece in the colour of the rank that holds it; on the right
// the tensor as each rank receives it, each move in the colour of its sender. One SVG that stands by itself, readable
// in light and dark.
// Units: pixels.
// Errors: kInvalidArgument where there is no such tensor, or none of two axes.
// Threads: pure.
#pragma once

#include <string>

#include "tools/reshard/reshard_answer.h"

namespace kintsugi::reshard {

// `key`: of the target; empty: the first one of two axes that something is sent of.
Result<std::string> DrawMoves(const ReshardAnswer& answer, const std::string& key);

}  // namespace kintsugi::reshard
