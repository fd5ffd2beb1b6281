#include "runtime/launcher/control_desk.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/launcher/control_words.h"
#include "runtime/launcher/status_line.h"

namespace kintsugi {

RunSight ControlDesk::Look() const {
  RunSight sight = SightOf(controller_, run_.job, run_.bind_address);
  account_.LookAt(&sight);
  hosts_.LookAt(&sight);
  return sight;
}

void ControlDesk::OnRequest(const std::string& request, net::ControlSocket::Respond respond) {
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
  if (desk_.OnRequest(*words, {.ended = account_.ended(), .leaves = leaves}, respond)) return;
  if (command == "stop") {
    ending_.Stop();
    return respond(AnswerLine({{"ok", true}}));
  }
  if (command == "inject") return Inject(words->spec, request, std::move(respond));
  respond(UnknownCommand(command));
}

void ControlDesk::Inject(const std::string& spec, const std::string& request, net::ControlSocket::Respond respond) {
  const Result<Injection> injection = ParseInjection(spec);
  if (!injection.ok()) return respond(RefusalLine(injection.status().message()));
  if (injection->rank.value() >= run_.policy.world_size)
    return respond(RefusalLine("there is no rank " + injection->rank.ToString()));
  hosts_.Inject(*injection, request, std::move(respond));
}

}  // namespace kintsugi
