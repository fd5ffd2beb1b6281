// Refusals: steps that are refused before anything changes, by the trainer (Agent::Reject) or by the rules of --veto
// (runtime/core/step_rules.h): told to all at the incident that follows (step_news.h), judged there by all alike
// (runtime/core/refused_step.h), and what follows for this rank.
//
// Threads: the trainer's; NoteComputed is for any that the loop waits for, one at a time.
// Ownership: its own.
// Errors: kInternal: the step is refused, which its loop returns; kEnded: this process gives way to a new one;
// kFailedPrecondition: not now, or no more may be left out, or a rule has nothing to go by; kInterrupted: an incident has begun.
// Invariants: without AllowRejects none of it costs anything, at an incident neither.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "callbacks/handlers/handlers.h"
#include "runtime/agent/fault_reports.h"
#include "runtime/core/refused_step.h"
#include "runtime/core/step_rules.h"

namespace kintsugi {

class Refusals {
 public:
  Refusals(const Membership& self, Registration& registered, const Gate& gate, FaultReports& reports,
           std::shared_ptr<LogSink> log);

  Status Allow(int most);
  bool allowed() const { return most_.has_value(); }
  // As the guard begins: rules are for a loop that leaves steps out.
  Status CheckRules() const;

  Status BeginStep(Step step);
  void NoteComputed(const std::string& of, uint64_t number) {
    if (most_) case_.Note(of, number);
  }
  void NoteLoss(double loss, std::span<const uint64_t> samples);
  void NoteNorm(double norm) { rules_.NoteNorm(norm); }
  bool AsksNorm(Step step) const;
  // `back`: so many steps before it go with it; `of_all`: in what all ranks have summed up.
  Status Reject(Step step, const std::string& why, uint64_t back, bool of_all);
  // Before the gate of `step`.
  Status PassGate(Step step);

  // In REBUILD.
  Status Tell(const HandlerContext& call) const;
  // In ROLLBACK: all judge; what is to be known of it goes into the record.
  Status Hear(HandlerContext& call);

  // All stand where the ranks have agreed to leave steps out already: the run is to go back to before this one. 0: it is not.
  Step BackFrom(Step standing) const { return case_.BackFrom(standing).value_or(Step()); }

  // All go on.
  void GoOn() { case_.GoOn(); }

  // Why all leave this step out; null: they do not.
  const std::string* LeftOut(Step step) const { return case_.LeftOut(step); }
  std::optional<Step> NextLeftOut(Step after) const { return case_.NextLeftOut(after); }
  std::vector<Step> left_out() const;

 private:
  Status Judge(Step step);
  Status JudgeByRules(Step step);
  Status Refuse(Step step, const std::string& why, uint64_t back, bool of_all);
  Status Refused(Step step) const;
  Status GiveWay(Step step);
  // In the log; gives what it said.
  std::string Say(Step step, const std::string& then) const;
  // Where a launcher says how many may be.
  bool MayBeReplaced() const;

  const Membership& self_;
  Registration& registered_;
  const Gate& gate_;
  FaultReports& reports_;
  const std::shared_ptr<LogSink> log_;
  std::optional<int> most_;  // steps that may be left out; none: no step is refused
  core::StepRules rules_;
  core::RefusedStep case_;
  std::vector<Rank> crew_;  // as the newest ROLLBACK had it; no ranks: all
};

}  // namespace kintsugi
