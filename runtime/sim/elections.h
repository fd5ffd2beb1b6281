// Virtual launchers that elect one of them, and the controllers that they host (profile `elections`). Mirrors the
// launcher of one of several hosts (runtime/launcher/node_*.cc) around the real ElectionCore and Allegiance.
//
// A seat is one controller with all that its driver and the checkers keep of it. Several may think that they lead. The
// cluster's own members are those of one seat at a time: AtSeat exchanges them.
#pragma once

#include "runtime/core/allegiance.h"
#include "runtime/sim/cluster.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi::sim {

struct Cluster::Seat {
  int node = 0;
  Term term;
  bool part = false;  // elected by no majority: to save what is there
  bool alive = true;
  bool began = false;              // ranks have been in their loops, as far as it knows
  std::map<int, NodeLine*> lines;  // of welcomed launchers, by node
  std::map<int, TimePoint> lost_at;
  std::map<int, std::map<Rank, Incarnation>> to_spawn;  // on nodes that are away
  core::Placement placement;
  Generation running;  // the newest in which all ranks were in their loops

  // Exchanged with the cluster's.
  std::unique_ptr<ControllerCore> core;
  StoreTable store;
  Generation stored_generation;
  std::vector<LinkPtr> links;
  LinkPtr joining = nullptr;
  std::vector<std::pair<LinkPtr, std::string>> waiting_joins;
  std::vector<core::Checkpoint> checkpoints_told;
  std::optional<RunEnded> ended;
  Phase phase = Phase::kAdmit;
  Generation lock_generation;
  std::optional<Generation> before_confirm;
  std::map<Rank, int> spawns, rescues;
  std::set<std::pair<Rank, Incarnation>> given_up;
};

// A launcher's connection to a seat. A cut holds what arrives at it.
struct Cluster::NodeLine {
  Launcher* launcher = nullptr;
  Seat* seat = nullptr;
  bool open_here = true;   // the launcher's end
  bool open_there = true;  // the seat's
  TimePoint last[2];       // arrival of the newest frame: down, up
  std::vector<std::string> held[2];
};

struct Cluster::Launcher {
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
  uint64_t life = 0;                 // of how many of this node's
  std::map<uint64_t, int> promised;  // for the checker: to whom, by term
};

// A seat whose launcher sleeps does it when that wakes up.
template <typename What>
void Cluster::AtSeat(Seat* seat, What what) {
  if (!seat->alive) return;
  Launcher& host = *launchers_[static_cast<size_t>(seat->node)];
  if (!host.alive) return;
  if (host.frozen) return host.deferred.push_back(Task([this, seat, what] { AtSeat(seat, what); }));
  Seat* const before = std::exchange(stepped_, seat);
  Seat* const newest = seated_;
  Sit(seat);
  what();
  Sit(newest);
  stepped_ = before;
}

}  // namespace kintsugi::sim
