// Updates: the optimizer update of a step: its gate, its begin, its end. Without an incident the two markers are three
// compare-and-swaps on one word: no lock, no allocation, no system call.
//
// Threads: the loop's; a second one is refused by name.
// Ownership: of nothing.
// Errors: kInterrupted: an incident has begun. kFailedPrecondition: updates are numbered one by one, and each is ended
// before the next.
// Invariants: a call that is refused changes nothing, in the mirrored objects neither.
#pragma once

#include "runtime/agent/device_commits.h"
#include "runtime/agent/fault_reports.h"
#include "runtime/agent/refusals.h"
#include "runtime/agent/state_offer.h"
#include "runtime/agent/step_reports.h"

namespace kintsugi {

class Updates {
 public:
  Updates(const Registration& registered, Gate& gate, Inbox& inbox, LoopPass& pass, AgentThread& thread,
          DeviceCommits& commits, StateOffer& offer, FaultReports& reports, Refusals& refusals, StepReports& told)
      : registered_(registered),
        gate_(gate),
        inbox_(inbox),
        pass_(pass),
        thread_(thread),
        commits_(commits),
        offer_(offer),
        reports_(reports),
        refusals_(refusals),
        told_(told) {}

  Status Begin(Step step);
  // `update`: what its device is still at; null: nothing.
  Status End(Step step, const DeviceFence* update);

  // The mirrored objects of the newest update as they are now, taken before the next one.
  Status Refresh(Step step);

 private:
  Status PassGate(Step step);
  Status AwaitVerdict(Step step);

  const Registration& registered_;
  Gate& gate_;
  Inbox& inbox_;
  LoopPass& pass_;
  AgentThread& thread_;
  DeviceCommits& commits_;
  StateOffer& offer_;
  FaultReports& reports_;
  Refusals& refusals_;
  StepReports& told_;
};

}  // namespace kintsugi
