#include "runtime/launcher/leader/control_handler.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/launcher/run/control_words.h"
#include "runtime/launcher/run/status_line.h"

namespace kintsugi {

RunStatus ControlHandler::Look() const {
  RunStatus status = StatusOf(controller_, run_.job, run_.bind_address);
  account_.LookAt(&status);
  hosts_.LookAt(&status);
  return status;
}

void ControlHandler::OnRequest(const std::string& request, net::ControlSocket::Respond respond) {
  KINTSUGI_CHECK(respond != nullptr, "nobody waits for the answer");
  const Result<ControlWords> words = ReadControlWords(request);
  if (!words.ok()) return respond(RefusalLine(words.status().message()));
  const std::string& command = words->command;
  if (command == "status") return respond(StatusLine(Look()));
  if (command == "incidents") {
    std::vector<core::IncidentRecord> over;
    for (const IncidentResult& incident : account_.result().incidents) over.push_back(incident.record);
    return respond(IncidentsLine(over, controller_.core().incident()));
  }
  const bool leaves = account_.stop_asked().has_value();
  if (operators_.OnRequest(*words, {.ended = account_.ended(), .leaves = leaves}, respond)) return;
  if (command == "stop") {
    ending_.Stop();
    return respond(AnswerLine({{"ok", true}}));
  }
  if (command == "drain") return Drain(*words, std::move(respond));
  if (command == "inject") return Inject(words->spec, request, std::move(respond));
  respond(UnknownCommand(command));
}

// To a spare node; without one the run saves and leaves, as it would for any host that is to go.
void ControlHandler::Drain(const ControlWords& words, net::ControlSocket::Respond respond) {
  if (!words.node) return respond(RefusalLine("drain needs a \"node\""));
  if (account_.ended()) return respond(RefusalLine("the run has ended"));
  const Result<core::RankBlock> ranks = hosts_.RanksOfNode(*words.node);
  if (!ranks.ok()) return respond(RefusalLine(ranks.status().message()));
  if (ranks->ranks == 0) return respond(AnswerLine({{"ok", true}, {"has_ranks", false}}));
  if (hosts_.SpareHere()) return operators_.Drain(*ranks, words.wait, std::move(respond));
  ending_.Stop();
  respond(AnswerLine({{"ok", true}, {"leaves", true}}));
}

void ControlHandler::Inject(const std::string& spec, const std::string& request, net::ControlSocket::Respond respond) {
  const Result<Injection> injection = ParseInjection(spec);
  if (!injection.ok()) return respond(RefusalLine(injection.status().message()));
  if (injection->rank.value() >= run_.policy.world_size)
    return respond(RefusalLine("there is no rank " + injection->rank.ToString()));
  hosts_.Inject(*injection, request, std::move(respond));
}

}  // namespace kintsugi
