// ControllerDuties: what the controller wants done and what it tells: processes are started and ended where they live,
// news go into the account, the logs and to those who watch or wait for them.
//
// Threads: one, that of the leader.
// Ownership: all that it is given outlives it.
// Errors: none.
// Invariants: an incident is told with the fault that was injected for it, where that is known by then.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/controller/controller.h"
#include "runtime/launcher/leader/ending.h"
#include "runtime/launcher/leader/hosts.h"
#include "runtime/launcher/leader/operator_requests.h"
#include "runtime/launcher/run/generation_log.h"
#include "runtime/launcher/run/launcher_options.h"
#include "runtime/launcher/run/progress_meter.h"
#include "runtime/launcher/run/run_account.h"
#include "runtime/launcher/run/run_observer.h"

namespace kintsugi {

// Where news of a run go: to operators who wait for an answer, to who watches its progress, into the log.
struct RunNews {
  OperatorRequests& operators;
  ProgressMeter& meter;
  std::shared_ptr<GenerationLog> log;
};

class ControllerDuties final : public ControllerHost {
 public:
  ControllerDuties(const LauncherOptions& run, Controller& controller, RunAccount& account, RunNews news, Hosts& hosts,
                   Ending& ending, std::function<void()> on_ask_witness);

  void Spawn(Rank rank, Incarnation incarnation) override { hosts_.Spawn(rank, incarnation); }
  void Kill(Rank rank, Incarnation incarnation, const std::string& reason) override {
    hosts_.Kill(rank, incarnation, reason);
  }
  void OnTransition(const core::Transition& transition) override;
  void OnIncident(const core::IncidentRecord& record) override;
  void OnCheckpoint(const core::Checkpoint& checkpoint) override;
  void OnSave(const core::SaveSettled& settled) override;
  void OnInexact(Rank rank, const std::string& text) override { account_.OnInexact(rank, text); }
  void OnReplaceRefused(const core::ReplaceRefused& refused) override;
  void OnScaleRefused(const core::ScaleRefused& refused) override;
  void OnRoadClosed(const core::RoadClosed& road) override;
  void OnAttempts(const core::AttemptsGrow& grown) override;
  void OnHang(const core::Blame& blame) override;
  void OnCutOff(const core::NodeCutOff& cut) override { hosts_.CutOff(cut.first, cut.text); }
  void OnNotice(Rank rank, const std::string& text) override;
  void OnEnded(const core::RunEnded& ended) override { ending_.End(ended); }
  void OnAskWitness() override;

 private:
  const LauncherOptions& run_;
  Controller& controller_;
  RunAccount& account_;
  const RunNews news_;
  Hosts& hosts_;
  Ending& ending_;
  const std::function<void()> on_ask_witness_;  // empty: there is none
};

}  // namespace kintsugi
