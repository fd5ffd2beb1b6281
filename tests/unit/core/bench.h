// Bench: one ControllerCore with ranks that answer at once, so that a test can bring it to any phase, say one thing and
// look at what comes out.
//
// Time stands still unless a test moves it. A rank in `mute` gets its orders and does not answer; `hold` stops all
// answers to orders of one phase.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {

class Bench {
  std::unique_ptr<ControllerCore> owned_;  // a core stays where it was built; a bench may be handed on

 public:
  struct Standing {
    GateState state = GateState::kCommitted;
    kintsugi::Step step;
    bool valid = true;
  };

  static Policy QuickPolicy(int world_size);
  explicit Bench(Policy policy, Term term = {1, 1});

  void Start() { Absorb(core.Start(now)); }

  // From Start to RUNNING with every rank resumed.
  void Run();
  // Feeds an event, then lets the ranks answer until nobody has anything to say.
  void Feed(const ControllerEvent& event);
  void Say(int rank, AgentMessage message);
  // As if sent in an older generation.
  void SayLate(int rank, AgentMessage message, uint64_t generations_ago = 1);
  void Exit(int rank, const std::string& cause = "killed by SIGKILL");
  void Close(int rank);
  void Rejoin(int rank);
  void JoinAndReady(int rank);
  // Moves time on in steps of 10 ms with a tick each; ranks in `beating` beat.
  void Pass(Duration duration);
  // Sets every live rank's standing to committed(step).
  void CommitAll(uint64_t step);

  ControllerCore& core;
  TimePoint now = TimePoint(std::chrono::seconds(1000));
  std::vector<ControllerAction> seen;  // every action so far, in order
  std::vector<Standing> standing;
  std::map<int, std::map<int, uint64_t>> digests;  // rank -> layout -> digest; default 1
  std::set<int> mute;
  std::set<int> stuck;             // their trainers' threads answer nothing, their agents do; a new process is as any
  std::set<int> silent;            // no beats
  std::map<int, Progress> places;  // what beats tell; by default the step after `standing`
  std::optional<Phase> hold;
  std::map<int, RankMarks> marks;  // what a rank says of its groups where it is asked; it says nothing where it has none here
  bool replacements_come = true;
  std::map<int, std::map<int, GroupClaim>> claims;
  std::map<int, Offer> offers;                // what each rank's trainer offers
  std::map<int, RegistrySummary> registries;  // what each rank registers
  std::map<int, Registered> next;             // what each rank cuts its state to where it is asked for that
  // With what they answer in this phase, these ranks say that these tensors are no part of the state any more.
  struct Unregisters {
    std::optional<Phase> phase;
    std::set<int> ranks;
    std::vector<std::string> keys;
  };
  Unregisters unregisters;

  // How many actions of a kind were seen, and those for one rank.
  template <typename T>
  std::vector<T> All() const {
    std::vector<T> found;
    for (const ControllerAction& action : seen)
      if (const auto* a = std::get_if<T>(&action)) found.push_back(*a);
    return found;
  }
  template <typename T>
  std::vector<std::pair<Rank, T>> Sent() const {
    std::vector<std::pair<Rank, T>> found;
    for (const Send& send : All<Send>())
      if (const auto* m = std::get_if<T>(&send.message)) found.emplace_back(send.header.rank, *m);
    return found;
  }
  std::vector<PhaseOrder> Orders(Phase phase, int rank) const;
  std::optional<RunEnded> Ended() const;
  std::set<int> Killed() const;
  const ControllerCore::Member& member(int rank) const { return core.members()[static_cast<size_t>(rank)]; }

 private:
  Header HeaderOf(int rank) const;
  void Absorb(std::vector<ControllerAction> actions);
  void Pump();
  void Answer(const Send& send);
  bool Muted(int rank, Phase phase) const { return mute.count(rank) > 0 || hold == phase; }

  std::deque<ControllerAction> inbox_;
  bool pumping_ = false;
  std::vector<std::pair<Rank, uint64_t>> beats_;
  uint64_t beat_ = 0;
};

}  // namespace kintsugi::core
