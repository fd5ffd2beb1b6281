// WaitLimits: for how long ranks are known to wait in a collective, and from when on it is longer than that.
//
// What: calls that are alike (one group, kind, size and root) have waited about as long; five times the second longest of the newest sixteen, so
// that one long wait (the first step, a save) is not the measure of all. Within [least, most]; a call that nobody has seen yet has `first`.
// Threads: none; pure.
// Units: durations.
#pragma once

#include <array>
#include <map>
#include <string>
#include <tuple>

#include "runtime/base/clock.h"
#include "runtime/base/collective_call.h"

namespace kintsugi::watch {

struct WaitBounds {
  double factor = 5;
  Duration least = std::chrono::seconds(1);
  Duration most = std::chrono::seconds(30);
  Duration first = std::chrono::seconds(10);
};

class WaitLimits {
 public:
  explicit WaitLimits(const WaitBounds& limits) : limits_(limits) {}

  // A wait that has ended, in such a call of that group.
  void Learn(const std::string& group, const CollectiveCall& call, Duration waited);
  Duration LimitOf(const std::string& group, const CollectiveCall& call) const;

 private:
  static constexpr size_t kNewest = 16;
  using Alike = std::tuple<std::string, CollectiveKind, uint64_t, int32_t>;
  struct Waits {
    std::array<Duration, kNewest> newest{};
    size_t count = 0;
  };
  static Alike AlikeOf(const std::string& group, const CollectiveCall& call) {
    return {group, call.kind, call.size, call.root};
  }

  const WaitBounds limits_;
  std::map<Alike, Waits> waits_;
};

}  // namespace kintsugi::watch
