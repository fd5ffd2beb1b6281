// Roster: the ranks of the world as the controller knows them, and how many of them live, are lost, wait or have yet to
// resume. Each answer asks whether it was the last one, at worlds of a hundred thousand ranks: so they are counted, not
// looked up.
//
// Threads: none.
// Errors: a rank outside the world, and a count that is not what a recount finds, are failed CHECKs.
// Invariants: what is counted changes here alone (`Kept`); a count is always that of its members.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/core/held_state.h"
#include "runtime/core/messages.h"
#include "runtime/core/step_choice.h"

namespace kintsugi::core {

// How a rank is seen, for `kintsugi status`.
enum class Life : uint8_t { kAbsent, kStarting, kReady, kDead };

// Read as what it holds; changed by the Roster, which counts it.
template <typename T, T kAtFirst>
class Kept {
 public:
  operator T() const { return value_; }  // NOLINT: it is one to everybody else

 private:
  friend class Roster;
  T value_ = kAtFirst;
};

struct Member {
  Incarnation incarnation;
  Kept<Life, Life::kAbsent> life;
  Kept<bool, false> connected;
  Kept<bool, false> waiting;  // in the current phase's wait set
  Kept<bool, true> resumed;   // it is in its loop since the run last went on, as far as it was asked
  Step begun;                 // step being computed
  TimePoint closed_at;  // where not connected
  bool watched_by_launcher = false;
  uint64_t pid = 0;
  std::string host;
  int respawns = 0;
  std::string start_failure;  // why its newest replacement did not come; empty: none failed since it was last ready
  bool fresh = false;         // a process that has not held the run's state yet
  bool from_spare = false;    // a process that was started before it was needed
  // The newest life that was given up and may still live, as far as anybody here can tell.
  std::optional<Incarnation> unconfirmed;
  // Another node has it now: a life on the one before may go on there, unheard, until the rank is in the run again.
  bool left_behind = false;
  // Its launcher was started anew and has not been in the run since (newcomer.h).
  bool forgotten = false;
  TimePoint given_up_at;               // with `unconfirmed`: since when one or the other may live
  Standing standing = Standing::kNew;  // to a controller that takes over
  Generation joined_generation;        // to one that takes over, too
  bool held_back = false;              // it knows no generation: unanswered until the others have spoken
  bool found = false;                  // its launcher has told one that takes over of it, and of what it holds before
  bool registered = false;             // `registry` and `layouts` are its own, or its lost process's
  std::optional<HeldState> held;       // of the process before this one, by its launcher
  Incarnation doubted;                 // the newest life whose memory is not to be adopted
  bool adopted = false;                // this process was told to map it, and may have
  int rescues = 0;                     // processes that were started only to save what is held
  bool state_held = false;     // its launcher keeps its state whole should the process end
  bool objects_ahead = false;  // its partners do not have its newest mirrored objects
  bool needs_repair = false;
  std::vector<std::string> damaged_keys;  // with needs_repair: only these
  int digest_mismatches = 0;
  bool save_failed = false;   // it could not write or publish a checkpoint: others are asked first
  int handler_failures = 0;   // weighed, in this incident
  TimePoint wait_began;
  std::optional<ControllerMessage> order;  // with `waiting`: told again when the connection was lost meanwhile
  LockReport report;
  bool parked = false;
  std::optional<Step> finished;
  bool finished_changed = false;  // ... with other tensors than those of that step
  std::optional<Step> save_point;
  std::optional<Step> left_save_point;  // the newest one it was told to leave
  RegistrySummary registry;
  std::map<int, GroupClaim> layouts;
  std::vector<std::string> injections;

  bool lost() const { return life == Life::kReady && !connected; }
  // The step whose work it did last: one that parks between two steps has begun the later one, and done nothing of it.
  Step works_at() const { return save_point.value_or(begun); }
};

class Roster {
 public:
  explicit Roster(int world_size) : members_(static_cast<size_t>(world_size)) {}

  bool Has(Rank rank) const { return rank.value() >= 0 && static_cast<size_t>(rank.value()) < members_.size(); }
  Member& At(Rank rank) { return members_[IndexOf(rank)]; }
  const Member& At(Rank rank) const { return members_[IndexOf(rank)]; }
  const std::vector<Member>& all() const { return members_; }

  size_t size() const { return members_.size(); }
  Member& operator[](size_t r) { return members_[r]; }
  const Member& operator[](size_t r) const { return members_[r]; }
  auto begin() { return members_.begin(); }
  auto end() { return members_.end(); }
  auto begin() const { return members_.begin(); }
  auto end() const { return members_.end(); }
  Step newest_begun() const;
  // Ascending.
  std::vector<Rank> Where(bool (*which)(const Member&)) const;

  void SetLife(Member& member, Life life);
  // `now`: a rank that lives and had no connection is back.
  void SetConnected(Member& member, TimePoint now);
  void SetClosed(Member& member);
  void SetWaiting(Member& member, bool waiting);
  void SetResumed(Member& member, bool resumed) {
    if (member.resumed != resumed) Recounted(member, [&] { member.resumed.value_ = resumed; });
  }

  int waiting() const { return waiting_; }
  int ready() const { return ready_; }
  bool all_ready() const { return static_cast<size_t>(ready_) == members_.size(); }
  int lost() const { return lost_; }  // live, without a connection
  int unresumed() const { return unresumed_; }
  // When one that was lost came back last.
  TimePoint returned_at() const { return returned_at_; }

  // Nobody is waited for any more. All members are looked at for that, so they are counted anew on the way.
  void StopWaiting();
  void Recount() const;
  // ... and what always holds of each member between two events.
  void Check() const;

 private:
  size_t IndexOf(Rank rank) const {
    KINTSUGI_CHECK(Has(rank), "rank " + rank.ToString() + " is outside the world");
    return static_cast<size_t>(rank.value());
  }
  // A change of a member between taking it out of the counts and putting it back.
  template <typename Change>
  void Recounted(Member& member, Change change) {
    Count(member, -1);
    change();
    Count(member, 1);
  }
  void Count(const Member& member, int times) {
    waiting_ += times * static_cast<int>(member.waiting);
    ready_ += times * static_cast<int>(member.life == Life::kReady);
    lost_ += times * static_cast<int>(member.lost());
    unresumed_ += times * static_cast<int>(!member.resumed);
  }
  void CheckCounts(const Roster& counted) const;

  std::vector<Member> members_;
  int waiting_ = 0, ready_ = 0, lost_ = 0, unresumed_ = 0;
  TimePoint returned_at_;
};

}  // namespace kintsugi::core
