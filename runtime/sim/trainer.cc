// One virtual process: the driver around its AgentCore and the trainer's thread.
#include "runtime/sim/cluster.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::StepAgent(const ProcessPtr& p, const AgentEvent& event) {
  for (const AgentAction& action : p->core->Step(event)) ActAgent(p, action);
}

void Cluster::OnDown(const ProcessPtr& p, const Header& header, const ControllerMessage& message) {
  if (const auto* reply = std::get_if<JoinReply>(&message)) return OnJoinReply(p, header, *reply);
  if (p->core) StepAgent(p, FromController{header, message});
}

void Cluster::OnJoinReply(const ProcessPtr& p, const Header& header, const JoinReply& reply) {
  if (!reply.accepted) return Die(p, "exited: " + reply.text);
  if (p->core) return StepAgent(p, Connected{});
  if (p->doomed) {
    NoteLoss(p->rank.value());
    return For(p, Between(100, 20000), [this, p] { Die(p, "exited with code 9"); });
  }
  p->core = std::make_unique<AgentCore>(p->rank, p->incarnation, header.term, header.generation, reply.replacement);
  p->replacement = reply.replacement;
  p->state = InitialState(replicas_, p->rank);
  p->objects[0] = p->state.object;
  for (Rank partner : replicas_.Partners(p->rank)) p->mirrored[partner][0] = InitialState(replicas_, partner).object;
  if (reply.replacement) {  // nothing of the run is here yet
    for (auto& [layout, tensors] : p->state.tensors)
      for (uint64_t& value : tensors) value = Mix(value, 0xBAD);
    p->objects.clear();
    p->mirrored.clear();
  }
  // The trainer builds its model, then comes into the guard.
  Trainer(p, Between(1000, 60000), [this, p] {
    Ready ready;
    ready.layouts = plan_.claims[p->rank];
    ready.gate = plan_.gate != GateKind::kOff;
    p->core->SetReady(ready);
    Park(p, TrainerParked::Outcome::kReady);
  });
}

void Cluster::ActAgent(const ProcessPtr& p, const AgentAction& action) {
  if (const auto* send = std::get_if<SendMessage>(&action)) {
    SendUp(p, send->generation, send->message);
  } else if (std::holds_alternative<core::LockGate>(action)) {
    LockGate(p);
  } else if (const auto* interrupt = std::get_if<Interrupt>(&action)) {
    Interrupt_(p, interrupt->verdict);
  } else if (const auto* run = std::get_if<RunOnTrainer>(&action)) {
    p->order = *run;
    For(p, Between(5, 300), [this, p] { StartOrder(p); });
  } else if (std::holds_alternative<CancelHandler>(action)) {
    Cancel(p);
  } else if (const auto* set = std::get_if<SetCommitted>(&action)) {
    p->word = GateWord::Pack(GateState::kCommitted, set->step.value()) | GateWord::kLockBit;
  } else if (const auto* release = std::get_if<ReleaseTrainer>(&action)) {
    p->verdict.reset();
    p->release = *release;
    For(p, Between(5, 1000), [this, p] { TakeRelease(p); });
  } else if (std::holds_alternative<ContinueTrainer>(action)) {
    if (p->at != TrainerAt::kSavePoint) return Violation("rank " + p->rank.ToString() + " continues at " + TrainerAtName(p->at));
    const uint64_t step = p->begun;
    Go(p, TrainerAt::kForward);
    Trainer(p, Between(5, 300), [this, p, step] { Forward(p, step); });
  } else if (const auto* pause = std::get_if<StorePause>(&action)) {
    p->pause = pause->step.value();
    StepAgent(p, PauseStored{kintsugi::Step(p->begun)});
  } else if (const auto* open = std::get_if<OpenGate>(&action)) {
    if (p->at == TrainerAt::kGate && plan_.gate == GateKind::kControlPlane && Word(p).step == open->step)
      Trainer(p, Between(5, 300), [this, p] { PassGate(p); });
  } else if (const auto* answered = std::get_if<StoreAnswered>(&action)) {
    OnStoreReply(p, answered->reply);
  } else if (const auto* end = std::get_if<EndTrainer>(&action)) {
    Die(p, "ended with " + std::to_string(end->exit_code));
  }
}

void Cluster::LockGate(const ProcessPtr& p) {
  p->verdict.reset();
  const bool dropped = std::exchange(p->release, std::nullopt).has_value();
  const GateWord before = Word(p);
  p->word |= GateWord::kLockBit;
  if (dropped) StepAgent(p, TrainerParked{TrainerParked::Outcome::kInterrupted, before, {}});
  StepAgent(p, GateLocked{before});
  // The control plane's gate is waited for under the lock bit too.
  if (p->at == TrainerAt::kGate && plan_.gate == GateKind::kControlPlane)
    Trainer(p, Between(5, 300), [this, p] { AwaitVerdict(p); });
}

void Cluster::Interrupt_(const ProcessPtr& p, const StopOrder& order) {
  p->verdict = order;
  if (p->group.value() > 0) BreakGroup(p->group);
  if (p->at == TrainerAt::kVerdict) Trainer(p, Between(5, 300), [this, p] { AwaitVerdict(p); });
}

void Cluster::TakeRelease(const ProcessPtr& p) {
  if (!p->release) return;
  const ReleaseTrainer release = *std::exchange(p->release, std::nullopt);
  p->word = GateWord::Pack(GateState::kCommitted, release.step.value());
  p->released_at = release.step.value();
  p->released_generation = release.generation;
  p->resumed_told = false;
  p->throw_next = p->throw_in_update = false;
  if (!p->damaged) CheckState(p, p->released_at, "released in generation " + release.generation.ToString());
  const auto [first, is_first] = released_.emplace(release.generation, release.step.value());
  if (!is_first && first->second != release.step.value())
    Violation("generation " + release.generation.ToString() + " goes on from two steps");
  BeginStep(p, p->released_at + 1);
}

void Cluster::Go(const ProcessPtr& p, TrainerAt at) {
  p->at = at;
  ++p->activity;
  OnTrainerAt(p);
}

void Cluster::SetWord(const ProcessPtr& p, GateState state, uint64_t step) {
  p->word = GateWord::Pack(state, step) | (p->word & GateWord::kLockBit);
}

void Cluster::Park(const ProcessPtr& p, TrainerParked::Outcome outcome, FaultReport fault) {
  p->blocked_in.clear();
  Go(p, TrainerAt::kParked);
  if (p->alive) StepAgent(p, TrainerParked{outcome, Word(p), std::move(fault)});
}

// ---- the loop ------------------------------------------------------------------------------------------------------

void Cluster::BeginStep(const ProcessPtr& p, uint64_t step) {
  if (step > plan_.steps) return Park(p, TrainerParked::Outcome::kFinished);
  p->begun = step;
  if (Word(p).locked) return Park(p, TrainerParked::Outcome::kInterrupted);
  if (!std::exchange(p->resumed_told, true)) StepAgent(p, TrainerResumed{});
  const uint64_t boundary = step - 1;
  const bool due = plan_.policy.save_every > 0 && boundary % plan_.policy.save_every == 0;
  if (boundary > p->released_at && (due || (p->pause > 0 && boundary >= p->pause))) {
    Go(p, TrainerAt::kSavePoint);
    return StepAgent(p, TrainerAtSavePoint{kintsugi::Step(boundary)});
  }
  Forward(p, step);
}

void Cluster::Forward(const ProcessPtr& p, uint64_t step) {
  Go(p, TrainerAt::kForward);
  p->state.object = NextObject(p->state.object, p->rank);
  Trainer(p, Between(500, 6000), [this, p, step] {
    if (TakeDamage(p)) return;
    if (std::exchange(p->throw_next, false))
      return Park(p, TrainerParked::Outcome::kFault,
                  {.kind = FaultKind::kException, .text = "thrown", .step = kintsugi::Step(step), .since = now_});
    if (Word(p).locked && random_.Chance(0.5)) return Park(p, TrainerParked::Outcome::kInterrupted);
    p->objects[step] = p->state.object;
    Go(p, TrainerAt::kGradients);
    Enter(p, "gradients " + std::to_string(step), Contribution(p->state, step), p->state.object);
  });
}

void Cluster::BeginUpdate(const ProcessPtr& p) {
  if (TakeDamage(p)) return;
  const uint64_t step = p->begun;
  if (Word(p).locked) return Park(p, TrainerParked::Outcome::kInterrupted);
  if (p->word != GateWord::Pack(GateState::kCommitted, step - 1))
    return Violation("rank " + p->rank.ToString() + " begins update " + std::to_string(step) + " out of order");
  if (plan_.gate == GateKind::kOff) {
    SetWord(p, GateState::kUpdating, step);
    return Update(p);
  }
  SetWord(p, GateState::kAtGate, step);
  Go(p, TrainerAt::kGate);
  if (plan_.gate == GateKind::kTrainer) return Enter(p, "gate " + std::to_string(step), 0, std::nullopt);
  StepAgent(p, TrainerAtGate{kintsugi::Step(step)});
}

void Cluster::PassGate(const ProcessPtr& p) {
  if (Word(p).locked) return AwaitVerdict(p);
  SetWord(p, GateState::kUpdating, p->begun);
  Update(p);
}

void Cluster::AwaitVerdict(const ProcessPtr& p) {
  p->blocked_in.clear();
  if (p->at != TrainerAt::kVerdict) Go(p, TrainerAt::kVerdict);
  if (!p->verdict) return;  // Interrupt brings it
  if (p->verdict->step_exists && p->verdict->step.value() == p->begun) {
    SetWord(p, GateState::kUpdating, p->begun);
    return Update(p);
  }
  Park(p, TrainerParked::Outcome::kInterrupted);
}

void Cluster::TearUpdate(const ProcessPtr& p, FaultReport fault) {
  SetWord(p, GateState::kTorn, p->begun);
  fault.in_update = true;
  fault.step = kintsugi::Step(p->begun);
  fault.since = now_;
  Park(p, TrainerParked::Outcome::kFault, std::move(fault));
}

void Cluster::Update(const ProcessPtr& p) {
  p->piece = 0;
  Go(p, TrainerAt::kUpdate);
  const auto next = std::make_shared<std::function<void()>>();
  *next = [this, p, self = std::weak_ptr(next)] {
    if (p->piece == 1 && std::exchange(p->throw_in_update, false))
      return TearUpdate(p, {.kind = FaultKind::kException, .text = "thrown in the update"});
    // Arithmetic on damaged memory is told of by the device, or goes on unnoticed.
    if (p->damaged && random_.Chance(0.3)) {
      p->damaged = false;
      return TearUpdate(p, {.kind = FaultKind::kMemoryHigh, .text = "damage met in the update"});
    }
    UpdatePiece(&p->state, p->piece, p->begun, p->gradient);
    if (++p->piece < PieceCount(p->state)) return Trainer(p, Between(20, 400), [again = self.lock()] { (*again)(); });
    SetWord(p, GateState::kCommitted, p->begun);
    if (!p->damaged) CheckState(p, p->begun, "committed");
    if (Word(p).locked) return Park(p, TrainerParked::Outcome::kInterrupted);
    Go(p, TrainerAt::kParamSync);
    Enter(p, "params " + std::to_string(p->begun), 0, std::nullopt);
  };
  Trainer(p, Between(20, 400), [next] { (*next)(); });
}

}  // namespace kintsugi::sim
