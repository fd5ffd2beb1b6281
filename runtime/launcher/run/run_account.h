// RunAccount: what is known of a run so far: how it stands, each rank's newest process as its page shows it, and all
// that its result holds. The leader writes it, for processes of one host or of several.
//
// Threads: none; pure: instants come in as arguments.
// Ownership: values.
// Errors: a rank outside the world is a failed CHECK.
// Invariants: a run ends once; a life has one end; of single steps' timings, of checkpoints and of the worlds that the run
// went through the newest are kept.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/crew.h"
#include "runtime/launcher/run/fired_injections.h"
#include "runtime/launcher/run/run_history.h"
#include "runtime/launcher/run/run_result.h"
#include "runtime/launcher/run/run_status.h"
#include "runtime/launcher/run/run_times.h"
#include "runtime/launcher/run/step_times.h"
#include "runtime/launcher/workers/worker_events.h"
#include "runtime/wire/node_messages.h"

namespace kintsugi {

class RunAccount {
 public:
  // `running`: with a run that is taken over, the newest generation in which all ranks were in their loops.
  // `before`, `kept`: with one, too, what its leaders had counted, and what it was under them.
  RunAccount(const core::Policy& policy, Generation running, TimePoint now, const wire::RunSoFar& before = {},
             const KeptHistory& kept = {});

  // The ranks whose newest process has not ended, as far as is known.
  std::vector<Rank> Running() const;

  // How it stands. Started: the controller has begun. Ended: nothing goes to the controller any more.
  bool started() const { return started_; }
  bool ended() const { return ended_; }
  // It has ended well, and its processes have not all left: how they leave is part of its result.
  bool awaits_ends() const { return awaits_ends_; }
  std::optional<TimePoint> stop_asked() const { return stop_asked_; }
  const RunResult& result() const { return result_; }
  // For a leader to come: whether ranks were in their loops, the newest generation in which all were, what is saved.
  bool began() const { return began_; }
  Generation running() const { return running_; }
  const std::vector<core::Checkpoint>& checkpoints() const { return checkpoints_; }

  void Start();
  void AskStop(TimePoint now);
  void End(const core::RunEnded& ended);
  // Nobody is waited for any more. `must_strike`: a run does not end well where an ordered fault has not struck.
  void Conclude(bool must_strike);

  // Told by workers.
  void OnStarting(Rank rank, Incarnation incarnation, TimePoint now);
  void OnPage(Rank rank, const PageView& page);
  void OnFired(const FiredInjection& fired);
  // While ends are awaited, the first that is not with code 0 is the run's.
  void OnExited(Rank rank, const WorkerEnd& end);
  // The run had ended well, and what came after did not: the first reason stays.
  void Spoil(const std::string& why, int exit_code = core::kExitFailed);
  // The faults that were ordered and have not struck, as far as is known.
  std::vector<std::string> NotStruck() const;

  // Told by the controller. `goes_on_after`: where the ranks resume. The incident is given back as kept, with what
  // was injected.
  void OnTransition(const core::Transition& transition, Step goes_on_after, TimePoint now);
  const IncidentResult& OnIncident(const core::IncidentRecord& record, TimePoint now);
  void OnCheckpoint(const core::Checkpoint& checkpoint, TimePoint now);
  // The line at warning level; empty: there is nothing to say.
  std::string OnSave(const core::SaveSettled& settled, TimePoint now);
  void OnInexact(Rank rank, const std::string& text);
  void OnHang(const core::Blame& blame, TimePoint now);
  // As is seen every few milliseconds.
  void OnStandstill(bool at_save_point, bool paused, TimePoint now);

  // Whether that is news.
  bool OnPauseAsked(bool asked) { return std::exchange(pause_asked_, asked) != asked; }
  // The same.
  bool OnRanksWanted(int ranks) { return std::exchange(ranks_wanted_, ranks) != ranks; }
  // Who takes part from the step after this one on, by the incident of this number; 0: by none. The processes of others
  // are nobody's business, whether or not their ends are heard of.
  void OnCrew(const core::Crew& crew, uint64_t incident, Step step, TimePoint now);
  // Changes with the incidents that are over, and with what is known of them.
  uint64_t incident_news() const { return incident_news_; }
  // The same of processes' begins and ends; and how many steps of ranks were ever added to the result's.
  uint64_t life_news() const { return life_news_; }
  uint64_t steps_timed() const { return steps_timed_; }
  // How often the world has changed.
  uint64_t worlds_seen() const { return worlds_seen_; }
  // What a leader to come goes on from.
  wire::RunSoFar ForNext(TimePoint now) const;

  // What this knows of a status, and of the result at `now`.
  void LookAt(RunStatus* status) const;
  void Fill(RunResult* result, TimePoint now) const;
  RunResult SoFar() const;
  // The whole of it, but for what others know. Nothing else is asked of it afterwards.
  RunResult Take(TimePoint now);

 private:
  struct RankView {
    std::optional<PageView> page;
    uint64_t step = 0;  // newest step begun, and when
    TimePoint step_began;
    std::optional<size_t> life;           // index into result_.lives
    bool left = false;                    // it takes no part
    std::vector<std::string> not_struck;  // when its newest process ended
  };
  RankView& View(Rank rank);
  void MarkStep(Rank rank, const PageView& page);
  // Of a process that began under a leader before: which of the result's lives it is.
  std::optional<size_t> KnownLife(Rank rank, Incarnation incarnation) const;

  bool started_ = false;
  bool ended_ = false;
  bool awaits_ends_ = false;
  std::optional<TimePoint> stop_asked_;
  uint64_t incident_news_ = 0, life_news_ = 0, steps_timed_ = 0, worlds_seen_ = 0;
  size_t lives_before_ = 0;  // so many of the result's began under leaders before
  bool pause_asked_ = false;
  int ranks_wanted_ = 0;
  core::Crew crew_;
  bool began_;
  Generation running_;
  std::vector<core::Checkpoint> checkpoints_;
  std::vector<RankView> views_;
  RunResult result_;
  FiredInjections fired_;
  RunTimes times_;
  StepTimes step_times_;
  IncidentTally tally_;
  std::optional<HangStatus> hang_;  // the newest
};

}  // namespace kintsugi
