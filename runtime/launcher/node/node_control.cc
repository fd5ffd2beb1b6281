#include "runtime/launcher/node/node_control.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/launcher/run/control_words.h"

namespace kintsugi {

void NodeControl::OnRequest(const std::string& request, net::ControlSocket::Respond respond) {
  const Result<ControlWords> words = ReadControlWords(request);
  if (!words.ok()) return respond(RefusalLine(words.status().message()));
  const std::string& command = words->command;
  if (command == "stop") {
    above_.AskToStop();
    return respond(to_leader_.connected()
                       ? AnswerLine({{"ok", true}})
                       : RefusalLine("nobody leads the run now: the next leader is told to stop it"));
  }
  const Result<Injection> injection = ParseInjection(command == "inject" ? words->spec : "");
  if (command == "inject" && injection.ok() && block_.Has(injection->rank)) {
    const Result<InjectionId> id = pool_.Arm(*injection);
    if (!id.ok()) return respond(RefusalLine(id.status().message()));
    to_leader_.Tell(wire::NodeInject{injection->rank, id->ToString() + " " + ToString(*injection)});
    return respond(AnswerLine({{"ok", true}, {"id", id->value()}, {"spec", ToString(*injection)}}));
  }
  if (!above_.AnswerAsLeader(request, respond)) AskLeader(request, std::move(respond));
}

void NodeControl::AskLeader(const std::string& request, net::ControlSocket::Respond respond) {
  if (!to_leader_.connected())
    return respond(
        RefusalLine("this is " + state_.self.name() + ", and nobody leads the run now: ask again in a second"));
  to_leader_.Tell(wire::NodeAsks{forwarded_.Begin(kLeader, std::move(respond)), request});
}

// Anything but a fault for its own rank would go round in a circle.
void NodeControl::OnAsked(const wire::AskNode& asked) {
  const auto answer = [this, id = asked.id](std::string text) {
    to_leader_.Tell(wire::NodeAnswers{id, std::move(text)});
  };
  const Result<ControlWords> words = ReadControlWords(asked.request);
  const Result<Injection> injection = ParseInjection(words.ok() ? words->spec : "");
  if (!words.ok() || words->command != "inject" || !injection.ok() || !block_.Has(injection->rank))
    return answer(RefusalLine(state_.self.name() + " was asked for what is not its own"));
  OnRequest(asked.request, answer);
}

}  // namespace kintsugi
