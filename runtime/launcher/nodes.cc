// The other nodes of a run, as node 0 sees them.
#include <boost/asio/post.hpp>

#include "runtime/base/overloaded.h"
#include "runtime/launcher/impl.h"

namespace kintsugi {
namespace {

std::string NodeName(int node) { return "node " + std::to_string(node); }

std::string Seconds(Duration duration) {
  return std::to_string(static_cast<int64_t>(ToMilliseconds(duration) / 1000)) + " s";
}

}  // namespace

void Launcher::Impl::StartWhenComplete() {
  if (started_ || ended_) return;
  for (const auto& [node, state] : nodes_)
    if (!hub_->connected(node)) return;
  started_ = true;
  controller_->Start();
}

// A run begins with all of its nodes. Later a lost one may come back, itself or started anew, until the wait is over;
// then what it was to start fails, and the ladder goes on.
void Launcher::Impl::CheckNodes() {
  const TimePoint now = SteadyClock::SteadyNow();
  const Duration limit = started_ ? options_.node_wait : options_.policy.join_timeout;
  for (auto& [node, state] : nodes_) {
    if (hub_->connected(node) || now - state.lost_at < limit) continue;
    if (!started_) {
      result_.exit_code = core::kExitStartup;
      result_.text = NodeName(node) + " did not come within " + Seconds(limit) + ": is `kintsugi run --node-rank " +
                     std::to_string(node) + "` running there, with the same --nnodes, --rendezvous and --secret-file?";
      ended_ = true;
      return io_.stop();
    }
    // Fed one at a time: the controller may ask for the next process of the rank at once.
    for (const auto& [rank, incarnation] : std::exchange(state.to_spawn, {}))
      OnExited(rank, incarnation, "could not be started: " + NodeName(node) + " is gone", now, std::nullopt);
    if (ended_) return;
  }
}

void Launcher::Impl::OnNodeJoined(int node, const wire::NodeHello& hello) {
  Node& state = nodes_[node];
  if (!started_) return StartWhenComplete();
  std::map<Rank, wire::WorkerLife> lives;
  for (const wire::WorkerLife& life : hello.lives)
    if (OfNode(life.rank, node)) lives[life.rank] = life;
  // What ended while nobody could tell; then what began or is no longer wanted.
  using Life = core::ControllerCore::Life;
  const auto members = controller_->core().members();
  for (int r = node * LocalRanks(); r < (node + 1) * LocalRanks(); ++r) {
    const Rank rank(r);
    const auto& member = members[static_cast<size_t>(r)];
    const auto found = lives.find(rank);
    const bool runs = found != lives.end() && found->second.incarnation == member.incarnation;
    const bool expected =
        (member.life == Life::kReady || member.life == Life::kStarting) && !state.to_spawn.count(rank);
    if (found != lives.end() && !(runs && expected))
      hub_->Send(node, wire::KillWorker{rank, found->second.incarnation, "was given up while its node was away"});
    if (expected && !runs && !ended_)
      OnExited(rank, member.incarnation, "had ended when " + NodeName(node) + " came back", SteadyClock::SteadyNow(),
               std::nullopt);
  }
  for (const auto& [rank, incarnation] : std::exchange(state.to_spawn, {})) Spawn(rank, incarnation);
}

void Launcher::Impl::OnNodeLost(int node) {
  nodes_[node].lost_at = SteadyClock::SteadyNow();
  SetSpares(node, 0);
  StopIfDone();
}

void Launcher::Impl::OnNodeMessage(int node, const wire::NodeMessage& message) {
  const TimePoint now = SteadyClock::SteadyNow();
  std::visit(Overloaded{
                 [&](const wire::WorkerStarting& m) {
                   if (OfNode(m.life.rank, node)) OnStarting(m.life.rank, m.life.incarnation, m.life.armed);
                 },
                 [&](const wire::Pages& m) {
                   for (const wire::Page& page : m.pages)
                     if (OfNode(page.rank, node))
                       OnPage(page.rank, page.incarnation,
                              {page.beat, page.gate_word, page.progress, now - page.progress_age});
                 },
                 [&](const wire::WorkerReport& m) {
                   if (OfNode(m.rank, node)) OnReport(m.rank, {m.step, m.loss, m.samples});
                 },
                 [&](const wire::InjectionFired& m) {
                   Result<Injection> injection = ParseInjection(m.spec);
                   if (injection.ok() && OfNode(injection->rank, node)) OnFired(*injection, now - m.age);
                 },
                 [&](const wire::WorkerExited& m) {
                   if (!OfNode(m.rank, node)) return;
                   std::optional<TimePoint> since;
                   if (m.since_age) since = now - *m.since_age;
                   OnExited(m.rank, m.incarnation, m.cause, now - m.age, since);
                 },
                 [&](const wire::NodeSpares& m) { SetSpares(node, m.waiting); },
                 [&](const wire::NodeStop&) {
                   log_->Write(LogLevel::kWarning, LogLine("stop_requested", {{"node", std::to_string(node)}}));
                   controller_->Feed(core::OperatorStop{});
                 },
                 [&](const auto&) {},  // channels and hellos: the hub's
             },
             message);
}

void Launcher::Impl::TellNodesOfEnd() {
  for (const auto& [node, state] : nodes_) hub_->Send(node, wire::NodeEnd{result_.exit_code, result_.text});
}

}  // namespace kintsugi
