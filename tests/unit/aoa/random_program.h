// RandomProgram: an AOA program with its sources, and what must come out, computed on plain arrays while the program is
// being made up.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "replica/aoa/engine.h"
#include "runtime/base/random.h"
#include "tests/unit/aoa/plain_tensor.h"

namespace kintsugi::aoa {

struct RandomProgram {
  Program program;
  std::map<std::string, PlainTensor> sources;
  std::map<std::string, PlainTensor> expected;  // what the outputs must be
  std::vector<std::string> added;               // outputs without source
  size_t named_states = 0;                      // outputs that are states
  bool has_destination = true;
};

// `names_states`: the states are described, and some statements change a weight and, in a line of its own, its state.
// Forwards: names may be read often, reassigned, removed and left unused; casts change cells.
RandomProgram MakeForward(Random& random, bool names_states = false);
// A program that loses nothing, to be run backwards: `program` has reverse set, its source is what the program as
// written makes; `sources` and `expected` have changed places too. Casts leave cells alone.
RandomProgram MakeReversed(Random& random, bool names_states = false);

}  // namespace kintsugi::aoa
