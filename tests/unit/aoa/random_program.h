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

// What the states of a program are called: prefix, key, suffix.
struct StateSpelling {
  std::string prefix, suffix = ".moment1_0";
  std::string Of(const std::string& key) const { return prefix + key + suffix; }
};

struct RandomProgram {
  Program program;
  StateSpelling states;
  bool describes_states = false;
  std::map<std::string, PlainTensor> sources;
  std::map<std::string, PlainTensor> expected;  // what the outputs must be
  std::vector<std::string> added;               // outputs without source
  size_t named_states = 0;                      // outputs that are states
  bool has_destination = true;
};

// `names_states`: the states are described, in one of the spellings that are known, and some statements change a weight and, in a line of its own, its state.
// Forwards: names may be read often, reassigned, removed and left unused; casts change cells.
RandomProgram MakeForward(Random& random, bool names_states = false);
// A program that loses nothing, to be run backwards: `program` has reverse set, its source is what the program as
// written makes; `sources` and `expected` have changed places too. Casts leave cells alone.
RandomProgram MakeReversed(Random& random, bool names_states = false);

}  // namespace kintsugi::aoa
