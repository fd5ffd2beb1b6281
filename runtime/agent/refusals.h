// Refusals: steps that are refused before anything changes (Agent::Reject): told to all at the incident that follows
// (step_news.h), judged there by all alike (runtime/core/refused_step.h), and what follows for this rank.
//
// Threads: the trainer's; NoteComputed is for any that the loop waits for, one at a time.
// Ownership: its own.
// Errors: kInternal: the step is refused, which its loop returns; kEnded: this process gives way to a new one;
// kFailedPrecondition: not now, or no more may be left out; kInterrupted: an incident has begun.
// Invariants: without AllowRejects none of it costs anything, at an incident neither.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "callbacks/handlers/handlers.h"
#include "runtime/agent/fault_reports.h"
#include "runtime/core/refused_step.h"

namespace kintsugi {

class Refusals {
 public:
  Refusals(const Membership& self, const Registration& registered, const Gate& gate, FaultReports& reports,
           std::shared_ptr<LogSink> log)
      : self_(self), registered_(registered), gate_(gate), reports_(reports), log_(std::move(log)) {}

  Status Allow(int most);
  bool allowed() const { return most_.has_value(); }

  Status BeginStep(Step step);
  void NoteComputed(const std::string& of, uint64_t number) {
    if (most_) case_.Note(of, number);
  }
  Status Reject(Step step, const std::string& why);
  // Before the gate of `step`.
  Status PassGate(Step step) { return most_ ? Judge(step) : Status::Ok(); }

  // In REBUILD.
  Status Tell(const HandlerContext& call) const;
  // In ROLLBACK: all judge; what is to be known of it goes into the record.
  Status Hear(HandlerContext& call);

  // All go on.
  void GoOn() { case_.GoOn(); }

  // Why all leave this step out; null: they do not.
  const std::string* LeftOut(Step step) const { return case_.LeftOut(step); }
  std::vector<Step> left_out() const;

 private:
  Status Judge(Step step);
  Status Refused(Step step) const;
  Status GiveWay(Step step);
  // In the log; gives what it said.
  std::string Say(Step step, const std::string& then) const;
  // Where a launcher says how many may be.
  bool MayBeReplaced() const;

  const Membership& self_;
  const Registration& registered_;
  const Gate& gate_;
  FaultReports& reports_;
  const std::shared_ptr<LogSink> log_;
  std::optional<int> most_;  // steps that may be left out; none: no step is refused
  core::RefusedStep case_;
  std::vector<Rank> crew_;  // as the newest ROLLBACK had it; no ranks: all
};

}  // namespace kintsugi
