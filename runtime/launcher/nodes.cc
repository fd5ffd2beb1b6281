// The nodes of a run, as its leader sees them.
#include <algorithm>
#include <set>
#include <utility>

#include "runtime/base/overloaded.h"
#include "runtime/launcher/leader.h"
#include "runtime/launcher/node_parts.h"
#include "runtime/wire/codec.h"

namespace kintsugi {
namespace {

constexpr int kManyNodes = 256;

std::string Seconds(Duration duration) {
  return std::to_string(static_cast<int64_t>(ToMilliseconds(duration) / 1000)) + " s";
}

}  // namespace

std::string Leader::NodeName(int node) const { return "node " + std::to_string(NodeNumber(run(), node)); }

std::string Leader::RanksOf(int block) const {
  return std::to_string(block * LocalRanks()) + " to " + std::to_string((block + 1) * LocalRanks() - 1);
}

void Leader::StartWhenComplete() {
  if (started_ || ended_) return;
  // Who takes over listens at once: nodes come while it does.
  for (const Node& node : nodes_)
    if (!run().policy.takes_over && HasRanks(node.number) && !hub_->connected(node.number)) return;
  started_ = true;
  TellPlaces();
  controller_->Start();
  for (const auto& [block, moved] : placement_.moved())
    controller_->Feed(core::RanksMoved{Rank(block * LocalRanks()), LocalRanks(), NodeNumber(run(), moved.node)});
  if (ties_) controller_->Feed(core::TieRuleTaken{tie_rule_});
}

// A run begins with all of its nodes. Later a lost one may come back, itself or started anew, until the wait is over;
// then what it was to start fails, and the ladder goes on.
void Leader::CheckNodes() {
  const TimePoint now = SteadyClock::SteadyNow();
  const Duration limit = started_ ? run().node_wait : run().policy.join_timeout;
  for (Node& node : nodes_) {
    if (!HasRanks(node.number) || hub_->connected(node.number) || now - node.lost_at < limit) continue;
    if (!started_) {
      result_.exit_code = core::kExitStartup;
      result_.text = NodeName(node.number) + " did not come within " + Seconds(limit);
      ended_ = true;
      return on_done_();
    }
    if (SpareHere()) continue;  // which takes its ranks over as soon as the run waits for nothing else
    SayGone(node);
    // What waits for the node, and what it was told when its connection was dead already and nobody knew. Fed one at a
    // time: the controller may ask for the next process of the rank at once.
    node.to_spawn.clear();
    const int first = FirstOf(node.number);
    for (int r = first; r < first + LocalRanks() && !ended_; ++r) {
      const auto& member = controller_->core().members()[static_cast<size_t>(r)];
      if (member.life == core::ControllerCore::Life::kStarting) OnNotBegun(Rank(r), member.incarnation);
    }
    if (ended_) return;
  }
}

std::string Leader::WhyNotBack(int node) const {
  return NodeName(node) + " did not come back within " + Seconds(run().node_wait);
}

// A rank of it that must be replaced waits for it; nothing else here can start one on that host.
void Leader::SayAway(Node& node) {
  node.said_away = true;
  const int first = FirstOf(node.number);
  const std::string number = std::to_string(NodeNumber(run(), node.number));
  Say(LogLevel::kWarning,
      LogLine("node_lost",
              {{"node", number},
               {"address", node.place.address},
               {"ranks", std::to_string(first) + "-" + std::to_string(first + LocalRanks() - 1)},
               {"waits", SpareHere() ? Seconds(run().spare_after) + ", then a spare node takes its ranks over"
                                     : Seconds(run().node_wait) + " for " + NodeName(node.number)},
               {"remedy", "where its launcher has ended, start it again there with the same command (--node-rank " +
                              number + ")"}}));
}

void Leader::SayGone(Node& node) {
  if (std::exchange(node.said_gone, true)) return;
  Say(LogLevel::kWarning,
      LogLine("node_gone",
              {{"node", std::to_string(NodeNumber(run(), node.number))},
               {"why", WhyNotBack(node.number)},
               {"then", "nothing is started on it any more; `kintsugi explain` tells what is done instead"}}));
}

std::vector<int> Leader::NodesAway() const {
  std::vector<int> away;
  for (const Node& node : nodes_)
    if (!hub_->connected(node.number) && (node.seen || node.number < run().nodes + run().controllers))
      away.push_back(node.number);
  return away;
}

std::vector<int> Leader::SpareNodes() const {
  std::vector<int> spare;
  for (const Node& node : nodes_)
    if (hub_->connected(node.number) && IsSpare(node.number)) spare.push_back(node.number);
  return spare;
}

bool Leader::SpareHere() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [this](const Node& node) { return hub_->connected(node.number) && IsSpare(node.number); });
}

// It is told with every welcome; and who has ranks decides even splits.
void Leader::TakePlacement() {
  hub_->SetPlacement(placement_);
  if (!ties_) return;
  std::set<int> voters;
  for (int block = 0; block < run().nodes; ++block) voters.insert(placement_.NodeOf(block));
  for (int controller = 0; controller < run().controllers; ++controller) voters.insert(run().nodes + controller);
  ties_->SetVoters(std::move(voters));
}

// Every node hears of the move before the generation that begins with it (placement.h), and the spare before the
// processes that it is to start.
void Leader::MoveBlocks() {
  if (!started_ || ended_ || !hub_ || !SpareHere()) return;
  std::vector<core::Host> hosts;
  for (const Node& node : nodes_)
    if (HasRanks(node.number) || IsSpare(node.number))
      hosts.push_back({node.number, hub_->connected(node.number), node.lost_at});
  const std::optional<core::Takeover> due = core::NextTakeover(
      placement_, run().nodes, hosts, run().spare_after, SteadyClock::SteadyNow(),
      [this](int block) { return controller_->core().MayMove(Rank(block * LocalRanks()), LocalRanks()); });
  if (!due) return;
  const Rank first(due->block * LocalRanks());
  placement_.Move(options_.term.number, due->block, due->to, running_generation_);
  TakePlacement();
  NodeAt(due->from).to_spawn.clear();
  Say(LogLevel::kWarning, LogLine("spare_node_takes_over", {{"node", std::to_string(NodeNumber(run(), due->to))},
                                                            {"address", NodeAt(due->to).place.address},
                                                            {"ranks", RanksOf(due->block)},
                                                            {"of", NodeName(due->from) + ", which is away"},
                                                            {"then", "that node is a spare, should it come back"}}));
  for (const Node& node : nodes_)
    if (hub_->connected(node.number)) hub_->Send(node.number, wire::NodeBlocks{placement_});
  controller_->Feed(core::SparesWaiting{first, LocalRanks(), spares_[due->to]});
  controller_->Feed(core::RanksMoved{first, LocalRanks(), NodeNumber(run(), due->to)});
}

// Of a node that has no ranks, whatever it had before.
void Leader::EndWhatRunsThere(int node, const wire::NodeHello& hello) {
  if (!IsSpare(node)) return;
  log_->Write(LogLevel::kInfo,
              LogLine("spare_node", {{"node", std::to_string(NodeNumber(run(), node))}, {"address", hello.address}}));
  for (const wire::WorkerLife& life : hello.lives)
    hub_->Send(node, wire::KillWorker{life.rank, life.incarnation, "another node has taken the rank over"});
}

// Within the silence limit a node of a large run hears its leader twice, of any other four times: answering is a third
// of what a thousand nodes cost.
Duration Leader::PulseEvery() const { return NodeBeat(run().policy) * (run().nodes > kManyNodes ? 2 : 1); }

void Leader::Pulse(Node& node) {
  node.pulsed_at = SteadyClock::SteadyNow();
  hub_->Send(node.number,
             wire::NodePulse{began_, checkpoints_, running_generation_, ties_ ? ties_->order() : core::TieOrder{}});
}

// A node that tells its pages is answered at once, which costs less than a round of all; here are those that have
// nothing to tell.
void Leader::PulseNodes(Duration silent_for) {
  const TimePoint now = SteadyClock::SteadyNow();
  for (Node& node : nodes_)
    if (hub_->connected(node.number) && now - node.pulsed_at >= silent_for) Pulse(node);
}

// What is in the sums need not be kept by others any more. One that has just come is told all; the others what is new.
void Leader::TellTotals() {
  const core::LedgerTotals& folded = controller_->reports().folded();
  const auto tell = [&](int node, uint64_t from) {
    wire::KeepTotals totals{folded, from};
    totals.totals.curve.erase(totals.totals.curve.begin(), totals.totals.curve.begin() + static_cast<ptrdiff_t>(from));
    hub_->Send(node, totals);
  };
  const bool shrunk = folded.curve_every != told_curve_every_ || folded.curve.size() < told_curve_;
  for (Node& node : nodes_) {
    if (!hub_->connected(node.number)) continue;
    const bool knows = std::exchange(node.knows_totals, true);
    tell(node.number, knows && !shrunk ? told_curve_ : 0);
  }
  told_curve_ = folded.curve.size();
  told_curve_every_ = folded.curve_every;
}

void Leader::TakeTieRule(core::TieRule rule) {
  tie_rule_ = rule;
  if (started_ && !ended_) controller_->Feed(core::TieRuleTaken{rule});
}

void Leader::TakeWord(TimePoint until) {
  if (started_ && !ended_) controller_->Feed(core::WitnessWord{until});
}

void Leader::WantTieRule(std::optional<core::TieRule> wanted) {
  if (!ties_) return;
  const core::TieRule before = ties_->order().rule;
  if (ties_->Decide(wanted).rule != before) PulseNodes(Duration());
}

// Where each launcher hears the others: all of them to whoever has come, and to the others what has changed. One that
// comes alone is told at once, the next ones together, at the next poll: a thousand nodes that come back would else be
// told of each other one by one.
void Leader::TellPlaces() {
  if (newcomers_.empty() || !started_) return;
  wire::NodePlaces all, changed;
  for (const Node& node : nodes_) {
    if (node.place.port > 0) all.places.push_back(node.place);
    if (const auto newcomer = newcomers_.find(node.number); newcomer != newcomers_.end() && newcomer->second)
      changed.places.push_back(node.place);
  }
  for (const Node& node : nodes_) {
    if (!hub_->connected(node.number)) continue;
    if (newcomers_.count(node.number))
      hub_->Send(node.number, all);
    else if (!changed.places.empty())
      hub_->Send(node.number, changed);
  }
  newcomers_.clear();
}

void Leader::OnNodeJoined(int node, const wire::NodeHello& hello) {
  if (std::exchange(NodeAt(node).said_away, false)) {
    const auto away_ms = static_cast<int64_t>(ToMilliseconds(SteadyClock::SteadyNow() - NodeAt(node).lost_at));
    Say(LogLevel::kWarning, LogLine("node_back", {{"node", std::to_string(NodeNumber(run(), node))},
                                                  {"away_ms", std::to_string(away_ms)}}));
  }
  NodeAt(node).said_gone = false;
  NodeAt(node).seen = true;
  wire::NodePlace& place = NodeAt(node).place;
  const bool moved = place.address != hello.address || place.port != hello.port;
  place = {node, hello.address, hello.port};
  newcomers_[node] = newcomers_[node] || moved;
  NodeAt(node).knows_totals = false;
  if (ended_) return void(hub_->Send(node, EndOrder()));  // came back too late
  if (ties_) ties_->OnAway(node);
  if (!started_) return StartWhenComplete();
  if (std::exchange(tells_at_once_, false)) TellPlaces();
  if (!HasRanks(node)) return EndWhatRunsThere(node, hello);
  for (const wire::NodeHeld& held : hello.held) OnNodeHeld(node, held);  // before their ends are told
  std::map<Rank, wire::WorkerLife> lives;
  for (const wire::WorkerLife& life : hello.lives)
    if (OfNode(life.rank, node)) lives[life.rank] = life;
  controller_->core().taking_over() ? FoundLives(node, lives) : ComparedLives(node, lives);
}

// With what the lost process registered: whoever takes over may hear of it from nobody else.
void Leader::OnNodeHeld(int node, const wire::NodeHeld& told) {
  if (!OfNode(told.rank, node) || ended_) return;
  const Result<wire::AgentFrame> frame = wire::DecodeFromAgent(run().job, told.ready);
  const auto* message = frame.ok() ? std::get_if<core::AgentMessage>(&frame->message) : nullptr;
  if (message && std::holds_alternative<core::Ready>(*message) && frame->header.rank == told.rank)
    controller_->Feed(core::FromAgent{frame->header, *message});
  OnHeld(told.rank, told.held);
}

// The controller knows nothing yet: what runs there is what there is.
void Leader::FoundLives(int node, const std::map<Rank, wire::WorkerLife>& lives) {
  for (int r = FirstOf(node); r < FirstOf(node) + LocalRanks() && !ended_; ++r) {
    const auto found = lives.find(Rank(r));
    if (found != lives.end())
      OnStarting(Rank(r), found->second.incarnation, found->second.armed);
    else
      controller_->Feed(core::ProcessExited{Rank(r), Incarnation(), "had ended", std::nullopt});
  }
}

// What ended while nobody could tell; then what began or is no longer wanted.
void Leader::ComparedLives(int node, const std::map<Rank, wire::WorkerLife>& lives) {
  using Life = core::ControllerCore::Life;
  const auto& now = controller_->core().members();
  // As they are before the first of them is told of: what that sets off changes them.
  const int first = FirstOf(node);
  const std::vector<core::ControllerCore::Member> members(now.begin() + first, now.begin() + first + LocalRanks());
  for (int r = first; r < first + LocalRanks(); ++r) {
    const Rank rank(r);
    const auto& member = members[static_cast<size_t>(r - first)];
    const auto found = lives.find(rank);
    const bool runs = found != lives.end() && found->second.incarnation == member.incarnation;
    const bool expected =
        (member.life == Life::kReady || member.life == Life::kStarting) && !NodeAt(node).to_spawn.count(rank);
    if (found != lives.end() && !(runs && expected))
      hub_->Send(node, wire::KillWorker{rank, found->second.incarnation, "was given up while its node was away"});
    else if (member.unconfirmed && !ended_)
      controller_->Feed(core::ProcessExited{rank, *member.unconfirmed, "had ended", std::nullopt});
    if (!expected || runs || ended_) continue;
    if (found != lives.end())  // the one before it still runs: that it was never begun is no end of that one
      controller_->Feed(core::ProcessExited{rank, member.incarnation, "was not begun: an earlier process still runs",
                                            std::nullopt, true});
    else
      OnExited(rank, member.incarnation, "had ended when " + NodeName(node) + " came back", SteadyClock::SteadyNow(),
               std::nullopt);
  }
  for (const auto& [rank, incarnation] : std::exchange(NodeAt(node).to_spawn, {})) Spawn(rank, incarnation);
}

void Leader::OnNodeLost(int node) {
  ForgetAsked(node);
  NodeAt(node).lost_at = SteadyClock::SteadyNow();
  if (ties_) ties_->OnAway(node);
  SetSpares(node, 0);
  if (IsSpare(node) && !ended_)
    Say(LogLevel::kWarning, LogLine("spare_node_lost", {{"node", std::to_string(NodeNumber(run(), node))}}));
  if (HasRanks(node) && started_ && !ended_) SayAway(NodeAt(node));
  StopIfDone();
}

void Leader::OnNodeMessage(int node, const wire::NodeMessage& message) {
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
                   // Nodes keep the beat only roughly.
                   if (now - NodeAt(node).pulsed_at >= PulseEvery() - NodeBeat(run().policy) / 2) Pulse(NodeAt(node));
                 },
                 [&](const wire::WorkerReport& m) {
                   if (m.rank.value() >= run().policy.world_size) return;
                   Record(m.rank, m.step, m.loss, m.samples);
                   // Should this node be lost, and the leader with it, the next one still has it.
                   const int heir = placement_.NodeOf((BlockOf(node).value_or(0) + 1) % run().nodes);
                   if (heir != node) hub_->Send(heir, wire::KeepReport{m});
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
                 [&](const wire::NodeHeld& m) { OnNodeHeld(node, m); },
                 [&](const wire::TieRuleKept& m) {
                   if (ties_) ties_->OnTaken(node, m.number);
                 },
                 [&](const wire::NodeStop&) {
                   log_->Write(LogLevel::kWarning, LogLine("stop_requested", {{"node", std::to_string(node)}}));
                   Stop();
                 },
                 [&](const wire::NodeAsks& m) {
                   OnRequest(m.request, [this, node, id = m.id](std::string answer) {
                     hub_->Send(node, wire::AnswerNode{id, std::move(answer)});
                   });
                 },
                 [&](const wire::NodeAnswers& m) {
                   const auto asked = asked_nodes_.find(m.id);
                   if (asked == asked_nodes_.end() || asked->second.node != node) return;
                   const auto respond = std::move(asked->second.respond);
                   asked_nodes_.erase(asked);
                   respond(m.answer);
                 },
                 [&](const wire::NodeInject& m) {
                   if (OfNode(m.rank, node)) controller_->Feed(core::OperatorInject{m.rank, m.injection});
                 },
                 [&](const auto&) {},  // channels and hellos: the hub's; votes: no business of a leader
             },
             message);
}

}  // namespace kintsugi
