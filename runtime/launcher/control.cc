// The control socket's requests: status, incidents, inject, save, stop. One JSON object in, one out.
#include <nlohmann/json.hpp>

#include "runtime/controller/incident_line.h"
#include "runtime/launcher/control_words.h"
#include "runtime/launcher/leader.h"
#include "runtime/launcher/status_line.h"

namespace kintsugi {
namespace {

using nlohmann::json;

std::string Refuse(const std::string& why) { return RefusalLine(why); }

// So many requests for a save may wait for its outcome; others still find a place at the control socket.
constexpr size_t kWaitingSavesMax = 8;

// As in summary.json (tools/report), with `over` beside it.
json IncidentJson(const core::IncidentRecord& record, bool over, TimePoint now) {
  const auto since_fault = [&](std::optional<TimePoint> t) {
    return t ? json(ToMilliseconds(*t - record.fault_at)) : json();
  };
  json reasons = json::array();
  for (const core::RungReason& reason : core::ReasonsOf(record))
    reasons.push_back({{"rung", core::RungName(reason.rung)}, {"reason", reason.text}});
  json ranks = json::array();
  for (Rank rank : record.ranks) ranks.push_back(rank.value());
  return {{"id", record.id},
          {"over", over},
          {"signal", core::FaultKindName(record.signal)},
          {"ranks", std::move(ranks)},
          {"cause", record.cause},
          {"step", record.step ? json(record.step->value()) : json()},
          {"steps_lost", StepsLost(record)},
          {"down_ms", DownMilliseconds(record, now)},
          {"attempts", record.attempts},
          {"generation", record.generation.value()},
          {"path", record.rung ? json(core::RungName(*record.rung)) : json()},
          {"reasons", std::move(reasons)},
          {"detected_ms", since_fault(record.detected_at)},
          {"resumed_ms", since_fault(record.resumed_at)}};
}

}  // namespace

std::string Leader::IncidentsJson() const {
  json incidents = json::array();
  const TimePoint now = SteadyClock::SteadyNow();
  for (const IncidentResult& incident : result_.incidents)
    incidents.push_back(IncidentJson(incident.record, true, now));
  if (const auto& under_way = controller_->core().incident()) incidents.push_back(IncidentJson(*under_way, false, now));
  return AnswerLine({{"ok", true}, {"incidents", std::move(incidents)}});
}

// Answered when the save has ended; a run whose save never comes to an end is told by the caller's own limit.
void Leader::OnSaveRequest(bool waits, net::ControlSocket::Respond respond) {
  const std::string& directory = run().policy.save_directory;
  if (directory.empty()) return respond(Refuse("this run has no save directory: it was started without --save-dir"));
  if (ended_) return respond(Refuse("the run has ended"));
  if (waits && waiting_saves_.size() >= kWaitingSavesMax)
    return respond(Refuse(std::to_string(kWaitingSavesMax) + " others wait for a save already: ask with --no-wait"));
  if (waits) waiting_saves_.push_back(respond);
  controller_->Feed(core::OperatorSave{});
  if (!waits) respond(AnswerLine({{"ok", true}, {"directory", directory}}));
}

void Leader::OnSave(const core::SaveSettled& settled) {
  if (!settled.saved) {
    Say(LogLevel::kWarning, result_.saves.OnFailed(settled, SteadyClock::SteadyNow()));
    return AnswerSaves(settled.text);
  }
  if (const std::string line = result_.saves.OnRemark(settled); !line.empty()) Say(LogLevel::kWarning, line);
  json answer{{"ok", true}, {"directory", run().policy.save_directory}, {"step", settled.step.value()}};
  if (!settled.text.empty()) answer["remark"] = settled.text;
  for (const auto& respond : std::exchange(waiting_saves_, {})) respond(AnswerLine(answer));
}

// They wait in vain.
void Leader::AnswerSaves(const std::string& why) {
  const json answer{{"ok", false}, {"error", why}, {"exit", core::kExitFailed}};
  for (const auto& respond : std::exchange(waiting_saves_, {})) respond(AnswerLine(answer));
}

// The fault is armed by the launcher of the rank's own host.
void Leader::AskNodeOf(Rank rank, const std::string& request, net::ControlSocket::Respond respond) {
  const int node = NodeOf(rank);
  const uint64_t id = ++asked_so_far_;
  asked_nodes_[id] = {node, respond};
  if (hub_->Send(node, wire::AskNode{id, request})) return;
  asked_nodes_.erase(id);
  respond(Refuse("rank " + rank.ToString() + " runs on node " + std::to_string(node) + ", which is away"));
}

void Leader::ForgetAsked(int node) {
  for (auto asked = asked_nodes_.begin(); asked != asked_nodes_.end();) {
    if (asked->second.node != node) {
      ++asked;
      continue;
    }
    const auto respond = std::move(asked->second.respond);
    asked = asked_nodes_.erase(asked);
    respond(Refuse("node " + std::to_string(node) + " was lost before it answered"));
  }
}

void Leader::OnRequest(const std::string& request, net::ControlSocket::Respond respond) {
  const Result<ControlWords> words = ReadControlWords(request);
  if (!words.ok()) return respond(Refuse(words.status().message()));
  const std::string& command = words->command;
  if (command == "status") return respond(StatusLine(Look()));
  if (command == "incidents") return respond(IncidentsJson());
  if (command == "save") return OnSaveRequest(words->wait, std::move(respond));
  if (command == "stop") {
    Stop();
    return respond(AnswerLine({{"ok", true}}));
  }
  if (command == "inject") {
    Result<Injection> injection = ParseInjection(words->spec);
    if (!injection.ok()) return respond(Refuse(injection.status().message()));
    if (injection->rank.value() >= run().policy.world_size)
      return respond(Refuse("there is no rank " + injection->rank.ToString()));
    if (!local_) return AskNodeOf(injection->rank, request, std::move(respond));
    Result<InjectionId> id = local_->Arm(*injection);
    if (!id.ok()) return respond(Refuse(id.status().message()));
    controller_->Feed(core::OperatorInject{injection->rank, id->ToString() + " " + ToString(*injection)});
    return respond(AnswerLine({{"ok", true}, {"id", id->value()}, {"spec", ToString(*injection)}}));
  }
  respond(Refuse("unknown command '" + command + "': status, incidents, save, stop or inject"));
}

}  // namespace kintsugi
