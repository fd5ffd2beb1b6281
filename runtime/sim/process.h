// Process: one virtual process of a rank: its life, its agent's core, its trainer's thread and its memory, as data.
//
// Threads: none.
// Ownership: ProcessTable's; a process that has ended stays there, a part that refers to it holds a plain pointer.
// Invariants: what a const Process leads to is const, but for its connection, whose type is the network's.
#pragma once

#include <array>
#include <compare>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "callbacks/state/receive_ledger.h"
#include "callbacks/state/snapshot_slots.h"
#include "runtime/core/agent_core.h"
#include "runtime/core/crew.h"
#include "runtime/core/held_state.h"
#include "runtime/core/refused_step.h"
#include "runtime/sim/plan.h"
#include "runtime/sim/scheduler.h"
#include "runtime/sim/state.h"

namespace kintsugi::sim {

struct Connection;

struct HeldSnapshot {
  uint64_t step = 0;
  RankState state;
  std::map<Rank, Object> objects;  // of the owner's replica groups
};

struct HeldSnapshots {
  SnapshotSlots slots;
  uint64_t attempt = 0;  // what was begun in an older one is void
  std::array<HeldSnapshot, SnapshotSlots::kSlots> in_slot;
};

// One meeting of all ranks of a generation's group.
struct MeetingKey {
  Generation generation;
  uint64_t step = 0;
  uint8_t kind = 0;
  auto operator<=>(const MeetingKey&) const = default;
};

// What outlives its process where a launcher holds it.
struct Memory {
  RankState state;
  ObjectHistory objects;                   // own mirrored object
  std::map<Rank, ObjectHistory> mirrored;  // partners'
  bool rotten = false;                     // a bit of its state flipped between steps
  bool tainted = false;                    // what it holds was computed with that
  uint64_t silent_bit = 0;                 // the one that flipped in an untouched copy
};

// What faults have laid on it.
struct Troubles {
  bool doomed = false;  // it dies as soon as it has joined
  int slow = 1;         // its steps take so many times as long
  bool throw_next = false, throw_in_update = false;
  bool hung = false, hung_for_good = false;
  int failing_handlers = 0;
  int nonsense_handlers = 0;
  int hanging_handlers = 0;  // the last of four does not even hear its cancel
  bool hangs = false, deaf = false;
};

// What it is to hold once its state is cut anew. Mirrors runtime/agent/next_state.
struct NextState {
  Generation generation;
  const Cut* cut = nullptr;
  RankState state;
  bool whole = false;    // its pieces have come
  bool spoiled = false;  // ... from damaged memory
  bool used = false;     // it is in the place of what was registered, which is here
};

struct Process {
  Rank rank;
  Incarnation incarnation;
  int node = 0;
  uint64_t pid = 0;
  bool alive = true, frozen = false;
  std::vector<Task> deferred;            // what became due while it was frozen
  Connection* connection = nullptr;      // its own end
  std::optional<TimePoint> alone_since;  // without a connection
  std::optional<AgentCore> core;
  Generation newest_heard;
  Term newest_term;
  bool reaped = false;  // its launcher has seen its end
  uint64_t beats = 0;
  // Trainer.
  TrainerAt at = TrainerAt::kBoot;
  uint64_t activity = 0;  // a timer of an older activity is void
  uint64_t word = 0;
  uint64_t begun = 0;  // the step being computed
  uint64_t pause = 0;
  uint64_t released_at = 0;
  bool resumed_told = true;
  std::optional<ReleaseTrainer> release;
  std::optional<StopOrder> verdict;
  uint64_t gradient = 0;
  size_t piece = 0;  // of the update
  core::RefusedStep refused;
  Troubles troubles;
  // Memory.
  Memory memory;
  const Cut* cut = nullptr;  // that its state is registered in
  std::optional<NextState> next;
  bool damaged = false;  // by a memory fault, until repaired
  bool flipped = false;  // by a bit that nobody saw, until VERIFY has
  bool spoiled = false;  // by what it received from damaged memory, until VERIFY has
  core::StateMark mark = core::StateMark::kNotYet;
  bool adopted = false;
  // What a repair has brought so far: outlives the generation, not the step.
  std::map<int, ReceiveLedger> received;  // chunks, by layout
  bool received_from_snapshot = false;
  // Handler and collectives.
  std::optional<RunOnTrainer> order;  // not yet taken by the trainer's thread
  std::optional<RunOnTrainer> running;
  Generation group;                        // its communicator
  std::shared_ptr<const core::Crew> crew;  // who is in it; null: all, as far as it was told
  // Seats that take no part any more and whose part of every batch it does, each with the object that its draws follow.
  std::map<Rank, Object> takes_over;
  std::optional<MeetingKey> blocked_in;  // collective
  std::optional<MeetingKey> entered;     // the newest of a step, and when
  TimePoint entered_at;
  std::map<uint64_t, Rank> gets;  // outstanding reads of the store
  // In-memory snapshots.
  std::map<Rank, HeldSnapshots> snapshots;    // by owner
  std::optional<core::ArmSnapshot> snapshot;  // ordered, its boundary still to come
  uint64_t snapshot_epoch = 0;                // what was begun in an older one is void

  // What is compared, and goes on: what is to come where there is that.
  RankState& Working() { return next && !next->used ? next->state : memory.state; }
  const Cut& WorkingCut() const { return next && !next->used ? *next->cut : *cut; }
  // What its launcher would have of it.
  const RankState& Offered() const { return next && next->used ? next->state : memory.state; }
  const Cut* OfferedCut() const { return next && next->used ? next->cut : cut; }
  const std::vector<Rank>& Holders(int layout) const { return cut->replicas.Holders(layout, rank); }
  const std::vector<Rank>& Partners() const { return cut->partners[static_cast<size_t>(rank.value())]; }
  bool InCrew(Rank of) const { return !crew || crew->Has(of); }
  GateWord Word() const { return GateWord::Unpack(word); }
  // The lock bit stays as it is.
  void SetWord(GateState to, uint64_t step) { word = GateWord::Pack(to, step) | (word & GateWord::kLockBit); }
  // What it holds at that step of its own object or of a partner's; null: nothing.
  const Object* ObjectOf(Rank of, uint64_t step) const;
  // As its page tells it.
  TrainPhase PagePhase() const;
  Progress Place() const;
};

// All processes that ever were, the newest of each rank, and the newest of each rank on each node.
class ProcessTable {
 public:
  explicit ProcessTable(size_t ranks) : newest_(ranks, nullptr) {}

  // It is the newest of its rank from now on, there and anywhere.
  Process& Add(Rank rank, Incarnation incarnation, int node);

  std::deque<Process>& all() { return all_; }
  const std::deque<Process>& all() const { return all_; }
  // By rank; null: none was started yet.
  const std::vector<Process*>& newest() { return newest_; }
  std::span<const Process* const> newest() const { return {newest_.data(), newest_.size()}; }
  Process* Newest(Rank rank) { return newest_[static_cast<size_t>(rank.value())]; }
  const Process* Newest(Rank rank) const { return newest_[static_cast<size_t>(rank.value())]; }
  // The newest of its rank, where it lives and is not frozen.
  Process* Living(Rank rank);
  Process* NewestOn(int node, Rank rank);
  const Process* NewestOn(int node, Rank rank) const;
  // The newest of each rank there, in the order of their ranks.
  std::vector<Process*> On(int node);

 private:
  std::deque<Process> all_;
  std::vector<Process*> newest_;
  std::map<std::pair<int, int>, Process*> on_;  // by node and rank
};

}  // namespace kintsugi::sim
