#include "runtime/launcher/leader/node_inbox.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/overloaded.h"
#include "runtime/wire/codec.h"

namespace kintsugi {

wire::NodeEnd EndOrder(const RunAccount& account) {
  KINTSUGI_CHECK(account.ended(), "nodes are told that the run has ended, and it has not");
  return {account.result().exit_code, account.result().text, account.stop_asked().has_value(), account.awaits_ends()};
}

NodeInbox::NodeInbox(std::string job, NodeParts parts, Controller& controller, const RunAccount& account,
                     WorkerEvents& workers, HostEvents& above, std::shared_ptr<LogSink> log)
    : job_(std::move(job)),
      parts_(parts),
      controller_(controller),
      account_(account),
      workers_(workers),
      above_(above),
      log_(std::move(log)) {}

void NodeInbox::OnNodeJoined(int node, const wire::NodeHello& hello) {
  const NodeRegistry::Arrival arrival = parts_.registry.OnJoined(node, hello, SteadyClock::SteadyNow());
  if (arrival.away)
    parts_.broadcast.Say(
        LogLevel::kWarning,
        LogLine("node_back", {{"node", std::to_string(parts_.registry.NumberOf(node))},
                              {"away_ms", std::to_string(static_cast<int64_t>(ToMilliseconds(*arrival.away)))}}));
  parts_.broadcast.OnJoined(node, arrival.moved);
  if (account_.ended()) return void(parts_.orders.Send(node, EndOrder(account_)));  // came back too late
  parts_.broadcast.PulseNow(node, SteadyClock::SteadyNow());
  parts_.splits.OnAway(node);
  if (!account_.started()) return above_.OnCame();
  parts_.broadcast.TellNewcomer();
  if (!parts_.registry.HasRanks(node)) return EndWhatRunsThere(node, hello);
  const core::RankBlock block = parts_.registry.RanksOf(node);
  parts_.absence.OnBack(node);
  if (hello.newcomer) controller_.Feed(core::LauncherNew{block.first, block.ranks});
  for (const wire::NodeHeld& held : hello.held) OnHeld(node, held);  // before their ends are told
  std::map<Rank, wire::WorkerLife> lives;
  for (const wire::WorkerLife& life : hello.lives)
    if (parts_.registry.OfNode(life.rank, node)) lives[life.rank] = life;
  controller_.core().taking_over() ? FoundLives(node, lives) : ComparedLives(node, lives);
  parts_.absence.TellPlacesAway();
}

// Of a node that has no ranks, whatever it had before.
void NodeInbox::EndWhatRunsThere(int node, const wire::NodeHello& hello) {
  if (!parts_.registry.IsSpare(node)) return;
  log_->Write(LogLevel::kInfo, LogLine("spare_node", {{"node", std::to_string(parts_.registry.NumberOf(node))},
                                                      {"address", hello.address}}));
  for (const wire::WorkerLife& life : hello.lives)
    parts_.orders.Send(node, wire::KillWorker{life.rank, life.incarnation, "another node has taken the rank over"});
}

// The controller knows nothing yet: what runs there is what there is.
void NodeInbox::FoundLives(int node, const std::map<Rank, wire::WorkerLife>& lives) {
  core::LivesThere there;
  for (const auto& [rank, life] : lives) there[rank] = life.incarnation;
  for (const core::FoundLife& found : core::FindLives(parts_.registry.RanksOf(node), there)) {
    if (account_.ended()) return;
    if (found.incarnation)
      workers_.OnStarting(found.rank, *found.incarnation, lives.at(found.rank).armed);
    else
      controller_.Feed(core::ProcessExited{found.rank, Incarnation(), "had ended", std::nullopt});
  }
}

// What ended while nobody could tell; then what began or is no longer wanted.
void NodeInbox::ComparedLives(int node, const std::map<Rank, wire::WorkerLife>& lives) {
  using What = core::ReturnAction::What;
  core::LivesThere there;
  for (const auto& [rank, life] : lives) there[rank] = life.incarnation;
  for (const core::ReturnAction& step : core::CompareLives(controller_.core().members(), parts_.registry.RanksOf(node),
                                                           there, parts_.registry.At(node).to_spawn)) {
    const bool ended = account_.ended();
    if (step.what == What::kEnd)
      parts_.orders.Send(node, wire::KillWorker{step.rank, step.incarnation, "was given up while its node was away"});
    else if (step.what == What::kHadEnded && !ended)
      controller_.Feed(core::ProcessExited{step.rank, step.incarnation, "had ended", std::nullopt});
    else if (step.what == What::kNeverBegan && !ended)  // the one before it runs: this is no end of that one
      controller_.Feed(core::ProcessExited{step.rank, step.incarnation, "was not begun: an earlier process still runs",
                                           std::nullopt, true});
    else if (step.what == What::kEndedAway && !ended)
      workers_.OnExited(
          step.rank, step.incarnation,
          {.cause = "had ended when " + parts_.registry.Name(node) + " came back", .at = SteadyClock::SteadyNow()});
  }
  for (const auto& [rank, incarnation] : std::exchange(parts_.registry.At(node).to_spawn, {}))
    if (!parts_.orders.Send(node, wire::SpawnWorker{rank, incarnation}))
      parts_.registry.At(node).to_spawn[rank] = incarnation;
}

void NodeInbox::OnNodeLost(int node) {
  parts_.forwarded.RefuseAllOf(node, "node " + std::to_string(node) + " was lost before it answered");
  parts_.registry.OnLost(node, SteadyClock::SteadyNow());
  parts_.splits.OnAway(node);
  SetSpares(node, 0);
  parts_.absence.OnLost(node);
  above_.OnLeft();
}

void NodeInbox::SetSpares(int node, int waiting) {
  parts_.registry.At(node).spares = waiting;
  if (!account_.started() || account_.ended() || !parts_.registry.HasRanks(node)) return;
  const core::RankBlock ranks = parts_.registry.RanksOf(node);
  controller_.Feed(core::SparesWaiting{ranks.first, ranks.ranks, waiting});
}

// With what the lost process registered: a leader that takes over may hear of it from nobody else.
void NodeInbox::OnHeld(int node, const wire::NodeHeld& told) {
  if (!parts_.registry.OfNode(told.rank, node) || account_.ended()) return;
  const Result<wire::AgentFrame> frame = wire::DecodeFromAgent(job_, told.ready);
  const auto* message = frame.ok() ? std::get_if<core::AgentMessage>(&frame->message) : nullptr;
  if (message && std::holds_alternative<core::Ready>(*message) && frame->header.rank == told.rank)
    controller_.Feed(core::FromAgent{frame->header, *message});
  workers_.OnHeld(told.rank, told.held);
}

void NodeInbox::OnPages(int node, const wire::Pages& pages) {
  const TimePoint now = SteadyClock::SteadyNow();
  for (const wire::Page& page : pages.pages)
    if (parts_.registry.OfNode(page.rank, node))
      workers_.OnPage(page.rank, page.incarnation, {page.beat, page.gate_word, page.progress, now - page.progress_age});
  parts_.broadcast.OnPages(node, now);
}

void NodeInbox::OnReport(int node, const wire::WorkerReport& report) {
  if (report.rank.value() >= parts_.registry.shape().nodes * parts_.registry.shape().local_ranks) return;
  controller_.reports().Record(report.rank, Step(report.step), report.loss, report.samples);
  // Should this node be lost, and the leader with it, the next one still has it.
  const int next = (parts_.registry.BlockOf(node).value_or(0) + 1) % parts_.registry.shape().nodes;
  const int heir = parts_.registry.placement().NodeOf(next);
  if (heir != node) parts_.orders.Send(heir, wire::KeepReport{report});
}

void NodeInbox::OnExited(int node, const wire::WorkerExited& exited) {
  if (!parts_.registry.OfNode(exited.rank, node)) return;
  const TimePoint now = SteadyClock::SteadyNow();
  WorkerEnd end{.cause = exited.cause, .at = now - exited.age, .not_struck = exited.not_struck};
  if (exited.since_age) end.since = now - *exited.since_age;
  if (exited.left) end.code = exited.code;
  workers_.OnExited(exited.rank, exited.incarnation, end);
}

void NodeInbox::OnNodeMessage(int node, const wire::NodeMessage& message) {
  KINTSUGI_CHECK(parts_.registry.At(node).here, parts_.registry.Name(node) + " speaks, and is not here");
  const auto own = [&](Rank rank) { return parts_.registry.OfNode(rank, node); };
  std::visit(
      Overloaded{
          [&](const wire::WorkerStarting& m) {
            if (own(m.life.rank)) workers_.OnStarting(m.life.rank, m.life.incarnation, m.life.armed);
          },
          [&](const wire::Pages& m) { OnPages(node, m); }, [&](const wire::WorkerReport& m) { OnReport(node, m); },
          [&](const wire::InjectionFired& m) {
            const Result<Injection> injection = ParseInjection(m.spec);
            if (injection.ok() && own(injection->rank)) workers_.OnFired(*injection, SteadyClock::SteadyNow() - m.age);
          },
          [&](const wire::WorkerExited& m) { OnExited(node, m); },
          [&](const wire::NodeSpares& m) { SetSpares(node, m.waiting); },
          [&](const wire::NodeHeld& m) { OnHeld(node, m); },
          [&](const wire::TieRuleKept& m) { parts_.splits.OnTaken(node, m.number); },
          [&](const wire::NodeStop&) {
            log_->Write(LogLevel::kWarning, LogLine("stop_requested", {{"node", std::to_string(node)}}));
            above_.Stop();
          },
          [&](const wire::NodeAsks& m) {
            above_.OnRequest(m.request, [this, node, id = m.id](std::string answer) {
              parts_.orders.Send(node, wire::AnswerNode{id, std::move(answer)});
            });
          },
          [&](const wire::NodeAnswers& m) { parts_.forwarded.OnAnswer(node, m.id, m.answer); },
          [&](const wire::NodeInject& m) {
            if (own(m.rank)) controller_.Feed(core::OperatorInject{m.rank, m.injection});
          },
          [&](const auto&) {},  // channels and hellos: the hub's; votes: no business of a leader
      },
      message);
}

}  // namespace kintsugi
