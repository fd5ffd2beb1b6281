// LauncherTable: the launcher of each node, as data, and when it does what it is told to: not while it sleeps, and
// never once its process has ended.
//
// Threads: none.
// Ownership: of launchers; one that is started anew stands where the one before stood.
// Invariants: what was to be done by a launcher's earlier life is void.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/core/election.h"
#include "runtime/core/fresh_lives.h"
#include "runtime/core/newcomer.h"
#include "runtime/core/placement.h"
#include "runtime/sim/world.h"

namespace kintsugi::sim {

struct Launcher;

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
  bool connected = false;  // welcomed
  bool dials = false;
  TimePoint welcomed_at, heard_at, announced_at, told_pages, pulsed_at;
  bool began = false;  // of the newest pulse
  std::vector<core::Checkpoint> checkpoints;
  core::Placement placement;  // the newest that it knows of
  std::optional<int> block;   // whose ranks are started here
  Generation running;         // of the newest pulse
  std::vector<Rank> crew;     // ... who took part in it
  int ranks_wanted = 0;
  core::Newcomer newcomer;
  core::FreshLives fresh;
  Seat* seat = nullptr;                 // the controller here
  std::optional<TimePoint> stop_asked;  // kept for whoever leads next
  bool ended = false;
  uint64_t life = 0;  // of how many of this node's

  bool leading() const { return seat && seat->alive; }
};

// As the log says it.
std::string NodeName(int node);

class LauncherTable {
 public:
  explicit LauncherTable(World& world) : world_(world) {}

  Launcher& Add() { return all_.emplace_back(); }
  std::deque<Launcher>& all() { return all_; }
  Launcher& Of(int node) { return all_[static_cast<size_t>(node)]; }
  Launcher& HostOf(const Process* p) { return Of(p->node); }
  // All have left, or ended.
  bool Over() const;

  void At(Launcher& l, Duration delay, Task what);
  // By the controller of that seat, which is looked at meanwhile; one whose launcher sleeps does it when that wakes up.
  template <typename What>
  void AtSeat(Seat& seat, What what) {
    if (!seat.alive) return;
    Launcher& host = Of(seat.node);
    if (!host.alive) return;
    if (host.frozen) return host.deferred.push_back(Task([this, &seat, what] { AtSeat(seat, what); }));
    world_.seats.Step(seat, what);
  }

 private:
  World& world_;
  std::deque<Launcher> all_;  // by node
};

}  // namespace kintsugi::sim
