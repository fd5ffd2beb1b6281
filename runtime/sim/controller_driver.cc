// The controller's driver: frames in, actions out. Mirrors runtime/controller.
#include "runtime/sim/cluster.h"
#include "runtime/sim/describe.h"
#include "runtime/wire/codec.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::Feed(ControllerEvent event) {
  if (world_.seat().down) return;
  if (!world_.hook) return StepController(event);
  std::vector<ControllerEvent> after;
  world_.hook->BeforeController(world_.core(), &event, &after);
  StepController(event);
  for (const ControllerEvent& e : after) StepController(e);
}

void Cluster::StepController(const ControllerEvent& event) {
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

void Cluster::AnswerWaitingJoins() {
  if (world_.seat().waiting_joins.empty() || world_.seat().joining || world_.seat().down || world_.core().taking_over())
    return;
  for (const auto& [link, join] : std::exchange(world_.seat().waiting_joins, {}))
    if (link->controller_open) OnFrame(link, join);
}

void Cluster::Answer(const std::vector<StoreTable::Answer>& answers) {
  for (const StoreTable::Answer& answer : answers)
    SendDown({world_.core().term(), world_.core().generation(), answer.rank, answer.incarnation}, answer.reply);
}

void Cluster::Act(const ControllerAction& action) {
  if (const auto* send = std::get_if<Send>(&action)) {
    election_checker_.CheckActs(*send, table_checker_.phase());
    table_checker_.CheckSend(*send);
    SendDown(send->header, send->message);
  } else if (const auto* spawn = std::get_if<SpawnProcess>(&action)) {
    table_checker_.CheckSpawn(spawn->rank, spawn->incarnation);
    launchers_.empty() ? Spawn(spawn->rank, spawn->incarnation) : SpawnThere(spawn->rank, spawn->incarnation);
  } else if (const auto* kill = std::get_if<KillProcess>(&action)) {
    table_checker_.CheckKill(*kill);
    Kill(*kill);
  } else if (const auto* transition = std::get_if<Transition>(&action)) {
    world_.Log("== " + std::string(PhaseName(transition->from)) + " -> " + std::string(PhaseName(transition->to)) +
               " gen " + transition->generation.ToString() + ": " + transition->reason);
    table_checker_.CheckTransition(*transition);
    if (transition->from == Phase::kConfirm && transition->to == Phase::kRunning) ++world_.outcome.healed;
    if (transition->to == Phase::kRunning) world_.course.ever_running = true;
    OnPhase(transition->to);
    if (transition->to == Phase::kRunning) spares_.Begin();
    if (transition->to == Phase::kRunning && world_.plan.elections) NoteBegun();
  } else if (const auto* closed = std::get_if<IncidentClosed>(&action)) {
    const IncidentRecord& record = closed->record;
    world_.outcome.attempts_max = std::max(world_.outcome.attempts_max, record.attempts);
    if (record.rung) world_.outcome.rungs.insert(*record.rung);
    if (record.resumed_at) world_.outcome.recoveries.push_back(*record.resumed_at - record.fault_at);
  } else if (const auto* ready = std::get_if<core::CheckpointReady>(&action)) {
    world_.seat().checkpoints_told.push_back({ready->step, ready->directory});
  } else if (const auto* ended = std::get_if<RunEnded>(&action)) {
    world_.Log("ended " + std::to_string(ended->exit_code) + ": " + ended->text);
    if (world_.seat().ended) world_.Break(Promise::kTable, "the run ended twice");
    end_checker_.CheckNothingHeldIsLost(*ended);
    world_.seat().ended = *ended;
    if (world_.plan.elections) EndSeat(world_.seat());
    if (!world_.plan.elections && world_.plan.policy.can_spawn) world_.In(kLeaveLimit, [this] { EndStragglers(); });
  } else if (const auto* notice = std::get_if<Notice>(&action)) {
    world_.Log("notice rank " + notice->rank.ToString() + ": " + notice->text);
  }
}

// Its launcher ends what is still there; but whoever nothing has struck leaves when it is told to.
void Cluster::EndStragglers() {
  for (Process& p : world_.processes.all())
    if (p.alive && (world_.losses.struck(p.rank.value()) || world_.core().term().number > 1))
      processes_.Die(&p, "killed by SIGKILL");
}

void Cluster::Kill(const KillProcess& kill) {
  world_.Log("kill rank " + kill.rank.ToString() + " inc " + kill.incarnation.ToString() + ": " + kill.reason);
  world_.seat().given_up.insert({kill.rank, kill.incarnation});
  Link*& link = world_.seat().links[static_cast<size_t>(kill.rank.value())];
  if (link && link->incarnation == kill.incarnation) {
    Link* const closing = std::exchange(link, nullptr);
    OnLost(closing, true);
  }
  if (!launchers_.empty()) {  // a node that is away is told when it comes back
    SendToNode(world_.SeatedNodeOf(kill.rank), wire::KillWorker{kill.rank, kill.incarnation, kill.reason});
    return;
  }
  if (!world_.plan.policy.can_spawn)
    return;  // nobody here can reach the process: it joins again, is refused and leaves
  Process* const p = world_.processes.Newest(kill.rank);
  if (p && p->incarnation == kill.incarnation && !p->alive &&
      world_.plan.policy.needs_consent)  // it went with its host
    return world_.In(world_.Between(10, 2000), [this, rank = kill.rank, incarnation = kill.incarnation] {
      Feed(ProcessExited{rank, incarnation, "had ended", std::nullopt});
    });
  if (p && p->incarnation == kill.incarnation)
    world_.In(world_.Between(10, 2000), [this, p] { processes_.Die(p, "killed by SIGKILL"); });
}

void Cluster::SendDown(const Header& header, const ControllerMessage& message) {
  if (const auto* reply = std::get_if<JoinReply>(&message)) return AnswerJoin(header, *reply);
  Link* const link = world_.seat().links[static_cast<size_t>(header.rank.value())];
  if (!link || link->incarnation != header.incarnation) return;
  if (world_.log.on()) world_.Log("   -> " + Describe(header, message));
  network_.Put(link, false, wire::Encode(kJob, header, message));
}

void Cluster::AnswerJoin(const Header& header, const JoinReply& reply) {
  Link* const link = std::exchange(world_.seat().joining, nullptr);
  if (!link) return;
  if (world_.log.on()) world_.Log("   -> " + Describe(header, ControllerMessage(reply)));
  network_.Put(link, false, wire::Encode(kJob, header, ControllerMessage(reply)));
  if (!reply.accepted) return OnLost(link, true);
  link->joined = true;
  link->incarnation = header.incarnation;
  Link* const before = std::exchange(world_.seat().links[static_cast<size_t>(header.rank.value())], link);
  if (before && before != link) OnLost(before, true);
}

// The controller's end is gone: what is on its way to it is lost. `told`: the other end will learn of it.
void Cluster::OnLost(Link* link, bool told) {
  if (link->seat && link->seat != stepped_) return CloseAtSeat(link, told);
  if (!std::exchange(link->controller_open, false)) return;
  if (told) network_.Put(link, false, "");
  Link*& current = world_.seat().links[static_cast<size_t>(link->rank.value())];
  if (current != link) return;
  current = nullptr;
  Feed(ConnectionClosed{link->rank, link->incarnation});
}

void Cluster::OnFrame(Link* link, const std::string& bytes) {
  Result<wire::AgentFrame> frame = wire::DecodeFromAgent(kJob, bytes);
  if (!frame.ok()) return world_.Log("frame refused: " + frame.status().message());
  const Header& header = frame->header;
  const auto& message = std::get<AgentMessage>(frame->message);
  if (const auto* join = std::get_if<JoinRequest>(&message)) {
    if (header.rank.value() < 0 || header.rank.value() >= world_.plan.policy.world_size ||
        (link->joined && link->rank != header.rank))
      return OnLost(link, true);
    if (world_.log.on()) world_.Log("<-    " + Describe(header, message));
    world_.seat().joining = link;
    Feed(FromAgent{header, *join});
    Link* const unanswered = std::exchange(world_.seat().joining, nullptr);
    if (!unanswered || world_.seat().down) return;
    if (header.term > world_.core().term()) return OnLost(unanswered, true);
    world_.seat().waiting_joins.emplace_back(unanswered, bytes);
    return AnswerWaitingJoins();
  }
  // A connection speaks for the life it joined as, and for no other.
  if (!link->joined || link->rank != header.rank || link->incarnation != header.incarnation)
    return world_.Log("frame refused: it speaks for rank " + header.rank.ToString());
  OnAgentMessage(header, message);
}

void Cluster::OnAgentMessage(const Header& header, const AgentMessage& message) {
  const bool beat = std::holds_alternative<core::Beat>(message);
  if (world_.log.on() && !beat) world_.Log("<-    " + Describe(header, message));
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

void Cluster::TakeHeld(const wire::NodeHeld& told) {
  if (!world_.plan.policy.adopts || world_.seat().ended) return;
  const Result<wire::AgentFrame> frame = wire::DecodeFromAgent(kJob, told.ready);
  if (frame.ok()) Feed(FromAgent{frame->header, std::get<core::AgentMessage>(frame->message)});
  Feed(core::StateHeld{told.rank, told.held});
}

}  // namespace kintsugi::sim
