// Reverse: the operations that undo a program: last first, sides swapped, each replaced by its inverse.
//
// A value that several statements read (a fan-out) comes back from each of them. Only one can be right: the others must
// be removed by the reversed program, which the program as written says by adding them (`_ -> extra` before `a ->
// extra`).
//
// Errors: kInvalidArgument: a plain `dtype=` (the type to go back to is unknown), a fan-out that is not settled.
#pragma once

#include <vector>

#include "replica/aoa/operation.h"

namespace kintsugi::aoa {

Result<std::vector<Operation>> Reverse(std::vector<Operation> operations, Reporter& reporter);

}  // namespace kintsugi::aoa
