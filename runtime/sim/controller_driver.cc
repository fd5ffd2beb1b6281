// The controller's driver: frames in, actions out. Mirrors runtime/controller.
#include "runtime/sim/cluster.h"
#include "runtime/sim/describe.h"
#include "runtime/wire/codec.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::Feed(ControllerEvent event) {
  if (controller_down_) return;
  if (!hook_) return StepController(event);
  std::vector<ControllerEvent> after;
  hook_->BeforeController(*core_, &event, &after);
  StepController(event);
  for (const ControllerEvent& e : after) StepController(e);
}

void Cluster::StepController(const ControllerEvent& event) {
  std::vector<ControllerAction> actions = core_->Step(event, Now());
  if (hook_) hook_->OnStep(event, Now(), actions);
  if (core_->generation() != stored_generation_) {
    stored_generation_ = core_->generation();
    Answer(store_.Advance(stored_generation_));
  }
  if (hook_) hook_->AfterController(*core_, event, &actions);
  // What one event sets off is bounded by the world: orders, kills, spawns, and the records of one incident.
  if (actions.size() > 64 + 16 * world_)
    Break(Promise::kBounds, "one event gives " + std::to_string(actions.size()) + " actions");
  for (const ControllerAction& action : actions) Act(action);
  CheckWaits();
  AnswerWaitingJoins();
}

void Cluster::AnswerWaitingJoins() {
  if (waiting_joins_.empty() || joining_ || controller_down_ || core_->taking_over()) return;
  for (const auto& [link, join] : std::exchange(waiting_joins_, {}))
    if (link->controller_open) OnUp(link, join);
}

void Cluster::Answer(const std::vector<StoreTable::Answer>& answers) {
  for (const StoreTable::Answer& answer : answers)
    SendDown({core_->term(), core_->generation(), answer.rank, answer.incarnation}, answer.reply);
}

void Cluster::Act(const ControllerAction& action) {
  if (const auto* send = std::get_if<Send>(&action)) {
    CheckSend(*send);
    SendDown(send->header, send->message);
  } else if (const auto* spawn = std::get_if<SpawnProcess>(&action)) {
    CheckSpawn(spawn->rank, spawn->incarnation);
    launchers_.empty() ? Spawn(spawn->rank, spawn->incarnation) : SpawnThere(spawn->rank, spawn->incarnation);
  } else if (const auto* kill = std::get_if<KillProcess>(&action)) {
    CheckKill(*kill);
    Kill(*kill);
  } else if (const auto* transition = std::get_if<Transition>(&action)) {
    Log("== " + std::string(PhaseName(transition->from)) + " -> " + std::string(PhaseName(transition->to)) + " gen " +
        transition->generation.ToString() + ": " + transition->reason);
    CheckTransition(*transition);
    OnPhase(transition->to);
    if (transition->to == Phase::kRunning) BeginSpares();
    if (transition->to == Phase::kRunning && seated_) NoteBegun();
  } else if (const auto* closed = std::get_if<IncidentClosed>(&action)) {
    const IncidentRecord& record = closed->record;
    outcome_.attempts_max = std::max(outcome_.attempts_max, record.attempts);
    if (record.rung) outcome_.rungs.insert(*record.rung);
    if (record.resumed_at) outcome_.recoveries.push_back(*record.resumed_at - record.fault_at);
  } else if (const auto* ready = std::get_if<core::CheckpointReady>(&action)) {
    checkpoints_told_.push_back({ready->step, ready->directory});
  } else if (const auto* ended = std::get_if<RunEnded>(&action)) {
    Log("ended " + std::to_string(ended->exit_code) + ": " + ended->text);
    if (ended_) Break(Promise::kTable, "the run ended twice");
    CheckNothingHeldIsLost(*ended);
    ended_ = *ended;
    if (seated_) EndSeat(*seated_);
    if (!seated_ && plan_.policy.can_spawn) In(kLeaveLimit, [this] { EndStragglers(); });
  } else if (const auto* notice = std::get_if<Notice>(&action)) {
    Log("notice rank " + notice->rank.ToString() + ": " + notice->text);
  }
}

// Its launcher ends what is still there; but whoever nothing has struck leaves when it is told to.
void Cluster::EndStragglers() {
  for (const auto& p : all_processes_)
    if (p->alive && (losses_.count(p->rank.value()) || disturbed_.count(p->rank.value()) || core_->term().number > 1))
      Die(p.get(), "killed by SIGKILL");
}

void Cluster::Kill(const KillProcess& kill) {
  Log("kill rank " + kill.rank.ToString() + " inc " + kill.incarnation.ToString() + ": " + kill.reason);
  given_up_.insert({kill.rank, kill.incarnation});
  LinkPtr& link = links_[static_cast<size_t>(kill.rank.value())];
  if (link && link->incarnation == kill.incarnation) {
    const LinkPtr closing = std::exchange(link, nullptr);
    CloseAtController(closing, true);
  }
  if (!launchers_.empty()) {  // a node that is away is told when it comes back
    SendToNode(SeatedNodeOf(kill.rank), wire::KillWorker{kill.rank, kill.incarnation, kill.reason});
    return;
  }
  if (!plan_.policy.can_spawn) return;  // nobody here can reach the process: it joins again, is refused and leaves
  const ProcessPtr p = Newest(kill.rank);
  if (p && p->incarnation == kill.incarnation && !p->alive && plan_.policy.needs_consent)  // it went with its host
    return In(Between(10, 2000), [this, rank = kill.rank, incarnation = kill.incarnation] {
      Feed(ProcessExited{rank, incarnation, "had ended", std::nullopt});
    });
  if (p && p->incarnation == kill.incarnation) In(Between(10, 2000), [this, p] { Die(p, "killed by SIGKILL"); });
}

void Cluster::SendDown(const Header& header, const ControllerMessage& message) {
  if (const auto* reply = std::get_if<JoinReply>(&message)) return AnswerJoin(header, *reply);
  const LinkPtr link = links_[static_cast<size_t>(header.rank.value())];
  if (!link || link->incarnation != header.incarnation) return;
  if (log_) Log("   -> " + Describe(header, message));
  Put(link, false, wire::Encode(kJob, header, message));
}

void Cluster::AnswerJoin(const Header& header, const JoinReply& reply) {
  const LinkPtr link = std::exchange(joining_, nullptr);
  if (!link) return;
  if (log_) Log("   -> " + Describe(header, ControllerMessage(reply)));
  Put(link, false, wire::Encode(kJob, header, ControllerMessage(reply)));
  if (!reply.accepted) return CloseAtController(link, true);
  link->joined = true;
  link->incarnation = header.incarnation;
  const LinkPtr before = std::exchange(links_[static_cast<size_t>(header.rank.value())], link);
  if (before && before != link) CloseAtController(before, true);
}

// The controller's end is gone: what is on its way to it is lost. `told`: the other end will learn of it.
void Cluster::CloseAtController(LinkPtr link, bool told) {
  if (link->seat && link->seat != stepped_) return CloseAtSeat(link, told);
  if (!std::exchange(link->controller_open, false)) return;
  if (told) Put(link, false, "");
  LinkPtr& current = links_[static_cast<size_t>(link->rank.value())];
  if (current != link) return;
  current = nullptr;
  Feed(ConnectionClosed{link->rank, link->incarnation});
}

void Cluster::OnUp(LinkPtr link, const std::string& bytes) {
  Result<wire::AgentFrame> frame = wire::DecodeFromAgent(kJob, bytes);
  if (!frame.ok()) {
    ++refused_frames_;
    return Log("frame refused: " + frame.status().message());
  }
  const Header& header = frame->header;
  const auto& message = std::get<AgentMessage>(frame->message);
  if (const auto* join = std::get_if<JoinRequest>(&message)) {
    if (header.rank.value() < 0 || header.rank.value() >= plan_.policy.world_size ||
        (link->joined && link->rank != header.rank)) {
      ++refused_frames_;
      return CloseAtController(link, true);
    }
    if (log_) Log("<-    " + Describe(header, message));
    joining_ = link;
    Feed(FromAgent{header, *join});
    const LinkPtr unanswered = std::exchange(joining_, nullptr);
    if (!unanswered || controller_down_) return;
    if (header.term > core_->term()) return CloseAtController(unanswered, true);
    waiting_joins_.emplace_back(unanswered, bytes);
    return AnswerWaitingJoins();
  }
  // A connection speaks for the life it joined as, and for no other.
  if (!link->joined || link->rank != header.rank || link->incarnation != header.incarnation) {
    ++refused_frames_;
    return Log("frame refused: it speaks for rank " + header.rank.ToString());
  }
  OnAgentMessage(header, message);
}

void Cluster::OnAgentMessage(const Header& header, const AgentMessage& message) {
  const bool beat = std::holds_alternative<core::Beat>(message);
  if (log_ && !beat) Log("<-    " + Describe(header, message));
  Header stored = header;
  if (hook_) hook_->BeforeStore(stored_generation_, &stored);
  if (const auto* set = std::get_if<StoreSet>(&message)) return Answer(store_.Set(stored, *set));
  if (const auto* get = std::get_if<StoreGet>(&message)) return Answer(store_.Get(stored, *get));
  const auto* done = std::get_if<PhaseDone>(&message);
  if (std::holds_alternative<Published>(message) ||
      (done && done->phase == Phase::kRename && done->code == StatusCode::kOk))
    checkpoint_known_ =
        checkpoint_known_ || (!ended_ && (!done || !given_up_.count({header.rank, header.incarnation})));
  Feed(FromAgent{header, message});
}

}  // namespace kintsugi::sim
