#include "runtime/launcher/leader/controller_duties.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/controller/incident_line.h"

namespace kintsugi {

ControllerDuties::ControllerDuties(const LauncherOptions& run, Controller& controller, RunAccount& account,
                                   RunNews news, Hosts& hosts, Ending& ending, std::function<void()> on_ask_witness)
    : run_(run),
      controller_(controller),
      account_(account),
      news_(std::move(news)),
      hosts_(hosts),
      ending_(ending),
      on_ask_witness_(std::move(on_ask_witness)) {}

void ControllerDuties::OnTransition(const core::Transition& t) {
  news_.log->Set(t.generation);
  const TimePoint now = SteadyClock::SteadyNow();
  const auto& incident = controller_.core().incident();
  const Step goes_on_after = incident && incident->step ? *incident->step : run_.policy.resume_step;
  if (t.to == core::Phase::kRunning)
    account_.OnCrew(controller_.core().crew(), incident ? incident->id : 0, goes_on_after, now);
  account_.OnTransition(t, goes_on_after, now);
  news_.log->Write(
      LogLevel::kInfo,
      LogLine("phase",
              {{"from", std::string(core::PhaseName(t.from))},
               {"to", std::string(core::PhaseName(t.to))},
               {"gen", t.generation.ToString()},
               {"incident", std::to_string(t.incident)},
               {"attempt", std::to_string(t.attempt)},
               {"elapsed_ms", std::to_string(static_cast<int64_t>(ToMilliseconds(now - account_.result().begin)))},
               {"reason", t.reason}}));
  // Launchers whose ranks were moved have weight from here on (Placement::Counts): they must know before this leader is lost.
  if (t.to == core::Phase::kRunning) hosts_.PulseAll();
  news_.meter.Tell(now);
}

void ControllerDuties::OnIncident(const core::IncidentRecord& record) {
  const TimePoint now = SteadyClock::SteadyNow();
  const IncidentResult& incident = account_.OnIncident(record, now);
  hosts_.Say(LogLevel::kWarning, IncidentLine(incident.record, now));
  news_.operators.OnIncident(incident.record);
  if (run_.observer) run_.observer->OnIncident(run_.job, incident, account_.result().begin);
}

void ControllerDuties::OnCheckpoint(const core::Checkpoint& checkpoint) {
  account_.OnCheckpoint(checkpoint, SteadyClock::SteadyNow());
}

void ControllerDuties::OnSave(const core::SaveSettled& settled) {
  const std::string line = account_.OnSave(settled, SteadyClock::SteadyNow());
  if (!line.empty()) hosts_.Say(LogLevel::kWarning, line);
  news_.operators.OnSave(settled);
}

void ControllerDuties::OnReplaceRefused(const core::ReplaceRefused& refused) {
  hosts_.Say(LogLevel::kWarning, LogLine("not_replaced", {{"rank", refused.rank.ToString()}, {"why", refused.why}}));
  news_.operators.OnReplaceRefused(refused.rank, refused.why);
}

void ControllerDuties::OnScaleRefused(const core::ScaleRefused& refused) {
  hosts_.Say(LogLevel::kWarning,
             LogLine("not_scaled", {{"ranks", std::to_string(refused.ranks)}, {"why", refused.why}}));
  news_.operators.OnScaleRefused(refused);
}

void ControllerDuties::OnRoadClosed(const core::RoadClosed& road) {
  hosts_.Say(LogLevel::kWarning, UnreachableLine(road));
}

void ControllerDuties::OnAttempts(const core::AttemptsGrow& grown) {
  hosts_.Say(LogLevel::kWarning, GoesOnLine(grown));
}

void ControllerDuties::OnHang(const core::Blame& blame) {
  account_.OnHang(blame, SteadyClock::SteadyNow());
  for (const std::string& line : HangLines(blame)) hosts_.Say(LogLevel::kWarning, line);
}

void ControllerDuties::OnNotice(Rank rank, const std::string& text) {
  news_.log->Write(LogLevel::kInfo, LogLine("notice", {{"rank", rank.ToString()}, {"text", text}}));
}

void ControllerDuties::OnAskWitness() {
  KINTSUGI_CHECK(on_ask_witness_ != nullptr, "the controller asks for a witness, and the run has none");
  on_ask_witness_();
}

}  // namespace kintsugi
