// One virtual process: the driver around its AgentCore. Mirrors runtime/agent.
#include "runtime/base/overloaded.h"
#include "runtime/sim/cluster.h"
#include "runtime/sim/describe.h"
#include "runtime/wire/codec.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::StepAgent(ProcessPtr p, AgentEvent event) {
  if (hook_) hook_->BeforeAgent(p->rank, *p->core, &event);
  std::vector<AgentAction> actions = p->core->Step(event);
  if (hook_) hook_->AfterAgent(p->rank, *p->core, event, &actions);
  for (const AgentAction& action : actions) ActAgent(p, action);
}

void Cluster::OnDown(ProcessPtr p, const std::string& bytes) {
  Result<wire::ControllerFrame> frame = wire::DecodeFromController(kJob, bytes);
  if (!frame.ok()) {
    ++refused_frames_;
    return Log("frame refused by rank " + p->rank.ToString() + ": " + frame.status().message());
  }
  if (const auto* reply = std::get_if<JoinReply>(&frame->message)) return OnJoinReply(p, frame->header, *reply);
  if (!p->core) return;
  if (frame->header.term >= p->core->term()) p->newest_heard = std::max(p->newest_heard, frame->header.generation);
  const bool older = frame->header.term < p->newest_term;
  p->newest_term = std::max(p->newest_term, frame->header.term);
  const uint64_t refused = p->core->refused();
  const Term term = frame->header.term;
  StepAgent(p, FromController{frame->header, std::move(frame->message)});
  if (older && p->core->refused() == refused)
    Break(Promise::kOneDecider, "rank " + p->rank.ToString() + " obeys term " + std::to_string(term.number) +
                                    " and has heard of term " + std::to_string(p->newest_term.number));
}

void Cluster::OnJoinReply(ProcessPtr p, const Header& header, const JoinReply& reply) {
  if (!reply.accepted) return Die(p, "exited: " + reply.text);
  p->newest_term = std::max(p->newest_term, header.term);
  if (p->core) return StepAgent(p, Connected{header.term});
  if (p->doomed) {
    NoteLoss(p->rank.value());
    return For(p, Between(100, 20000), [this, p] { Die(p, "exited with code 9"); });
  }
  p->incarnation = header.incarnation;
  p->core = std::make_unique<AgentCore>(p->rank, p->incarnation, header.term, header.generation, reply.replacement);
  p->newest_heard = header.generation;
  p->state = InitialState(replicas_, p->rank);
  if (reply.replacement) {  // nothing of the run is here yet
    for (Shard& shard : p->state.shards)
      for (Tensor& tensor : shard.tensors) tensor.value = Mix(tensor.value, 0xBAD);
  } else {
    p->objects.Put(0, p->state.object);
    for (Rank partner : partners_[static_cast<size_t>(p->rank.value())])
      p->mirrored[partner].Put(0, InitialState(replicas_, partner).object);
  }
  // The trainer builds its model, then comes into the guard.
  Trainer(p, Between(1000, 60000), [this, p] {
    Ready ready;
    ready.layouts = plan_.claims.at(p->rank);
    ready.gate = plan_.gate != GateKind::kOff;
    p->core->SetReady(ready);
    Park(p, TrainerParked::Outcome::kReady);
  });
}

void Cluster::ActAgent(ProcessPtr p, const AgentAction& action) {
  std::visit(Overloaded{
                 [&](const SendMessage& a) { SendUp(p, a.generation, a.message); },
                 [&](const core::LockGate&) { LockGate(p); },
                 [&](const Interrupt& a) { Interrupt_(p, a.verdict); },
                 [&](const RunOnTrainer& a) {
                   CheckObeyed(p, a.generation, "runs a handler");
                   p->order = a;
                   For(p, Between(5, 300), [this, p] { StartOrder(p); });
                 },
                 [&](const CancelHandler&) { Cancel(p); },
                 [&](const SetCommitted& a) {
                   p->word = GateWord::Pack(GateState::kCommitted, a.step.value()) | GateWord::kLockBit;
                 },
                 [&](const ReleaseTrainer& a) {
                   CheckObeyed(p, a.generation, "goes back to its loop");
                   p->verdict.reset();
                   p->release = a;
                   For(p, Between(5, 1000), [this, p] { TakeRelease(p); });
                 },
                 [&](const ContinueTrainer&) {
                   if (p->at != TrainerAt::kSavePoint)
                     return Break(Promise::kTable,
                                  "rank " + p->rank.ToString() + " continues at " + std::string(TrainerAtName(p->at)));
                   const uint64_t step = p->begun;
                   Go(p, TrainerAt::kForward);
                   Trainer(p, Between(5, 300), [this, p, step] { Forward(p, step); });
                 },
                 [&](const StorePause& a) {
                   p->pause = a.step.value();
                   StepAgent(p, PauseStored{kintsugi::Step(p->begun)});
                 },
                 [&](const OpenGate& a) {
                   if (p->at == TrainerAt::kGate && plan_.gate == GateKind::kControlPlane && Word(p).step == a.step)
                     Trainer(p, Between(5, 300), [this, p] { PassGate(p); });
                 },
                 [&](const StoreAnswered& a) { OnStoreReply(p, a.reply); },
                 [&](const ArmInjection&) {},
                 [&](const core::ArmSnapshot& a) { ArmSnapshot(p, a); },
                 [&](const EndTrainer& a) { Die(p, "ended with " + std::to_string(a.exit_code)); },
             },
             action);
}

void Cluster::LockGate(ProcessPtr p) {
  p->verdict.reset();
  const bool dropped = std::exchange(p->release, std::nullopt).has_value();
  const GateWord before = Word(p);
  p->word |= GateWord::kLockBit;
  AbortSnapshot(p);
  if (dropped) StepAgent(p, TrainerParked{TrainerParked::Outcome::kInterrupted, before, {}});
  StepAgent(p, GateLocked{before});
  // The control plane's gate is waited for under the lock bit too.
  if (p->at == TrainerAt::kGate && plan_.gate == GateKind::kControlPlane)
    Trainer(p, Between(5, 300), [this, p] { AwaitVerdict(p); });
}

void Cluster::Interrupt_(ProcessPtr p, const StopOrder& order) {
  p->verdict = order;
  if (p->group.value() > 0) BreakGroup(p->group);
  StepAgent(p, StopReturned{});
  if (p->at == TrainerAt::kVerdict) Trainer(p, Between(5, 300), [this, p] { AwaitVerdict(p); });
  if (!p->hung) return;
  if (p->hung_for_good)
    return For(p, order.park_limit, [this, p, generation = p->core->generation()] {
      if (p->core->generation() != generation || !p->core->awaits_trainer()) return;
      core::FaultReport fault{.kind = core::FaultKind::kStalled, .text = "its thread did not come out of its step"};
      fault.since = Now();
      StepAgent(p, FaultSignal{fault});
    });
  p->hung = false;
  Trainer(p, Between(5, 300),
          [this, p] { p->at == TrainerAt::kUpdate ? UpdateNext(p) : Park(p, TrainerParked::Outcome::kInterrupted); });
}

void Cluster::TakeRelease(ProcessPtr p) {
  if (!p->release) return;
  const ReleaseTrainer release = *std::exchange(p->release, std::nullopt);
  p->word = GateWord::Pack(GateState::kCommitted, release.step.value());
  p->released_at = release.step.value();
  p->resumed_told = false;
  p->throw_next = p->throw_in_update = false;
  p->received.clear();
  Mark(p, core::StateMark::kWhole);
  if (!p->damaged)
    CheckState(p, p->released_at, "released in generation " + release.generation.ToString(), Promise::kSameStep);
  const auto [first, is_first] = released_.emplace(release.generation, release.step.value());
  if (!is_first && first->second != release.step.value())
    Break(Promise::kSameStep, "generation " + release.generation.ToString() + " goes on from two steps");
  BeginStep(p, p->released_at + 1);
}

}  // namespace kintsugi::sim
