// Hold: keeps chosen ranks back at one point of a step until their groups are aborted, as if that rank's thread had been
// slow. This forces the uneven cases of a fault that a test would otherwise have to wait for: some ranks inside the
// update, some past it, others still at its gate.
//
// Grammar: POINT:RANK[,RANK...]@STEP, for example gate:0,1@5. POINT is
//   gradient-sync  the gradients are reduced; the rank is held before it enters the gate
//   gate           the gate's barrier is complete; the rank is held before it passes
//   update         held between the first and the last tensor; it then goes on, there being only arithmetic left
// Errors: ParseHold says kInvalidArgument with the grammar and an example.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi::byte_lm {

struct Hold {
  enum class Point : uint8_t { kGradientSync, kGate, kUpdate };
  Point point = Point::kGate;
  std::vector<Rank> ranks;
  Step step;
};

Result<Hold> ParseHold(const std::string& text);

// The holds of one rank; each keeps it back once, and none after the first abort: nobody would come to end it.
class Holds {
 public:
  Holds(Rank self, std::vector<Hold> holds);
  bool Take(Hold::Point point, Step step);
  void Clear() { mine_.clear(); }

 private:
  std::vector<Hold> mine_;
};

}  // namespace kintsugi::byte_lm
