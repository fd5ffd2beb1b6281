// Steps: what the trainer calls in its loop beside the update: where a step begins, which phase it is in, what it reports;
// and the boundaries at which it is saved, compared or copied.
//
// Threads: the loop's; a second one is refused by name. EnterPhase, BeginCollective and Poll are for any that the loop
// waits for.
// Ownership: of nothing.
// Errors: kInterrupted: an incident has begun. kFailedPrecondition: no right program makes this call now.
// Invariants: the page says that a step has begun before orders for its boundary are looked at (snapshot_points.h).
#pragma once

#include <span>

#include "runtime/agent/guard.h"
#include "runtime/agent/injections.h"
#include "runtime/agent/refusals.h"
#include "runtime/agent/snapshot_points.h"
#include "runtime/agent/step_reports.h"

namespace kintsugi {

class Steps {
 public:
  Steps(const Membership& self, RankPage& page, const Gate& gate, const Inbox& inbox, const ArmedFaults& armed,
        AgentThread& thread, SnapshotPoints& snapshots, LoopPass& pass, const Activities& activities,
        DeviceCommits& commits, const StateOffer& offer, FaultReports& reports, Injections& injections,
        Refusals& refusals, StepReports& told, Guard& guard)
      : self_(self),
        page_(page),
        gate_(gate),
        inbox_(inbox),
        armed_(armed),
        thread_(thread),
        snapshots_(snapshots),
        pass_(pass),
        activities_(activities),
        commits_(commits),
        offer_(offer),
        reports_(reports),
        injections_(injections),
        refusals_(refusals),
        told_(told),
        guard_(guard) {}

  Status Begin(Step step);
  Status EnterPhase(Step step, TrainPhase phase);
  Status BeginCollective();
  Status BeginCollective(std::span<uint8_t> given);
  Status Report(Step step, double loss, std::span<const uint64_t> samples);
  Status ReportNorm(Step step, double norm);
  Status Poll() const;

 private:
  Status CheckBegin(Step step);
  Status CheckStep(const char* where, Step step) const;
  bool IsSavePoint(Step boundary) const;
  Status SaveAt(Step boundary);

  const Membership& self_;
  RankPage& page_;
  const Gate& gate_;
  const Inbox& inbox_;
  const ArmedFaults& armed_;
  AgentThread& thread_;
  SnapshotPoints& snapshots_;
  LoopPass& pass_;
  const Activities& activities_;
  DeviceCommits& commits_;
  const StateOffer& offer_;
  FaultReports& reports_;
  Injections& injections_;
  Refusals& refusals_;
  StepReports& told_;
  Guard& guard_;
};

}  // namespace kintsugi
