#include "runtime/sim/controllers.h"

#include <algorithm>

#include "runtime/base/overloaded.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/describe.h"

namespace kintsugi::sim {

void Controllers::Begin() {
  const std::vector<ControllerAction> begun = world_.core().Start(world_.Now());
  if (world_.hook) world_.hook->OnStart(world_.Now(), begun);
  for (const ControllerAction& action : begun) Act(action);
  Answer(world_.seat().store.Advance(world_.core().generation()));
}

void Controllers::BeginTakeover() {
  for (const ControllerAction& action : world_.core().Start(world_.Now())) Act(action);
}

void Controllers::Feed(ControllerEvent event) {
  if (world_.seat().down) return;
  if (!world_.hook) return Step(event);
  std::vector<ControllerEvent> after;
  world_.hook->BeforeController(world_.core(), &event, &after);
  Step(event);
  for (const ControllerEvent& e : after) Step(e);
}

void Controllers::Step(const ControllerEvent& event) {
  std::vector<ControllerAction> actions = world_.core().Step(event, world_.Now());
  if (world_.hook) world_.hook->OnStep(event, world_.Now(), actions);
  if (world_.core().generation() != world_.seat().stored_generation) {
    world_.seat().stored_generation = world_.core().generation();
    Answer(world_.seat().store.Advance(world_.seat().stored_generation));
  }
  if (world_.hook) world_.hook->AfterController(world_.core(), event, &actions);
  table_checker_.CheckActions(actions.size());
  for (const ControllerAction& action : actions) Act(action);
  table_checker_.CheckWaits();
  AnswerWaitingJoins();
}

void Controllers::AnswerWaitingJoins() {
  if (world_.seat().waiting_joins.empty() || world_.seat().joining || world_.seat().down || world_.core().taking_over())
    return;
  for (const auto& [connection, join] : std::exchange(world_.seat().waiting_joins, {}))
    if (connection->controller_open) OnFrame(connection, join);
}

void Controllers::Answer(const std::vector<StoreTable::Answer>& answers) {
  for (const StoreTable::Answer& answer : answers)
    SendDown({world_.core().term(), world_.core().generation(), answer.rank, answer.incarnation}, answer.reply);
}

void Controllers::Act(const ControllerAction& action) {
  Outcome& outcome = world_.outcome;
  std::visit(Overloaded{
                 [this](const Send& a) {
                   election_checker_.CheckActs(a, table_checker_.phase());
                   table_checker_.CheckSend(a);
                   SendDown(a.header, a.message);
                 },
                 [this](const SpawnProcess& a) {
                   table_checker_.CheckSpawn(a.rank, a.incarnation);
                   hosts_.Spawn(a.rank, a.incarnation);
                 },
                 [this](const KillProcess& a) {
                   NoteLate(a);
                   table_checker_.CheckKill(a);
                   Kill(a);
                 },
                 [this](const Transition& a) { Move(a); },
                 [this](const core::NodeCutOff& a) {
                   world_.Log("the node of rank " + a.first.ToString() + " is cut off: " + a.text);
                   hosts_.CutOff(a.first);
                 },
                 [this](const core::ReplaceRefused& a) {
                   world_.Log("not replaced: rank " + a.rank.ToString() + ": " + a.why);
                 },
                 [this](const core::ScaleRefused& a) {
                   world_.Log("no world of " + std::to_string(a.ranks) + " ranks: " + a.why);
                 },
                 [this](const core::HangExplained& a) { CheckBlame(a.blame); },
                 [this](const core::CrewChanged& a) {
                   world_.Log("the run goes on with " + std::to_string(a.ranks.size()) + " ranks, " +
                              std::to_string(a.left.size()) + " left" +
                              (a.came.empty() ? "" : ", " + std::to_string(a.came.size()) + " came"));
                   for (Rank rank : a.left) world_.losses.Lose(rank.value());  // what they held went with them
                   table_checker_.CheckCrew(a);
                 },
                 [this](const core::RoadClosed& a) {
                   world_.Log("rank " + a.from.ToString() + " cannot reach rank " + a.to.ToString());
                 },
                 [this, &outcome](const IncidentClosed& a) {
                   table_checker_.CheckIncident(a.record);
                   outcome.attempts_max = std::max(outcome.attempts_max, a.record.attempts);
                   if (a.record.rung) outcome.rungs.insert(*a.record.rung);
                   if (a.record.resumed_at) outcome.recoveries.push_back(*a.record.resumed_at - a.record.fault_at);
                 },
                 [this](const core::CheckpointReady& a) {
                   world_.seat().checkpoints_told.push_back({a.step, a.directory});
                 },
                 [this](const RunEnded& a) { End(a); },
                 [this](const Notice& a) { world_.Log("notice rank " + a.rank.ToString() + ": " + a.text); },
                 [](const auto&) {},  // for observers
             },
             action);
}

// A road may be disturbed for longer than a save may take.
void Controllers::NoteLate(const KillProcess& kill) {
  if (kill.reason.find("was not finished in time") != std::string::npos && world_.losses.struck(kill.rank.value()))
    world_.losses.Lose(kill.rank.value());
}

// Answers are taken at different instants and travel: who has only just begun to wait was late indeed.
void Controllers::CheckBlame(const core::Blame& blame) {
  world_.Log("a hang is explained: " + blame.text);
  constexpr Duration kJustCome = std::chrono::milliseconds(1500);
  if (blame.kind != core::BlameKind::kMissing) return;
  for (const Rank rank : blame.ranks) {
    const Process* const p = world_.processes.Newest(rank);
    if (p && p->alive && !p->frozen && p->blocked_in && p->blocked_in == p->entered &&
        world_.Now() - p->entered_at > kJustCome)
      world_.Break(Promise::kInnocent,
                   "rank " + rank.ToString() + " waits for others, and is said to keep them waiting: " + blame.text);
  }
}

void Controllers::Move(const Transition& transition) {
  world_.Log("== " + std::string(PhaseName(transition.from)) + " -> " + std::string(PhaseName(transition.to)) +
             " gen " + transition.generation.ToString() + ": " + transition.reason);
  table_checker_.CheckTransition(transition);
  if (const auto& incident = world_.core().incident();
      transition.from == Phase::kStop && transition.to == Phase::kClean && incident &&
      (incident->rung == Rung::kReload || incident->rung == Rung::kShrink))
    end_checker_.CheckGoesBack(incident->step->value(), incident->rung == Rung::kShrink);
  if (transition.from == Phase::kConfirm && transition.to == Phase::kRunning) ++world_.outcome.healed;
  if (transition.to == Phase::kRunning) world_.course.ever_running = true;
  watch_.OnPhase(transition.to);
  hosts_.OnPhase(transition.to);
}

void Controllers::End(const RunEnded& ended) {
  world_.Log("ended " + std::to_string(ended.exit_code) + ": " + ended.text);
  if (world_.seat().ended) world_.Break(Promise::kTable, "the run ended twice");
  end_checker_.CheckNothingHeldIsLost(ended);
  world_.seat().ended = ended;
  world_.course.ended_at = world_.Now();
  hosts_.OnRunEnded();
}

void Controllers::Kill(const KillProcess& kill) {
  world_.Log("kill rank " + kill.rank.ToString() + " inc " + kill.incarnation.ToString() + ": " + kill.reason);
  world_.seat().given_up.insert({kill.rank, kill.incarnation});
  Connection*& connection = world_.seat().connections[static_cast<size_t>(kill.rank.value())];
  if (connection && connection->incarnation == kill.incarnation) {
    Connection* const closing = std::exchange(connection, nullptr);
    OnLost(closing, true);
  }
  hosts_.Kill(kill);
}

template <typename Message>
void Controllers::LogMessage(const char* way, const Header& header, const Message& message) const {
  if (!world_.log.on()) return;
  world_.Log(way + wire::Describe(header, message, world_.core().term(), wire::WordWriter{world_.start}));
}

void Controllers::SendDown(const Header& header, const ControllerMessage& message) {
  if (const auto* reply = std::get_if<JoinReply>(&message)) return AnswerJoin(header, *reply);
  Connection* const connection = world_.seat().connections[static_cast<size_t>(header.rank.value())];
  if (!connection || connection->incarnation != header.incarnation) return;
  LogMessage("   -> ", header, message);
  network_.Put(connection, false, wire::Encode(kJob, header, message));
}

void Controllers::AnswerJoin(const Header& header, const JoinReply& reply) {
  Connection* const connection = std::exchange(world_.seat().joining, nullptr);
  if (!connection) return;
  const ControllerMessage message(reply);
  LogMessage("   -> ", header, message);
  network_.Put(connection, false, wire::Encode(kJob, header, message));
  if (!reply.accepted) return OnLost(connection, true);
  connection->joined = true;
  connection->incarnation = header.incarnation;
  Connection* const before =
      std::exchange(world_.seat().connections[static_cast<size_t>(header.rank.value())], connection);
  if (before && before != connection) OnLost(before, true);
}

void Controllers::OnLost(Connection* connection, bool told) {
  if (relays_.RelayLoss(connection, told)) return;
  if (!std::exchange(connection->controller_open, false)) return;
  if (told) network_.Put(connection, false, "");
  Connection*& current = world_.seat().connections[static_cast<size_t>(connection->rank.value())];
  if (current != connection) return;
  current = nullptr;
  Feed(ConnectionClosed{connection->rank, connection->incarnation});
}

void Controllers::OnFrame(Connection* connection, const std::string& bytes) {
  Result<wire::AgentFrame> frame = wire::DecodeFromAgent(kJob, bytes);
  if (!frame.ok()) return world_.Log("frame refused: " + frame.status().message());
  const Header& header = frame->header;
  const auto& message = std::get<AgentMessage>(frame->message);
  if (const auto* join = std::get_if<JoinRequest>(&message)) {
    if (header.rank.value() < 0 || header.rank.value() >= world_.plan.policy.world_size ||
        (connection->joined && connection->rank != header.rank))
      return OnLost(connection, true);
    LogMessage("<-    ", header, message);
    world_.seat().joining = connection;
    Feed(FromAgent{header, *join});
    Connection* const unanswered = std::exchange(world_.seat().joining, nullptr);
    if (!unanswered || world_.seat().down) return;
    if (header.term > world_.core().term()) return OnLost(unanswered, true);
    world_.seat().waiting_joins.emplace_back(unanswered, bytes);
    return AnswerWaitingJoins();
  }
  // A connection speaks for the life it joined as, and for no other.
  if (!connection->joined || connection->rank != header.rank || connection->incarnation != header.incarnation)
    return world_.Log("frame refused: it speaks for rank " + header.rank.ToString());
  OnAgentMessage(header, message);
}

void Controllers::OnAgentMessage(const Header& header, const AgentMessage& message) {
  if (!std::holds_alternative<core::Beat>(message)) LogMessage("<-    ", header, message);
  Header stored = header;
  if (world_.hook) world_.hook->BeforeStore(world_.seat().stored_generation, &stored);
  if (const auto* set = std::get_if<StoreSet>(&message)) return Answer(world_.seat().store.Set(stored, *set));
  if (const auto* get = std::get_if<StoreGet>(&message)) return Answer(world_.seat().store.Get(stored, *get));
  const auto* done = std::get_if<PhaseDone>(&message);
  if (std::holds_alternative<Published>(message) ||
      (done && done->phase == Phase::kRename && done->code == StatusCode::kOk))
    world_.course.checkpoint_known =
        world_.course.checkpoint_known ||
        (!world_.seat().ended && (!done || !world_.seat().given_up.count({header.rank, header.incarnation})));
  Feed(FromAgent{header, message});
}

void Controllers::TakeHeld(const wire::NodeHeld& told) {
  if (!world_.plan.policy.adopts || world_.seat().ended) return;
  const Result<wire::AgentFrame> frame = wire::DecodeFromAgent(kJob, told.ready);
  if (frame.ok()) Feed(FromAgent{frame->header, std::get<core::AgentMessage>(frame->message)});
  Feed(core::StateHeld{told.rank, told.held});
}

}  // namespace kintsugi::sim
