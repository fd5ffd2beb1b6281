// What comes through a node's control socket: faults for its own ranks are armed here, all else is the leader's to
// answer, wherever it is.
#include <nlohmann/json.hpp>

#include "runtime/launcher/control_words.h"
#include "runtime/launcher/node_impl.h"

namespace kintsugi {

void NodeLauncher::Impl::OnRequest(const std::string& request, net::ControlSocket::Respond respond) {
  const Result<ControlWords> words = ReadControlWords(request);
  if (!words.ok()) return respond(RefusalLine(words.status().message()));
  const std::string& command = words->command;
  if (command == "stop") {
    AskToStop();
    return respond(link_ ? AnswerLine({{"ok", true}})
                         : RefusalLine("nobody leads the run now: whoever does next is told to stop it"));
  }
  const Result<Injection> injection = ParseInjection(command == "inject" ? words->spec : "");
  if (command == "inject" && injection.ok() && Has(injection->rank)) {
    Result<InjectionId> id = pool_.Arm(*injection);
    if (!id.ok()) return respond(RefusalLine(id.status().message()));
    Tell(wire::NodeInject{injection->rank, id->ToString() + " " + ToString(*injection)});
    return respond(AnswerLine({{"ok", true}, {"id", id->value()}, {"spec", ToString(*injection)}}));
  }
  if (leader_) return leader_->OnRequest(request, std::move(respond));
  AskLeader(request, std::move(respond));
}

void NodeLauncher::Impl::AskLeader(const std::string& request, net::ControlSocket::Respond respond) {
  if (!link_)
    return respond(RefusalLine("this is " + name() + ", and nobody leads the run now: ask again in a second"));
  asked_leader_[++asked_so_far_] = std::move(respond);
  Tell(wire::NodeAsks{asked_so_far_, request});
}

// The leader asks only for what a node alone can do; anything else would go round in a circle.
void NodeLauncher::Impl::OnAskedHere(const wire::AskNode& asked) {
  const auto answer = [this, id = asked.id](std::string text) { Tell(wire::NodeAnswers{id, std::move(text)}); };
  const Result<ControlWords> words = ReadControlWords(asked.request);
  const Result<Injection> injection = ParseInjection(words.ok() ? words->spec : "");
  if (!words.ok() || words->command != "inject" || !injection.ok() || !Has(injection->rank))
    return answer(RefusalLine(name() + " was asked for what is not its own"));
  OnRequest(asked.request, answer);
}

void NodeLauncher::Impl::OnAnswered(const wire::AnswerNode& answer) {
  const auto asked = asked_leader_.find(answer.id);
  if (asked == asked_leader_.end()) return;
  const net::ControlSocket::Respond respond = std::move(asked->second);
  asked_leader_.erase(asked);
  respond(answer.answer);
}

void NodeLauncher::Impl::ForgetAsked(const std::string& why) {
  for (const auto& [id, respond] : std::exchange(asked_leader_, {})) respond(RefusalLine(why));
}

}  // namespace kintsugi
