// Virtual launchers that elect one of them, and the controllers that they host (profile `elections`). Mirrors the
// launcher of one of several hosts (runtime/launcher/node_*.cc) around the real ElectionCore and Allegiance.
//
#pragma once

#include "runtime/core/allegiance.h"
#include "runtime/sim/cluster.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi::sim {

// A launcher's connection to a seat. A cut holds what arrives at it.
struct NodeLine {
  Launcher* launcher = nullptr;
  Seat* seat = nullptr;
  bool open_here = true;   // the launcher's end
  bool open_there = true;  // the seat's
  TimePoint last[2];       // arrival of the newest frame: down, up
  std::vector<std::string> held[2];
};

struct Launcher {
  int node = 0;
  bool alive = true, frozen = false;
  std::vector<Task> deferred;  // what became due while it was frozen
  std::unique_ptr<core::ElectionCore> election;
  Term term;                       // the newest it obeyed
  std::optional<Term> leads_term;  // as far as is known
  Seat* leads = nullptr;
  NodeLine* line = nullptr;
  bool linked = false;  // welcomed
  bool dials = false;
  TimePoint heard_at, announced_at, told_pages, pulsed_at;
  bool began = false;  // of the newest pulse
  std::vector<core::Checkpoint> checkpoints;
  core::Placement placement;  // the newest that it knows of
  std::optional<int> block;   // whose ranks are started here
  Generation running;         // of the newest pulse
  Seat* seat = nullptr;       // the controller here
  bool ended = false;
  uint64_t life = 0;  // of how many of this node's
};

// A seat whose launcher sleeps does it when that wakes up.
template <typename What>
void Cluster::AtSeat(Seat* seat, What what) {
  if (!seat->alive) return;
  Launcher& host = *launchers_[static_cast<size_t>(seat->node)];
  if (!host.alive) return;
  if (host.frozen) return host.deferred.push_back(Task([this, seat, what] { AtSeat(seat, what); }));
  Seat* const before = std::exchange(stepped_, seat);
  Seat& newest = world_.seats.Sit(*seat);
  what();
  world_.seats.Sit(newest);
  stepped_ = before;
}

}  // namespace kintsugi::sim
