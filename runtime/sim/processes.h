// Processes: how they start, die, vanish and freeze, and who hears of it: sockets close, groups break, repairs lose a
// member, a parent is told.
//
// Threads: none.
// Ownership: processes are the world's; of what befalls replacements.
// Invariants: a process ends once. Whether one may be started, and when, is its parent's to know.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/sim/collectives.h"
#include "runtime/sim/network.h"
#include "runtime/sim/rot.h"
#include "runtime/sim/spares.h"
#include "runtime/sim/transfers.h"
#include "runtime/sim/upward.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

// How long processes may take to leave once the run has ended (runtime/launcher).
inline constexpr Duration kLeaveLimit = std::chrono::seconds(10);
// Of a process that was told to leave, and did.
inline constexpr const char* kLeftContent = "ended with 0";

// What starts processes: a launcher, or a supervisor.
class Parent {
 public:
  // Its start-up is over.
  virtual void OnBooted(Process* p) = 0;
  // The kernel tells it.
  virtual void OnExited(Process* p, const std::string& cause) = 0;

 protected:
  ~Parent() = default;
};

class Processes final : public ProcessEnd {
 public:
  Processes(World& world, Rot& rot, Network& network, Collectives& collectives, Transfers& transfers, Spares& spares,
            Parent& parent)
      : world_(world),
        rot_(rot),
        network_(network),
        collectives_(collectives),
        transfers_(transfers),
        spares_(spares),
        parent_(parent) {}

  void Start(Rank rank, Incarnation incarnation, int node);
  // The end as the kernel tells it.
  void Die(Process* p, const std::string& cause) override;
  // The end that nobody tells: a host is gone.
  void Vanish(Process* p);
  // It ends with its launcher, whose connection told of both.
  void EndWithLauncher(Process* p);
  // Without a length: for good.
  void Freeze(Process* p, std::optional<Duration> length);

  // What befalls the next replacements of a rank.
  struct Fates {
    int bad = 0, slow = 0, fast = 0;
  };
  Fates& FatesOf(int rank) { return fates_[rank]; }

 private:
  void BreakGroupOf(Process* p);

  World& world_;
  Rot& rot_;
  Network& network_;
  Collectives& collectives_;
  Transfers& transfers_;
  Spares& spares_;
  Parent& parent_;
  std::map<int, Fates> fates_;  // by rank
};

}  // namespace kintsugi::sim
