#include "runtime/sim/agents.h"

#include <algorithm>

#include "runtime/base/overloaded.h"
#include "runtime/wire/codec.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// Of runtime/agent: without a controller for this long a process ends by itself.
constexpr Duration kControllerLoss = 10s;

}  // namespace

void Agents::Connect(Process* p) {
  if (!p->alone_since) p->alone_since = world_.Now();
  world_.For(p, world_.Between(100, 3000), [this, p] { TryConnect(p); });
}

void Agents::TryConnect(Process* p) {
  if (p->connection) return;
  const Directory::Answer controller = directory_.ControllerOf(p);
  if (controller.waits) {  // its launcher keeps it waiting until there is one
    p->alone_since = world_.Now();
    return world_.For(p, world_.Between(5000, 50000), [this, p] { TryConnect(p); });
  }
  const Duration limit = p->core ? kControllerLoss : world_.plan.policy.join_timeout;
  if (world_.Now() - *p->alone_since > limit) return processes_.Die(p, "exited with code 1: no controller");
  if (controller.refused || !network_.IsWhole(p->rank))  // a handshake needs both ways
    return world_.For(p, world_.Between(20000, 300000), [this, p] { TryConnect(p); });
  p->alone_since.reset();
  p->connection = network_.Open(p, controller.seat);
  network_.SendUp(
      p, p->core ? p->core->generation() : Generation(),
      JoinRequest{p->pid, "host" + p->rank.ToString(), world_.plan.watched,
                  p->core ? p->core->standing() : core::Standing::kNew, p->core.has_value(),
                  p->core ? p->core->crew() : std::vector<Rank>(), p->core ? p->core->crew_since() : Generation()});
}

void Agents::OnLost(Connection* connection) {
  connection->down.open = connection->up.open = false;
  Process* const p = connection->process;
  if (p->connection != connection) return;
  p->connection = nullptr;
  if (p->alive) Connect(p);
}

void Agents::Step(Process* p, AgentEvent event) {
  if (world_.hook) world_.hook->BeforeAgent(p->rank, *p->core, &event);
  std::vector<AgentAction> actions = p->core->Step(event);
  if (world_.hook) world_.hook->AfterAgent(p->rank, *p->core, event, &actions);
  for (const AgentAction& action : actions) Act(p, action);
}

void Agents::OnFrame(Process* p, const std::string& bytes) {
  Result<wire::ControllerFrame> frame = wire::DecodeFromController(kJob, bytes);
  if (!frame.ok()) return world_.Log("frame refused by rank " + p->rank.ToString() + ": " + frame.status().message());
  if (const auto* reply = std::get_if<JoinReply>(&frame->message)) return OnJoinReply(p, frame->header, *reply);
  if (!p->core) return;
  if (frame->header.term >= p->core->term()) p->newest_heard = std::max(p->newest_heard, frame->header.generation);
  const bool older = frame->header.term < p->newest_term;
  p->newest_term = std::max(p->newest_term, frame->header.term);
  const uint64_t refused = p->core->refused();
  const Term term = frame->header.term;
  Step(p, FromController{frame->header, std::move(frame->message)});
  if (older) table_checker_.CheckRefused(*p, p->core->refused() != refused, term);
}

void Agents::OnJoinReply(Process* p, const Header& header, const JoinReply& reply) {
  if (!reply.accepted) return processes_.Die(p, "exited: " + reply.text);
  p->newest_term = std::max(p->newest_term, header.term);
  if (p->core) return Step(p, Connected{header.term});
  if (p->troubles.doomed) {
    world_.losses.Lose(p->rank.value());
    return world_.For(p, world_.Between(100, 20000), [this, p] { processes_.Die(p, "exited with code 9"); });
  }
  p->incarnation = header.incarnation;
  p->core.emplace(p->rank, p->incarnation, header.term, header.generation, reply.replacement, reply.crew);
  p->newest_heard = header.generation;
  if (!reply.crew.empty())
    p->crew = std::make_shared<const core::Crew>(core::Crew::Of(static_cast<int>(world_.size), reply.crew).value());
  p->cut = p->crew ? &world_.cuts.Of(*p->crew) : &world_.cuts.whole();
  p->memory.state = InitialState(*p->cut, p->rank);
  if (reply.replacement) {  // nothing of the run is here yet
    for (Shard& shard : p->memory.state.shards)
      for (Tensor& tensor : shard.tensors) tensor.value = Mix(tensor.value, 0xBAD);
  } else {
    p->memory.objects.Put(0, p->memory.state.object);
    for (Rank partner : p->Partners()) p->memory.mirrored[partner].Put(0, ObjectAfter(partner, 0));
  }
  BeginTrainer(p);
}

void Agents::SetReady(Process* p) const {
  Ready ready;
  ready.layouts = p->cut->claims.at(p->rank);
  for (auto& [layout, claim] : ready.layouts)
    if (p->crew) claim = core::ClaimWithin(claim, *p->crew).value_or(claim);
  ready.gate = world_.plan.gate != GateKind::kOff;
  ready.state_held = world_.plan.policy.adopts;
  ready.offer = world_.plan.OfferOf(p->rank);
  p->core->SetReady(ready);
}

// The trainer builds its model, then comes into the guard.
void Agents::BeginTrainer(Process* p) {
  world_.ForTrainer(p, world_.Between(1000, 60000), [this, p] {
    SetReady(p);
    trainers_.Park(p, TrainerParked::Outcome::kReady);
  });
}

void Agents::Act(Process* p, const AgentAction& action) {
  std::visit(
      Overloaded{
          [&](const SendMessage& a) { network_.SendUp(p, a.generation, a.message); },
          [&](const core::LockGate&) { LockGate(p); },
          [&](const Interrupt& a) { Stop(p, a.verdict); },
          [&](const RunOnTrainer& a) {
            table_checker_.CheckObeyed(*p, a.generation, "runs a handler");
            p->order = a;
            world_.For(p, world_.Between(5, 300), [this, p] { handlers_.Start(p); });
          },
          [&](const CancelHandler&) { handlers_.Cancel(p); },
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
            trainers_.Go(p, TrainerAt::kForward);
            world_.ForTrainer(p, world_.Between(5, 300), [this, p, step] { trainers_.Forward(p, step); });
          },
          [&](const StorePause& a) {
            p->pause = a.step.value();
            Step(p, PauseStored{kintsugi::Step(p->begun)});
          },
          [&](const OpenGate& a) {
            if (p->at == TrainerAt::kGate && world_.plan.gate == GateKind::kControlPlane && p->Word().step == a.step)
              world_.ForTrainer(p, world_.Between(5, 300), [this, p] { trainers_.PassGate(p); });
          },
          [&](const StoreAnswered& a) { handlers_.OnStoreReply(p, a.reply); },
          [&](const ArmInjection&) {},
          [&](const core::TellMarks& a) { Step(p, core::MarksTaken{collectives_.MarksOf(p, a.round)}); },
          [&](const core::ArmSnapshot& a) { snapshots_.Arm(p, a); },
          [&](const EndTrainer& a) { processes_.Die(p, "ended with " + std::to_string(a.exit_code)); },
      },
      action);
}

void Agents::LockGate(Process* p) {
  p->verdict.reset();
  const bool dropped = std::exchange(p->release, std::nullopt).has_value();
  const GateWord before = p->Word();
  p->word |= GateWord::kLockBit;
  snapshots_.Abort(p);
  if (dropped) Step(p, TrainerParked{TrainerParked::Outcome::kInterrupted, before, {}});
  Step(p, GateLocked{before});
  // The control plane's gate is waited for under the lock bit too.
  if (p->at == TrainerAt::kGate && world_.plan.gate == GateKind::kControlPlane)
    world_.ForTrainer(p, world_.Between(5, 300), [this, p] { trainers_.AwaitVerdict(p); });
}

void Agents::Stop(Process* p, const StopOrder& order) {
  p->verdict = order;
  if (p->group.value() > 0) collectives_.BreakGroup(p->group);
  Step(p, StopReturned{});
  if (p->at == TrainerAt::kVerdict)
    world_.ForTrainer(p, world_.Between(5, 300), [this, p] { trainers_.AwaitVerdict(p); });
  AwaitPark(p, p->core->generation(), world_.Now());
  if (!p->troubles.hung || p->troubles.hung_for_good) return;
  p->troubles.hung = false;
  world_.ForTrainer(p, world_.Between(5, 300), [this, p] {
    p->at == TrainerAt::kUpdate ? trainers_.UpdateNext(p) : trainers_.Park(p, TrainerParked::Outcome::kInterrupted);
  });
}

// As the agent's StopWatch.
void Agents::AwaitPark(Process* p, Generation generation, TimePoint freed_at) {
  if (p->core->generation() != generation || !p->core->awaits_trainer()) return;
  const Duration rest = freed_at + p->core->ParkLimit(p->Place()) - world_.Now();
  if (rest > Duration()) return world_.For(p, rest, [=, this] { AwaitPark(p, generation, freed_at); });
  core::FaultReport fault{.kind = core::FaultKind::kStalled, .text = "its thread did not come out of its step"};
  fault.since = world_.Now();
  Step(p, FaultSignal{fault});
}

void Agents::TakeRelease(Process* p) {
  if (!p->release) return;
  const ReleaseTrainer release = *std::exchange(p->release, std::nullopt);
  p->word = GateWord::Pack(GateState::kCommitted, release.step.value());
  p->released_at = release.step.value();
  p->resumed_told = false;
  p->troubles.throw_next = p->troubles.throw_in_update = false;
  p->received.clear();
  p->refused.GoOn();
  if (relayouts_.Keep(p)) SetReady(p);
  if (release.whole) held_.Mark(p, core::StateMark::kWhole);
  state_checker_.CheckReleased(*p, release);
  trainers_.BeginStep(p, p->released_at + 1);
}

}  // namespace kintsugi::sim
