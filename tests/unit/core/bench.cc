#include "tests/unit/core/bench.h"

#include <algorithm>

namespace kintsugi::core {

using namespace std::chrono_literals;

Policy Bench::QuickPolicy(int world_size) {
  Policy policy;
  policy.world_size = world_size;
  policy.silence = 1s;
  policy.step_timeout = 4s;
  policy.join_timeout = 10s;
  policy.grace = 10s;
  policy.max_respawns = 3;
  policy.save_directory = "saves";
  return policy;
}

Bench::Bench(Policy policy, Term term)
    : owned_(std::make_unique<ControllerCore>(policy, term)),
      core(*owned_),
      standing(static_cast<size_t>(policy.world_size)) {
  // One layout, groups of up to eight ranks, two replicas: the ranks of a group's halves hold the same shards in pairs.
  for (int first = 0; first < policy.world_size; first += 8) {
    GroupClaim group;
    for (int r = first; r < std::min(first + 8, policy.world_size); ++r) group.ranks.push_back(Rank(r));
    group.replicas = group.ranks.size() % 2 == 0 ? 2 : 1;
    for (Rank rank : group.ranks) claims[rank.value()][0] = group;
  }
}

Header Bench::HeaderOf(int rank) const {
  return {core.term(), core.generation(), Rank(rank), member(rank).incarnation};
}

void Bench::Absorb(std::vector<ControllerAction> actions) {
  for (ControllerAction& action : actions) {
    seen.push_back(action);
    inbox_.push_back(std::move(action));
  }
  Pump();
}

void Bench::Pump() {
  if (pumping_) return;
  pumping_ = true;
  while (!inbox_.empty()) {
    const ControllerAction action = std::move(inbox_.front());
    inbox_.pop_front();
    if (const auto* send = std::get_if<Send>(&action)) Answer(*send);
    if (const auto* spawn = std::get_if<SpawnProcess>(&action))
      if (replacements_come && !mute.count(spawn->rank.value())) JoinAndReady(spawn->rank.value());
  }
  pumping_ = false;
}

void Bench::Answer(const Send& send) {
  const int rank = send.header.rank.value();
  // A question comes before the orders of the generation after it.
  if (const auto* ask = std::get_if<AskMarks>(&send.message)) {
    const auto found = marks.find(rank);
    if (found == marks.end()) return;
    found->second.round = ask->round;
    return Say(rank, found->second);
  }
  if (send.header.generation != core.generation() || send.header.incarnation != member(rank).incarnation) return;
  Standing& at = standing[static_cast<size_t>(rank)];
  if (std::holds_alternative<LockOrder>(send.message)) {
    if (!Muted(rank, Phase::kLock)) Say(rank, LockReply{at.state, at.step, at.valid});
  } else if (const auto* stop = std::get_if<StopOrder>(&send.message)) {
    if (Muted(rank, Phase::kStop) || stuck.count(rank)) return;
    if (at.state == GateState::kAtGate)
      at = {GateState::kCommitted, stop->step_exists && stop->step == at.step ? at.step : at.step.Previous(), at.valid};
    if (at.state == GateState::kUpdating) at.state = GateState::kCommitted;
    Say(rank, Parked{at.state, at.step, at.valid});
  } else if (const auto* order = std::get_if<PhaseOrder>(&send.message)) {
    if (Muted(rank, order->phase) || stuck.count(rank)) return;
    PhaseDone done{.phase = order->phase};
    if (unregisters.phase == order->phase && unregisters.ranks.count(rank)) done.unregistered = unregisters.keys;
    if (order->phase == Phase::kRebuild && order->relayout && next.count(rank)) done.next = {next[rank]};
    if (order->phase == Phase::kRollback) at = {GateState::kCommitted, order->step, true};
    if (order->phase == Phase::kVerify)
      for (const auto& [layout, claim] : claims[rank])
        done.digests[layout] = digests[rank].count(layout) ? digests[rank][layout] : 1;
    Say(rank, done);
  } else if (std::holds_alternative<ResumeOrder>(send.message)) {
    if (!Muted(rank, Phase::kRunning)) Say(rank, Resumed{});
  }
}

void Bench::Feed(const ControllerEvent& event) { Absorb(core.Step(event, now)); }
void Bench::Say(int rank, AgentMessage message) { Feed(FromAgent{HeaderOf(rank), std::move(message)}); }
void Bench::SayLate(int rank, AgentMessage message, uint64_t generations_ago) {
  Header header = HeaderOf(rank);
  header.generation = Generation(header.generation.value() - generations_ago);
  Feed(FromAgent{header, std::move(message)});
}
void Bench::Exit(int rank, const std::string& cause) {
  standing[static_cast<size_t>(rank)] = {GateState::kCommitted, {}, false};
  Feed(ProcessExited{Rank(rank), member(rank).incarnation, cause, std::nullopt});
}
void Bench::Close(int rank) { Feed(ConnectionClosed{Rank(rank), member(rank).incarnation}); }
void Bench::Rejoin(int rank) { Say(rank, JoinRequest{.pid = 1, .host = "h"}); }

void Bench::JoinAndReady(int rank) {
  stuck.erase(rank);
  standing[static_cast<size_t>(rank)] = {GateState::kCommitted, {}, core.incidents() == 0};
  Rejoin(rank);
  Ready ready;
  ready.registry = registries[rank];
  ready.layouts = claims[rank];
  ready.offer = offers[rank];
  ready.state_held = core.policy().adopts;
  Say(rank, ready);
}

void Bench::Run() { Absorb(core.Start(now)); }

void Bench::Pass(Duration duration) {
  const TimePoint end = now + duration;
  while (now < end) {
    now = now + 10ms;
    ++beat_;
    for (size_t r = 0; r < standing.size(); ++r)
      if (!silent.count(static_cast<int>(r)))
        Say(static_cast<int>(r),
            Beat{beat_, places.count(static_cast<int>(r)) ? places[static_cast<int>(r)]
                                                          : Progress{standing[r].step.value() + 1, {}, {}}});
    Feed(Tick{});
  }
}

void Bench::CommitAll(uint64_t step) {
  for (Standing& at : standing) at = {GateState::kCommitted, kintsugi::Step(step), true};
}

std::vector<PhaseOrder> Bench::Orders(Phase phase, int rank) const {
  std::vector<PhaseOrder> orders;
  for (const auto& [to, order] : Sent<PhaseOrder>())
    if (order.phase == phase && to == Rank(rank)) orders.push_back(order);
  return orders;
}

std::optional<RunEnded> Bench::Ended() const {
  const auto ended = All<RunEnded>();
  if (ended.empty()) return std::nullopt;
  return ended.front();
}

std::set<int> Bench::Killed() const {
  std::set<int> killed;
  for (const KillProcess& kill : All<KillProcess>()) killed.insert(kill.rank.value());
  return killed;
}

}  // namespace kintsugi::core
