// Roster: the seats of the world as the controller knows them, who of them takes part, and how many of those live, are
// lost, wait or have yet to resume. Each answer asks whether it was the last one, at worlds of a hundred thousand ranks:
// so they are counted, not looked up.
//
// Who takes part is the crew: of this attempt, or of the run. An attempt that changes it keeps the one before until the
// run goes on (Keep), and comes back to it where it fails (Revert).
//
// Threads: none.
// Errors: a rank outside the world, and a count that is not what a recount finds, are failed CHECKs.
// Invariants: what is counted changes here alone (`Kept`); a count is always that of the crew's members; who takes no
// part is not waited for.
#pragma once

#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/core/crew.h"
#include "runtime/core/messages.h"
#include "runtime/core/step_choice.h"
#include "runtime/core/trust.h"

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
  Kept<bool, true> takes_part;  // in the crew
  Kept<Life, Life::kAbsent> life;
  Kept<bool, false> connected;
  Kept<bool, false> waiting;  // in the current phase's wait set
  Kept<bool, true> resumed;   // it is in its loop since the run last went on, as far as it was asked
  Step begun;                 // step being computed
  TimePoint closed_at;        // where not connected
  bool watched_by_launcher = false;
  uint64_t pid = 0;
  std::string host;
  int respawns = 0;
  std::string start_failure;  // why its newest replacement did not come; empty: none failed since it was last ready
  Trust trust;                // in its state
  bool from_spare = false;    // a process that was started before it was needed
  // The newest life that was given up and may still live, as far as anybody here can tell.
  std::optional<Incarnation> unconfirmed;
  // Another node has it now: a life on the one before may go on there, unheard, until the rank is in the run again.
  bool left_behind = false;
  // Its node stays away, and the run need not wait for it.
  bool absent = false;
  // Its launcher was started anew and has not been in the run since (newcomer.h).
  bool forgotten = false;
  TimePoint given_up_at;               // with `unconfirmed`: since when one or the other may live
  Standing standing = Standing::kNew;  // to a controller that takes over
  Generation joined_generation;        // to one that takes over, too
  bool held_back = false;              // it knows no generation: unanswered until the others have spoken
  bool found = false;                  // its launcher has told one that takes over of it, and of what it holds before
  bool registered = false;             // `registry` and `layouts` are its own, or its lost process's
  int rescues = 0;                     // processes that were started only to save what is held
  bool state_held = false;             // its launcher keeps its state whole should the process end
  bool objects_ahead = false;          // its partners do not have its newest mirrored objects
  bool save_failed = false;            // it could not write or publish a checkpoint: others are asked first
  int handler_failures = 0;            // weighed, in this incident
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
  std::optional<Registered> next;  // what it holds once its state is cut anew, in this attempt
  Offer offer;                     // with `registered`
  std::vector<std::string> injections;

  bool lost() const { return life == Life::kReady && !connected; }
  // The step whose work it did last: one that parks between two steps has begun the later one, and done nothing of it.
  Step works_at() const { return save_point.value_or(begun); }
};

class Roster {
 public:
  // All seats take part at first.
  explicit Roster(int seats) : crew_(seats), kept_(seats), members_(static_cast<size_t>(seats)) {}

  // Who takes part: whom begin and end lead through, whom Where finds, and of whom the counts are.
  const Crew& crew() const { return crew_; }
  // ... in the run as it last went on.
  const Crew& kept() const { return kept_; }
  // It is of the run, or of the attempt under way. Others are on their way, or have left.
  bool InRun(Rank rank) const { return crew_.Has(rank) || kept_.Has(rank); }
  // There was another crew than that of all seats.
  bool ever_changed() const { return ever_changed_; }
  // From now on, in this attempt. REQUIRES: nobody is waited for.
  void Change(Crew crew);
  void Keep() { kept_ = crew_; }
  void Revert() {
    if (crew_ != kept_) Change(kept_);
  }

  bool Has(Rank rank) const { return rank.value() >= 0 && static_cast<size_t>(rank.value()) < members_.size(); }
  Member& At(Rank rank) { return members_[IndexOf(rank)]; }
  const Member& At(Rank rank) const { return members_[IndexOf(rank)]; }

  // Every seat, whether it takes part or not, by rank.
  const std::vector<Member>& all() const { return members_; }
  size_t seats() const { return members_.size(); }
  Member& operator[](size_t seat) { return members_[seat]; }
  const Member& operator[](size_t seat) const { return members_[seat]; }

  // The crew's, ascending.
  const std::vector<Rank>& ranks() const { return crew_.ranks(); }
  auto begin() { return Walk<Member>(&ranks(), 0, &members_); }
  auto end() { return Walk<Member>(&ranks(), ranks().size(), &members_); }
  auto begin() const { return Walk<const Member>(&ranks(), 0, &members_); }
  auto end() const { return Walk<const Member>(&ranks(), ranks().size(), &members_); }
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

  int waiting() const { return counts_.waiting; }
  int ready() const { return counts_.ready; }
  bool all_ready() const { return static_cast<size_t>(counts_.ready) == crew_.size(); }
  int lost() const { return counts_.lost; }  // live, without a connection
  int unresumed() const { return counts_.unresumed; }
  // When one that was lost came back last.
  TimePoint returned_at() const { return returned_at_; }

  // Nobody is waited for any more. All members are looked at for that, so they are counted anew on the way.
  void StopWaiting();
  void Recount() const;
  // ... and what always holds of each member between two events.
  void Check() const;

 private:
  // From member to member of the crew.
  template <typename M>
  class Walk {
    using Members = std::conditional_t<std::is_const_v<M>, const std::vector<Member>, std::vector<Member>>;

   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Member;
    using difference_type = std::ptrdiff_t;
    using pointer = M*;
    using reference = M&;
    Walk() = default;
    Walk(const std::vector<Rank>* ranks, size_t at, Members* members) : ranks_(ranks), at_(at), members_(members) {}
    M& operator*() const { return (*members_)[static_cast<size_t>((*ranks_)[at_].value())]; }
    M* operator->() const { return &**this; }
    Walk& operator++() {
      ++at_;
      return *this;
    }
    Walk operator++(int) {
      Walk before = *this;
      ++at_;
      return before;
    }
    bool operator==(const Walk& other) const { return at_ == other.at_; }

   private:
    const std::vector<Rank>* ranks_ = nullptr;
    size_t at_ = 0;
    Members* members_ = nullptr;
  };

  size_t IndexOf(Rank rank) const {
    KINTSUGI_CHECK(Has(rank), "rank " + rank.ToString() + " is outside the world");
    return static_cast<size_t>(rank.value());
  }
  // A change of a member between taking it out of the counts and putting it back.
  template <typename Change>
  void Recounted(Member& member, Change change) {
    counts_.Add(member, -1);
    change();
    counts_.Add(member, 1);
  }
  struct Counts {
    int waiting = 0, ready = 0, lost = 0, unresumed = 0;

    void Add(const Member& member, int times) {
      if (!member.takes_part) return;
      waiting += times * static_cast<int>(member.waiting);
      ready += times * static_cast<int>(member.life == Life::kReady);
      lost += times * static_cast<int>(member.lost());
      unresumed += times * static_cast<int>(!member.resumed);
    }
  };
  void CheckCounts(const Counts& counted) const;

  Crew crew_, kept_;
  bool ever_changed_ = false;
  std::vector<Member> members_;
  Counts counts_;
  TimePoint returned_at_;
};

}  // namespace kintsugi::core
