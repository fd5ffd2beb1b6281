// WorkerEventHandler: what workers do, on the leader's host or another: told to the controller, and kept in the account.
//
// Threads: one, that of the leader.
// Ownership: controller, account and the part above outlive it.
// Errors: none: what comes from other hosts was looked at before.
// Invariants: the controller hears nothing once the run has ended; the account does.
#pragma once

#include <string>
#include <vector>

#include "runtime/controller/controller.h"
#include "runtime/launcher/leader/hosts.h"
#include "runtime/launcher/run/run_account.h"
#include "runtime/launcher/workers/worker_events.h"

namespace kintsugi {

class WorkerEventHandler final : public WorkerEvents {
 public:
  WorkerEventHandler(Controller& controller, RunAccount& account, HostEvents& above)
      : controller_(controller), account_(account), above_(above) {}

  void OnStarting(Rank rank, Incarnation incarnation, std::vector<std::string> armed) override;
  void OnPage(Rank rank, Incarnation incarnation, const PageView& page) override;
  void OnReport(Rank rank, const StepReport& report) override;
  void OnFired(const Injection& injection, TimePoint at) override;
  void OnHeld(Rank rank, const std::optional<core::HeldState>& held) override;
  void OnExited(Rank rank, Incarnation incarnation, const WorkerEnd& end) override;
  // Where one host has all ranks it tells of all spares; where there are several, each tells of its own.
  void OnSpares(int waiting) override;
  void OnIdle() override { above_.OnLeft(); }

 private:
  Controller& controller_;
  RunAccount& account_;
  HostEvents& above_;
};

}  // namespace kintsugi
