// Parking: what leaves the trainer's loop becomes a parking, and a fault where it is one.
//
// Threads: the trainer's.
// Ownership: of nothing.
// Errors: none; what an error means to its rank is what was registered of it.
// Invariants: whatever leaves the loop inside an update leaves the update torn; one that was not begun is abandoned.
#pragma once

#include "runtime/agent/device_commits.h"
#include "runtime/agent/fault_reports.h"
#include "runtime/agent/state_offer.h"

namespace kintsugi {

class Parking {
 public:
  Parking(const Registration& registered, RankPage& page, Gate& gate, Inbox& inbox, AgentThread& thread,
          DeviceCommits& commits, const StateOffer& offer, const FaultReports& reports)
      : registered_(registered),
        page_(page),
        gate_(gate),
        inbox_(inbox),
        thread_(thread),
        commits_(commits),
        offer_(offer),
        reports_(reports) {}

  // The loop was left; `signature`: core::FaultReport's.
  void LeaveLoop(const Status& status, LoopEnd end, const std::string& signature);
  void Park(core::TrainerParked::Outcome outcome, core::FaultReport fault = {});

 private:
  core::FaultReport Classify(const Status& status) const;
  TimePoint InjectedAt() const;
  bool IsInjected() const;

  const Registration& registered_;
  RankPage& page_;
  Gate& gate_;
  Inbox& inbox_;
  AgentThread& thread_;
  DeviceCommits& commits_;
  const StateOffer& offer_;
  const FaultReports& reports_;
};

}  // namespace kintsugi
