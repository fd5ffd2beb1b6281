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
  bool has_destination = true;
};

// Forwards: names may be read often, reassigned, removed and left unused; casts change cells.
RandomProgram MakeForward(Random& random);
// A program that loses nothing, to be run backwards: `program` has reverse set, its source is what the program as
// written makes; `sources` and `expected` have changed places too. Casts leave cells alone.
RandomProgram MakeReversed(Random& random);

}  // namespace kintsugi::aoa
