// Hold: keeps chosen ranks back once a collective has completed, until their groups are aborted, as if that rank's thread
// had been slow to return from it. With a fault injected elsewhere this forces the uneven cases of a step that a test
// would otherwise have to wait for: some ranks inside the update, others still at its gate.
//
// Grammar: POINT:RANK[,RANK...]@STEP with POINT gate or gradient-sync, for example gate:0,1@5.
// Errors: ParseHold says kInvalidArgument with the grammar and an example.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi::byte_lm {

struct Hold {
  enum class Point : uint8_t { kGradientSync, kGate };
  Point point = Point::kGate;
  std::vector<Rank> ranks;
  Step step;
};

Result<Hold> ParseHold(const std::string& text);

// The holds of one rank; each keeps it back once.
class Holds {
 public:
  Holds(Rank self, std::vector<Hold> holds);
  // Whether the rank is to be kept back here; not again when the step is done once more.
  bool Take(Hold::Point point, Step step);

 private:
  std::vector<Hold> mine_;
};

}  // namespace kintsugi::byte_lm
