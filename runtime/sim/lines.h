// Lines: connections between launchers and the controllers that they follow. A line keeps its order, and a cut between
// nodes holds what arrives at it.
//
// Threads: none.
// Ownership: of lines; their two ends outlive it.
// Invariants: nothing arrives at a closed end: there it comes back as the line's end.
#pragma once

#include <deque>
#include <string>

#include "runtime/sim/launcher_table.h"
#include "runtime/sim/network.h"
#include "runtime/sim/world.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi::sim {

// An empty frame is the line's end.
class LauncherEnds {
 public:
  virtual void OnOrder(NodeLine* line, const std::string& bytes) = 0;

 protected:
  ~LauncherEnds() = default;
};
class SeatEnds {
 public:
  virtual void OnWord(NodeLine* line, const std::string& bytes) = 0;

 protected:
  ~SeatEnds() = default;
};

class Lines {
 public:
  Lines(World& world, Network& network, LauncherTable& launchers, LauncherEnds& here, SeatEnds& there)
      : world_(world), network_(network), launchers_(launchers), launcher_ends_(here), seat_ends_(there) {}

  std::deque<NodeLine>& all() { return all_; }
  // To the controller that the launcher obeys.
  NodeLine* Open(Launcher& l);
  void Put(NodeLine* line, bool up, std::string frame);
  // To the controller that it follows, where there is one.
  void Tell(Launcher& l, const wire::NodeMessage& message);
  // What cuts held arrives, or is held by another.
  void DeliverHeld();

 private:
  void Arrive(NodeLine* line, bool up, const std::string& frame);

  World& world_;
  Network& network_;
  LauncherTable& launchers_;
  LauncherEnds& launcher_ends_;
  SeatEnds& seat_ends_;
  std::deque<NodeLine> all_;
};

}  // namespace kintsugi::sim
