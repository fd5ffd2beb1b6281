// Digest of actions: what came out of a ControllerCore, as one number that runs on from event to event.
//
// Over every field of every action, in their order; XXH3 with the number before as its seed. Equal on every machine of
// one byte order and build type.
// Threads: an object for each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/controller_types.h"

namespace kintsugi::journal {

class ActionDigest {
 public:
  // Takes in what one event gave; an event that gave nothing leaves the digest as it is.
  void Add(const std::vector<core::ControllerAction>& actions);
  uint64_t value() const { return value_; }

 private:
  std::string bytes_;  // kept for its capacity
  uint64_t value_ = 0;
};

}  // namespace kintsugi::journal
