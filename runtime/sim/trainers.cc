#include "runtime/sim/trainers.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// Shares of a step's time, in percent: what is left over is the collectives'.
constexpr int kForwardLow = 20, kForwardHigh = 80;
constexpr int kPieceLow = 1, kPieceHigh = 6;

}  // namespace

void Trainers::Go(Process* p, TrainerAt at) {
  p->at = at;
  ++p->activity;
  watch_.OnTrainerAt(p);
}

void Trainers::Park(Process* p, TrainerParked::Outcome outcome, FaultReport fault) {
  p->blocked_in.reset();
  Go(p, TrainerAt::kParked);
  if (p->alive) agents_.Step(p, TrainerParked{outcome, p->Word(), std::move(fault)});
}

void Trainers::BeginStep(Process* p, uint64_t step) {
  if (step > world_.plan.steps) return Park(p, TrainerParked::Outcome::kFinished);
  p->begun = step;
  if (p->Word().locked) return Park(p, TrainerParked::Outcome::kInterrupted);
  if (!refusals_.Begin(p, step)) return;
  if (!std::exchange(p->resumed_told, true)) agents_.Step(p, TrainerResumed{});
  const uint64_t boundary = step - 1;
  if (p->snapshot && p->snapshot->order.step.value() == boundary) snapshots_.Take(p);
  const auto every = [&](uint64_t steps) { return steps > 0 && boundary % steps == 0; };
  const bool due = every(world_.plan.policy.save_every) || every(world_.plan.policy.verify_every);
  if (boundary > p->released_at && (due || (p->pause > 0 && boundary >= p->pause))) {
    Go(p, TrainerAt::kSavePoint);
    return agents_.Step(p, TrainerAtSavePoint{kintsugi::Step(boundary)});
  }
  Forward(p, step);
}

void Trainers::Forward(Process* p, uint64_t step) {
  Go(p, TrainerAt::kForward);
  if (refusals_.LeavesOut(p, step))
    return world_.ForTrainer(p, world_.Between(5, 500), [this, p, step] { PassBy(p, step); });
  p->memory.state.object = NextObject(p->memory.state.object, p->rank);
  for (auto& [seat, object] : p->takes_over) object = NextObject(object, seat);
  world_.ForTrainer(p, p->troubles.slow * world_.Share(kForwardLow, kForwardHigh),
                    [this, p, step] { AfterForward(p, step); });
}

// Its batch is passed by: partners hear of the object alone, and the update is empty.
void Trainers::PassBy(Process* p, uint64_t step) {
  if (p->Word().locked) return Park(p, TrainerParked::Outcome::kInterrupted);
  if (const auto why = refusals_.PassBy(p, step))
    return Park(p, TrainerParked::Outcome::kFault,
                {.kind = FaultKind::kRefused, .text = *why, .step = kintsugi::Step(step), .since = world_.Now()});
  p->memory.state.object = PassedBy(p->memory.state.object);
  p->memory.objects.Put(step, p->memory.state.object);
  Go(p, TrainerAt::kGradients);
  collectives_.Enter(p, Meeting::kGradients, step, 0, p->memory.state.object);
}

void Trainers::AfterForward(Process* p, uint64_t step) {
  if (TakeDamage(p)) return;
  if (std::exchange(p->troubles.throw_next, false))
    return Park(p, TrainerParked::Outcome::kFault,
                {.kind = FaultKind::kException, .text = "thrown", .step = kintsugi::Step(step), .since = world_.Now()});
  if (p->Word().locked && world_.random.Chance(0.5)) return Park(p, TrainerParked::Outcome::kInterrupted);
  p->memory.objects.Put(step, p->memory.state.object);
  // Reported before the gate, as a trainer does: counted once the step is committed.
  if (world_.samples.size() <= step) world_.samples.resize(step + 1);
  if (world_.samples[step].empty()) world_.samples[step].resize(world_.size, UINT64_MAX);
  uint64_t contribution = 0;
  const auto take_part = [&](Rank of, const Object& object) {
    world_.samples[step][static_cast<size_t>(of.value())] = SampleAt(object, of, world_.plan.policy.world_size);
    contribution +=
        world_.cuts.any_layout() ? ContributionOf(object, step) : Contribution(p->memory.state, object, step);
  };
  take_part(p->rank, p->memory.state.object);
  for (const auto& [seat, object] : p->takes_over) take_part(seat, object);
  if (world_.cuts.any_layout()) contribution += ContributionOf(p->memory.state, p->cut->MainCellsOf(p->rank), step);
  if (const auto why = refusals_.Judge(p, step, contribution))
    return Park(p, TrainerParked::Outcome::kFault,
                {.kind = FaultKind::kException, .text = *why, .step = kintsugi::Step(step), .since = world_.Now()});
  Go(p, TrainerAt::kGradients);
  collectives_.Enter(p, Meeting::kGradients, step, contribution, p->memory.state.object);
}

void Trainers::BeginUpdate(Process* p) {
  if (TakeDamage(p)) return;
  const uint64_t step = p->begun;
  if (p->Word().locked) return Park(p, TrainerParked::Outcome::kInterrupted);
  if (p->word != GateWord::Pack(GateState::kCommitted, step - 1))
    return world_.Break(Promise::kUpdateOnce,
                        "rank " + p->rank.ToString() + " begins update " + std::to_string(step) + " out of order");
  if (refusals_.Doubts(p))
    return Park(p, TrainerParked::Outcome::kFault,
                {.kind = FaultKind::kException,
                 .text = "computed otherwise than before",
                 .step = kintsugi::Step(step),
                 .since = world_.Now()});
  if (world_.plan.gate == GateKind::kOff) {
    p->SetWord(GateState::kUpdating, step);
    return Update(p);
  }
  p->SetWord(GateState::kAtGate, step);
  Go(p, TrainerAt::kGate);
  if (world_.plan.gate == GateKind::kTrainer) return collectives_.Enter(p, Meeting::kGate, step, 0);
  agents_.Step(p, TrainerAtGate{kintsugi::Step(step)});
}

void Trainers::PassGate(Process* p) {
  if (p->Word().locked) return AwaitVerdict(p);
  p->SetWord(GateState::kUpdating, p->begun);
  Update(p);
}

void Trainers::AwaitVerdict(Process* p) {
  p->blocked_in.reset();
  if (p->at != TrainerAt::kVerdict) Go(p, TrainerAt::kVerdict);
  if (!p->verdict) return;  // Interrupt brings it
  if (p->verdict->step_exists && p->verdict->step.value() == p->begun) {
    p->SetWord(GateState::kUpdating, p->begun);
    return Update(p);
  }
  Park(p, TrainerParked::Outcome::kInterrupted);
}

void Trainers::TearUpdate(Process* p, FaultReport fault) {
  p->SetWord(GateState::kTorn, p->begun);
  fault.in_update = true;
  fault.step = kintsugi::Step(p->begun);
  fault.since = world_.Now();
  Park(p, TrainerParked::Outcome::kFault, std::move(fault));
}

void Trainers::Update(Process* p) {
  p->piece = 0;
  Go(p, TrainerAt::kUpdate);
  world_.ForTrainer(p, p->troubles.slow * world_.Share(kPieceLow, kPieceHigh), [this, p] { UpdateNext(p); });
}

void Trainers::UpdateNext(Process* p) {
  if (p->piece == 1 && std::exchange(p->troubles.throw_in_update, false))
    return TearUpdate(p, {.kind = FaultKind::kException, .text = "thrown in the update"});
  // Arithmetic on damaged memory is told of by the device, or goes on unnoticed.
  if (p->damaged && world_.random.Chance(0.3)) {
    p->damaged = false;
    return TearUpdate(p, {.kind = FaultKind::kMemoryHigh, .text = "damage met in the update"});
  }
  if (refusals_.LeavesOut(p, p->begun))
    PassPiece(&p->memory.state, p->piece);
  else
    UpdatePiece(&p->memory.state, p->piece, p->begun, p->gradient);
  if (++p->piece < PieceCount(p->memory.state))
    return world_.ForTrainer(p, p->troubles.slow * world_.Share(kPieceLow, kPieceHigh), [this, p] { UpdateNext(p); });
  p->SetWord(GateState::kCommitted, p->begun);
  if (!p->damaged) {
    world_.NoteProgress();
    state_checker_.CheckCommit(*p);
  }
  if (p->Word().locked) return Park(p, TrainerParked::Outcome::kInterrupted);
  Go(p, TrainerAt::kParamSync);
  collectives_.Enter(p, Meeting::kParams, p->begun, 0);
}

// The trainer's next use of damaged memory ends its step: nothing computed with it reaches another rank.
bool Trainers::TakeDamage(Process* p) {
  if (!std::exchange(p->damaged, false)) return false;
  Park(p, TrainerParked::Outcome::kInterrupted);
  return true;
}

void Trainers::OnMet(Process* p, uint64_t sum, bool tainted) {
  switch (p->at) {
    case TrainerAt::kGradients:
      p->gradient = sum;
      p->memory.tainted |= tainted;
      return BeginUpdate(p);
    case TrainerAt::kGate:
      return PassGate(p);
    case TrainerAt::kParamSync:
      return BeginStep(p, p->begun + 1);
    case TrainerAt::kHandler:
      return handlers_.Finish(p, {.phase = p->running->order.phase});
    default:
      return world_.Break(Promise::kTable, "rank " + p->rank.ToString() + " leaves a collective at " +
                                               std::string(TrainerAtName(p->at)));
  }
}

void Trainers::OnBroken(Process* p) {
  if (p->at == TrainerAt::kHandler)
    return handlers_.Finish(
        p, {.phase = p->running->order.phase, .code = StatusCode::kCommFailure, .text = "connection reset"});
  FaultReport fault{.kind = FaultKind::kCommError,
                    .text = "connection reset",
                    .step = kintsugi::Step(p->begun),
                    .since = world_.Now()};
  if (p->at == TrainerAt::kGate) {
    // Still at the gate: whether the update happens is for all ranks to decide.
    if (!p->verdict) agents_.Step(p, FaultSignal{fault});
    return AwaitVerdict(p);
  }
  if (p->verdict && world_.random.Chance(0.5)) return Park(p, TrainerParked::Outcome::kInterrupted);
  Park(p, TrainerParked::Outcome::kFault, std::move(fault));
}

}  // namespace kintsugi::sim
