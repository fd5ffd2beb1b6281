// The control socket's requests: status, incidents, inject, save, pause, continue, replace, stop. One JSON object in,
// one out.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/controller/incident_line.h"
#include "runtime/launcher/control_words.h"
#include "runtime/launcher/leader.h"
#include "runtime/launcher/status_line.h"

namespace kintsugi {
namespace {

using nlohmann::json;

std::string Refuse(const std::string& why) { return RefusalLine(why); }

// So many requests of a kind may wait for their outcome; others still find a place at the control socket.
constexpr size_t kWaitingMax = 8;

// What was asked for was begun and did not come about: the caller's exit code is that of a failure, not of a refusal.
std::string InVain(const std::string& why) {
  return AnswerLine({{"ok", false}, {"error", why}, {"exit", core::kExitFailed}});
}

std::string TooManyWait(const std::string& what) {
  return std::to_string(kWaitingMax) + " others wait for " + what + " already: ask with --no-wait";
}

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
  if (waits && waiting_saves_.size() >= kWaitingMax) return respond(Refuse(TooManyWait("a save")));
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
  for (const auto& respond : std::exchange(waiting_saves_, {})) respond(InVain(why));
}

// Answered when all ranks stand.
void Leader::OnPauseRequest(bool waits, net::ControlSocket::Respond respond) {
  if (ended_) return respond(Refuse("the run has ended"));
  if (stop_asked_) return respond(Refuse("the run saves and leaves: it is not paused any more"));
  if (waits && waiting_pauses_.size() >= kWaitingMax) return respond(Refuse(TooManyWait("a pause")));
  if (waits) waiting_pauses_.push_back(respond);
  controller_->Feed(core::OperatorPause{});
  if (!waits) respond(AnswerLine({{"ok", true}}));
}

void Leader::AnswerPauses() {
  if (waiting_pauses_.empty()) return;
  const std::optional<Step> at = controller_->core().paused_at();
  if (!at && controller_->core().pause_asked()) return;
  const std::string answer = at ? AnswerLine({{"ok", true}, {"step", at->value()}})
                                : Refuse("somebody let the run go on before all ranks stood");
  for (const auto& respond : std::exchange(waiting_pauses_, {})) respond(answer);
}

void Leader::OnContinueRequest(net::ControlSocket::Respond respond) {
  if (ended_) return respond(Refuse("the run has ended"));
  const std::optional<Step> at = controller_->core().paused_at();
  if (!controller_->core().pause_asked()) return respond(Refuse("the run is not paused"));
  controller_->Feed(core::OperatorContinue{});
  respond(AnswerLine({{"ok", true}, {"step", at ? json(at->value()) : json()}}));
}

// Answered when all ranks step again.
void Leader::OnReplaceRequest(const ControlWords& words, net::ControlSocket::Respond respond) {
  if (!words.rank) return respond(Refuse("replace needs a \"rank\""));
  if (ended_) return respond(Refuse("the run has ended"));
  if (const std::string why = controller_->core().WhyNotReplaced(*words.rank); !why.empty())
    return respond(Refuse(why));
  if (words.wait && waiting_replaces_.size() >= kWaitingMax) return respond(Refuse(TooManyWait("a new process")));
  if (words.wait) waiting_replaces_.emplace_back(*words.rank, respond);
  controller_->Feed(core::OperatorReplace{*words.rank});
  if (!words.wait) respond(AnswerLine({{"ok", true}, {"rank", words.rank->value()}}));
}

void Leader::AnswerReplaced(const core::IncidentRecord& record) {
  for (auto waiting = waiting_replaces_.begin(); waiting != waiting_replaces_.end();) {
    const Rank rank = waiting->first;
    if (std::find(record.ranks.begin(), record.ranks.end(), rank) == record.ranks.end()) {
      ++waiting;
      continue;
    }
    const auto respond = std::move(waiting->second);
    waiting = waiting_replaces_.erase(waiting);
    json answer = IncidentJson(record, true, SteadyClock::SteadyNow());
    respond(AnswerLine({{"ok", true}, {"rank", rank.value()}, {"incident", std::move(answer)}}));
  }
}

void Leader::AnswerOrders(const std::string& why) {
  AnswerSaves(why);
  for (const auto& respond : std::exchange(waiting_pauses_, {})) respond(InVain(why));
  for (const auto& [rank, respond] : std::exchange(waiting_replaces_, {})) respond(InVain(why));
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
  if (command == "pause") return OnPauseRequest(words->wait, std::move(respond));
  if (command == "continue") return OnContinueRequest(std::move(respond));
  if (command == "replace") return OnReplaceRequest(*words, std::move(respond));
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
  respond(
      Refuse("unknown command '" + command + "': status, incidents, save, pause, continue, replace, stop or inject"));
}

}  // namespace kintsugi
