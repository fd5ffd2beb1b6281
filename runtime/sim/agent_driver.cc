// One virtual process: the driver around its AgentCore. Mirrors runtime/agent.
#include "runtime/base/overloaded.h"
#include "runtime/sim/cluster.h"
#include "runtime/sim/describe.h"
#include "runtime/wire/codec.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

void Cluster::StepAgent(Process* p, AgentEvent event) {
  if (world_.hook) world_.hook->BeforeAgent(p->rank, *p->core, &event);
  std::vector<AgentAction> actions = p->core->Step(event);
  if (world_.hook) world_.hook->AfterAgent(p->rank, *p->core, event, &actions);
  for (const AgentAction& action : actions) ActAgent(p, action);
}

void Cluster::OnDown(Process* p, const std::string& bytes) {
  Result<wire::ControllerFrame> frame = wire::DecodeFromController(kJob, bytes);
  if (!frame.ok()) return world_.Log("frame refused by rank " + p->rank.ToString() + ": " + frame.status().message());
  if (const auto* reply = std::get_if<JoinReply>(&frame->message)) return OnJoinReply(p, frame->header, *reply);
  if (!p->core) return;
  if (frame->header.term >= p->core->term()) p->newest_heard = std::max(p->newest_heard, frame->header.generation);
  const bool older = frame->header.term < p->newest_term;
  p->newest_term = std::max(p->newest_term, frame->header.term);
  const uint64_t refused = p->core->refused();
  const Term term = frame->header.term;
  StepAgent(p, FromController{frame->header, std::move(frame->message)});
  if (older) table_checker_.CheckRefused(*p, p->core->refused() != refused, term);
}

void Cluster::OnJoinReply(Process* p, const Header& header, const JoinReply& reply) {
  if (!reply.accepted) return Die(p, "exited: " + reply.text);
  p->newest_term = std::max(p->newest_term, header.term);
  if (p->core) return StepAgent(p, Connected{header.term});
  if (p->doomed) {
    world_.losses.Lose(p->rank.value());
    return world_.For(p, world_.Between(100, 20000), [this, p] { Die(p, "exited with code 9"); });
  }
  p->incarnation = header.incarnation;
  p->core.emplace(p->rank, p->incarnation, header.term, header.generation, reply.replacement);
  p->newest_heard = header.generation;
  p->state = InitialState(world_.replicas, p->rank);
  if (reply.replacement) {  // nothing of the run is here yet
    for (Shard& shard : p->state.shards)
      for (Tensor& tensor : shard.tensors) tensor.value = Mix(tensor.value, 0xBAD);
  } else {
    p->objects.Put(0, p->state.object);
    for (Rank partner : world_.partners[static_cast<size_t>(p->rank.value())])
      p->mirrored[partner].Put(0, InitialState(world_.replicas, partner).object);
  }
  // The trainer builds its model, then comes into the guard.
  world_.ForTrainer(p, world_.Between(1000, 60000), [this, p] {
    Ready ready;
    ready.layouts = world_.plan.claims.at(p->rank);
    ready.gate = world_.plan.gate != GateKind::kOff;
    p->core->SetReady(ready);
    Park(p, TrainerParked::Outcome::kReady);
  });
}

void Cluster::ActAgent(Process* p, const AgentAction& action) {
  std::visit(
      Overloaded{
          [&](const SendMessage& a) { SendUp(p, a.generation, a.message); },
          [&](const core::LockGate&) { LockGate(p); },
          [&](const Interrupt& a) { Interrupt_(p, a.verdict); },
          [&](const RunOnTrainer& a) {
            table_checker_.CheckObeyed(*p, a.generation, "runs a handler");
            p->order = a;
            world_.For(p, world_.Between(5, 300), [this, p] { StartOrder(p); });
          },
          [&](const CancelHandler&) { Cancel(p); },
          [&](const SetCommitted& a) {
            p->word = GateWord::Pack(GateState::kCommitted, a.step.value()) | GateWord::kLockBit;
          },
          [&](const ReleaseTrainer& a) {
            table_checker_.CheckObeyed(*p, a.generation, "goes back to its loop");
            p->verdict.reset();
            p->release = a;
            world_.For(p, world_.Between(5, 1000), [this, p] { TakeRelease(p); });
          },
          [&](const ContinueTrainer&) {
            if (p->at != TrainerAt::kSavePoint)
              return world_.Break(Promise::kTable,
                                  "rank " + p->rank.ToString() + " continues at " + std::string(TrainerAtName(p->at)));
            const uint64_t step = p->begun;
            Go(p, TrainerAt::kForward);
            world_.ForTrainer(p, world_.Between(5, 300), [this, p, step] { Forward(p, step); });
          },
          [&](const StorePause& a) {
            p->pause = a.step.value();
            StepAgent(p, PauseStored{kintsugi::Step(p->begun)});
          },
          [&](const OpenGate& a) {
            if (p->at == TrainerAt::kGate && world_.plan.gate == GateKind::kControlPlane && p->Word().step == a.step)
              world_.ForTrainer(p, world_.Between(5, 300), [this, p] { PassGate(p); });
          },
          [&](const StoreAnswered& a) { OnStoreReply(p, a.reply); },
          [&](const ArmInjection&) {},
          [&](const core::ArmSnapshot& a) { ArmSnapshot(p, a); },
          [&](const EndTrainer& a) { Die(p, "ended with " + std::to_string(a.exit_code)); },
      },
      action);
}

void Cluster::LockGate(Process* p) {
  p->verdict.reset();
  const bool dropped = std::exchange(p->release, std::nullopt).has_value();
  const GateWord before = p->Word();
  p->word |= GateWord::kLockBit;
  AbortSnapshot(p);
  if (dropped) StepAgent(p, TrainerParked{TrainerParked::Outcome::kInterrupted, before, {}});
  StepAgent(p, GateLocked{before});
  // The control plane's gate is waited for under the lock bit too.
  if (p->at == TrainerAt::kGate && world_.plan.gate == GateKind::kControlPlane)
    world_.ForTrainer(p, world_.Between(5, 300), [this, p] { AwaitVerdict(p); });
}

void Cluster::Interrupt_(Process* p, const StopOrder& order) {
  p->verdict = order;
  if (p->group.value() > 0) BreakGroup(p->group);
  StepAgent(p, StopReturned{});
  if (p->at == TrainerAt::kVerdict) world_.ForTrainer(p, world_.Between(5, 300), [this, p] { AwaitVerdict(p); });
  if (!p->hung) return;
  if (p->hung_for_good)
    return world_.For(p, order.park_limit, [this, p, generation = p->core->generation()] {
      if (p->core->generation() != generation || !p->core->awaits_trainer()) return;
      core::FaultReport fault{.kind = core::FaultKind::kStalled, .text = "its thread did not come out of its step"};
      fault.since = world_.Now();
      StepAgent(p, FaultSignal{fault});
    });
  p->hung = false;
  world_.ForTrainer(p, world_.Between(5, 300), [this, p] {
    p->at == TrainerAt::kUpdate ? UpdateNext(p) : Park(p, TrainerParked::Outcome::kInterrupted);
  });
}

void Cluster::TakeRelease(Process* p) {
  if (!p->release) return;
  const ReleaseTrainer release = *std::exchange(p->release, std::nullopt);
  p->word = GateWord::Pack(GateState::kCommitted, release.step.value());
  p->released_at = release.step.value();
  p->resumed_told = false;
  p->throw_next = p->throw_in_update = false;
  p->received.clear();
  Mark(p, core::StateMark::kWhole);
  state_checker_.CheckReleased(*p, release);
  BeginStep(p, p->released_at + 1);
}

}  // namespace kintsugi::sim
