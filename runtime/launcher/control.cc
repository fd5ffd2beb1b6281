// The control socket's requests: one JSON object in, one out. What needs the controller alone is the desk's.
#include <nlohmann/json.hpp>

#include "runtime/launcher/control_words.h"
#include "runtime/launcher/leader.h"
#include "runtime/launcher/status_line.h"

namespace kintsugi {
namespace {

std::string Refuse(const std::string& why) { return RefusalLine(why); }

}  // namespace

void Leader::OnSave(const core::SaveSettled& settled) {
  if (!settled.saved) {
    Say(LogLevel::kWarning, result_.saves.OnFailed(settled, SteadyClock::SteadyNow()));
  } else if (const std::string line = result_.saves.OnRemark(settled); !line.empty()) {
    Say(LogLevel::kWarning, line);
  }
  desk_->OnSave(settled);
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
  if (command == "incidents") {
    std::vector<core::IncidentRecord> over;
    for (const IncidentResult& incident : result_.incidents) over.push_back(incident.record);
    return respond(IncidentsLine(over, controller_->core().incident()));
  }
  if (desk_->OnRequest(*words, {.ended = ended_, .leaves = stop_asked_.has_value()}, respond)) return;
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
  respond(UnknownCommand(command));
}

}  // namespace kintsugi
