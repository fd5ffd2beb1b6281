// Seat: one controller with all that its driver keeps of it. Where launchers elect, several may think that they lead;
// elsewhere there is one, whose core is exchanged when another controller takes over.
//
// Threads: none.
// Ownership: SeatTable's; a seat that has ended stays there, a part that refers to it holds a plain pointer.
// Invariants: one seat is looked at, at any time: `current`. What a const Seat leads to is const, but for connections
// and lines, whose types are the network's.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/controller_core.h"
#include "runtime/core/placement.h"
#include "runtime/core/store_table.h"
#include "runtime/sim/state.h"

namespace kintsugi::sim {

struct Connection;
struct NodeLine;

class Seat {
 public:
  // The controller's connection of each rank.
  explicit Seat(size_t ranks) : connections(ranks, nullptr) {}

  bool down = false;  // it was lost, and no other has taken over yet
  StoreTable store;
  Generation stored_generation;
  std::vector<Connection*> connections;  // by rank
  Connection* joining = nullptr;
  std::vector<std::pair<Connection*, std::string>> waiting_joins;  // while the core takes over
  std::vector<core::Checkpoint> checkpoints_told;                  // to launchers
  std::optional<RunEnded> ended;
  std::set<std::pair<Rank, Incarnation>> given_up;

  // Where launchers elected it.
  int node = 0;
  Term term;
  bool stop_heard = false;  // of a launcher
  bool part = false;        // elected by no majority: to save what is there
  bool alive = true;
  bool began = false;              // ranks have been in their loops, as far as it knows
  std::map<int, NodeLine*> lines;  // of welcomed launchers, by node
  std::map<int, TimePoint> lost_at;
  std::map<int, std::map<Rank, Incarnation>> to_spawn;  // on nodes that are away
  std::set<int> cut_off;                                // nodes that are here, and that others cannot reach
  int spares_told = 0;
  core::Placement placement;
  Generation running;      // the newest in which all ranks were in their loops
  std::vector<Rank> crew;  // who took part then; nobody named: all
  std::set<int> absent;    // nodes that the controller need not wait for
  std::vector<Rank> places_told;

  // REQUIRES: there is one.
  ControllerCore& core() { return *core_; }
  const ControllerCore& core() const { return *core_; }
  void Begin(const Policy& policy, Term with) { core_ = std::make_unique<ControllerCore>(policy, with); }
  // The core itself, which may still act elsewhere; Begin gives it a new one.
  std::unique_ptr<ControllerCore> TakeCore() { return std::move(core_); }

 private:
  std::unique_ptr<ControllerCore> core_;
};

class SeatTable {
 public:
  // With the first seat, which is looked at.
  explicit SeatTable(size_t ranks) : ranks_(ranks), current_(&all_.emplace_back(ranks)) {}

  Seat& Add() { return all_.emplace_back(ranks_); }
  std::deque<Seat>& all() { return all_; }
  const std::deque<Seat>& all() const { return all_; }
  // Whose controller is meant where none is named: the one that is stepped, or the newest.
  Seat& current() { return *current_; }
  const Seat& current() const { return *current_; }
  void Sit(Seat& seat) { current_ = &seat; }
  // Whose controller does something; null: nobody's, or there is one only.
  const Seat* stepped() const { return stepped_; }
  // It is looked at while it does that.
  template <typename What>
  void Step(Seat& seat, What what) {
    Seat* const stepped = std::exchange(stepped_, &seat);
    Seat* const current = std::exchange(current_, &seat);
    what();
    current_ = current;
    stepped_ = stepped;
  }

 private:
  const size_t ranks_;
  std::deque<Seat> all_;
  Seat* current_;
  Seat* stepped_ = nullptr;
};

}  // namespace kintsugi::sim
