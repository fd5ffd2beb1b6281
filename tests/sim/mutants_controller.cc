// Mutants of what the controller lets in, waits for and tells.
#include "tests/sim/mutants.h"

namespace kintsugi::sim {
namespace {

using Extra = std::vector<ControllerEvent>;

// Bends events on their way in.
class Inward : public Hook {
 public:
  using Bend = std::function<void(const ControllerCore&, ControllerEvent*, Extra*)>;
  explicit Inward(Bend bend) : bend_(std::move(bend)) {}
  void BeforeController(const ControllerCore& core, ControllerEvent* event, Extra* after) override {
    bend_(core, event, after);
  }

 private:
  Bend bend_;
};

// Bends actions on their way out.
class Outward : public Hook {
 public:
  using Bend = std::function<void(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>*)>;
  explicit Outward(Bend bend) : bend_(std::move(bend)) {}
  void AfterController(const ControllerCore& core, const ControllerEvent& cause,
                       std::vector<ControllerAction>* actions) override {
    bend_(core, cause, actions);
  }

 private:
  Bend bend_;
};

class StoreFence : public Hook {
 public:
  void BeforeStore(Generation current, Header* header) override { header->generation = current; }
};

class LostChunk : public Hook {
 public:
  bool CountsLostChunk() override { return true; }
};

template <typename T>
T* MessageIn(ControllerEvent* event) {
  auto* from = std::get_if<FromAgent>(event);
  return from ? std::get_if<T>(&from->message) : nullptr;
}

template <typename T>
T* MessageOut(ControllerAction* action) {
  auto* send = std::get_if<Send>(action);
  return send ? std::get_if<T>(&send->message) : nullptr;
}

bool Joins(const ControllerEvent& event) {
  const auto* from = std::get_if<FromAgent>(&event);
  return from && std::holds_alternative<JoinRequest>(from->message);
}

Header HeaderOf(const ControllerCore& core, size_t r) {
  return {core.term(), core.generation(), Rank(static_cast<int32_t>(r)), core.members()[r].incarnation};
}

// A quorum off by one: when all but one have answered, the last one counts as having said the same.
template <typename T>
void OneShort(const ControllerCore& core, ControllerEvent* event, Extra* after,
              const std::function<bool(const T&)>& counts) {
  const T* message = MessageIn<T>(event);
  if (!message || !counts(*message)) return;
  const Header& from = std::get<FromAgent>(*event).header;
  std::vector<size_t> missing;
  for (size_t r = 0; r < core.members().size(); ++r)
    if (core.members()[r].waiting && Rank(static_cast<int32_t>(r)) != from.rank) missing.push_back(r);
  if (missing.size() == 1 && from.generation == core.generation())
    after->push_back(FromAgent{HeaderOf(core, missing.front()), *message});
}

template <typename T>
std::function<std::unique_ptr<Hook>()> Short(std::function<bool(const T&)> counts = [](const T&) { return true; }) {
  return [counts] {
    return std::make_unique<Inward>([counts](const ControllerCore& core, ControllerEvent* event, Extra* after) {
      OneShort<T>(core, event, after, counts);
    });
  };
}

std::function<bool(const PhaseDone&)> Of(Phase phase) {
  return [phase](const PhaseDone& done) { return done.phase == phase && done.code == StatusCode::kOk; };
}

std::function<std::unique_ptr<Hook>()> In(Inward::Bend bend) {
  return [bend] { return std::make_unique<Inward>(bend); };
}
std::function<std::unique_ptr<Hook>()> Out(Outward::Bend bend) {
  return [bend] { return std::make_unique<Outward>(bend); };
}

// ---- what comes in -------------------------------------------------------------------------------------------------

void AnyGeneration(const ControllerCore& core, ControllerEvent* event, Extra*) {
  if (auto* from = std::get_if<FromAgent>(event); from && !Joins(*event)) from->header.generation = core.generation();
}

void AnyTerm(const ControllerCore& core, ControllerEvent* event, Extra*) {
  if (auto* from = std::get_if<FromAgent>(event)) from->header.term = core.term();
}

// Every beat tells of a place that has just been reached.
void AlwaysMoving(const ControllerCore&, ControllerEvent* event, Extra*) {
  if (auto* beat = MessageIn<Beat>(event))
    beat->place.phase = beat->count % 2 == 0 ? TrainPhase::kForward : TrainPhase::kBackward;
}

void AnyExit(const ControllerCore& core, ControllerEvent* event, Extra*) {
  if (auto* exited = std::get_if<ProcessExited>(event))
    exited->incarnation = core.members()[static_cast<size_t>(exited->rank.value())].incarnation;
}

void NoDigest(const ControllerCore&, ControllerEvent* event, Extra*) {
  if (auto* done = MessageIn<PhaseDone>(event))
    for (auto& [layout, digest] : done->digests) digest = 1;
}

void EchoBreaks(const ControllerCore&, ControllerEvent* event, Extra*) {
  if (auto* fault = MessageIn<FaultReport>(event); fault && fault->kind == FaultKind::kCommError)
    fault->kind = FaultKind::kMemoryHigh;
}

void ClosedIsDead(const ControllerCore&, ControllerEvent* event, Extra*) {
  if (const auto* closed = std::get_if<ConnectionClosed>(event))
    *event = ProcessExited{closed->rank, closed->incarnation, "gone with its connection", std::nullopt};
}

void DamageUnheard(const ControllerCore&, ControllerEvent* event, Extra*) {
  auto* fault = MessageIn<FaultReport>(event);
  if (fault && (fault->kind == FaultKind::kMemoryHigh || fault->kind == FaultKind::kMemoryLow)) *event = Tick{};
}

void TornCounts(const ControllerCore&, ControllerEvent* event, Extra*) {
  if (auto* parked = MessageIn<Parked>(event); parked && parked->state == GateState::kTorn) {
    parked->state = GateState::kCommitted;
    parked->valid = true;
  }
}

void AnnouncedBeforeWritten(const ControllerCore& core, ControllerEvent* event, Extra* after) {
  const auto* done = MessageIn<PhaseDone>(event);
  if (!done || done->phase != Phase::kDump || done->code != StatusCode::kOk) return;
  for (const auto& member : core.members())
    if (const auto* order = member.order ? std::get_if<PhaseOrder>(&*member.order) : nullptr)
      return after->push_back(FromAgent{std::get<FromAgent>(*event).header, Published{order->step, order->directory}});
}

// ---- what goes out -------------------------------------------------------------------------------------------------

void OpensEarly(const ControllerCore& core, const ControllerEvent& cause, std::vector<ControllerAction>* actions) {
  ControllerEvent event = cause;
  if (const auto* entered = MessageIn<GateEntered>(&event); entered && core.phase() == Phase::kRunning)
    actions->push_back(Send{HeaderOf(core, static_cast<size_t>(std::get<FromAgent>(cause).header.rank.value())),
                            GateOpen{entered->step}});
}

void StopsPastS(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) {
  for (ControllerAction& action : *actions)
    if (auto* stop = MessageOut<StopOrder>(&action); stop && std::get<Send>(action).header.rank == Rank(0))
      stop->step = stop->step.Next();
}

void SkipsRollback(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) {
  for (ControllerAction& action : *actions)
    if (const auto* order = MessageOut<PhaseOrder>(&action); order && order->phase == Phase::kRollback)
      std::get<Send>(action).message = ResumeOrder{order->step};
}

void CopiesBackwards(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) {
  for (ControllerAction& action : *actions)
    if (auto* order = MessageOut<PhaseOrder>(&action))
      for (RepairMove& move : order->moves)
        if (!move.sources.empty()) std::swap(move.destination, move.sources.front());
}

void TellsNothingAgain(const ControllerCore&, const ControllerEvent& cause, std::vector<ControllerAction>* actions) {
  if (!Joins(cause)) return;
  std::erase_if(*actions, [](ControllerAction& action) {
    return std::holds_alternative<Send>(action) && !MessageOut<JoinReply>(&action);
  });
}

void KillsNobody(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) {
  std::erase_if(*actions, [](const ControllerAction& action) { return std::holds_alternative<KillProcess>(action); });
}

void SpawnsBeyondBudget(const ControllerCore& core, const ControllerEvent& cause,
                        std::vector<ControllerAction>* actions) {
  const auto* exited = std::get_if<ProcessExited>(&cause);
  if (!exited || core.phase() == Phase::kEnded || !core.policy().can_spawn) return;
  const auto& member = core.members()[static_cast<size_t>(exited->rank.value())];
  if (member.life == ControllerCore::Life::kDead && member.incarnation == exited->incarnation)
    actions->push_back(SpawnProcess{exited->rank, exited->incarnation.Next()});
}

void ResumesOneBack(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) {
  for (ControllerAction& action : *actions)
    if (auto* resume = MessageOut<ResumeOrder>(&action); resume && resume->step.value() > 0)
      resume->step = resume->step.Previous();
}

void ForgetsASender(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) {
  // A save of which one part is nobody's.
  for (ControllerAction& action : *actions)
    if (auto* order = MessageOut<PhaseOrder>(&action); order && order->phase == Phase::kDump && !order->entries.empty())
      order->entries.pop_back();
}

// What an operator asks for is done at once, wherever the rank stands.
void ReplacesAtOnce(const ControllerCore& core, ControllerEvent* event, Extra*) {
  const auto* asked = std::get_if<core::OperatorReplace>(event);
  if (!asked || !core.WhyNotReplaced(asked->rank).empty()) return;
  *event = FromAgent{HeaderOf(core, static_cast<size_t>(asked->rank.value())),
                     FaultReport{.kind = FaultKind::kStalled, .text = "an operator asked for a new process"}};
}

void DrainsAtOnce(const ControllerCore& core, ControllerEvent* event, Extra* after) {
  const auto* asked = std::get_if<core::OperatorDrain>(event);
  if (!asked || !core.WhyNotDrained(asked->first, asked->ranks).empty()) return;
  const core::OperatorDrain order = *asked;
  const auto stalled = [&core](int rank) {
    return FromAgent{HeaderOf(core, static_cast<size_t>(rank)),
                     FaultReport{.kind = FaultKind::kStalled, .text = "an operator drains the node"}};
  };
  *event = stalled(order.first.value());
  for (int rank = order.first.value() + 1; rank < order.first.value() + order.ranks; ++rank)
    after->push_back(stalled(rank));
}

// Who dialed in vain does not say whom.
void NobodyNamed(const ControllerCore&, ControllerEvent* event, Extra*) {
  if (PhaseDone* const done = MessageIn<PhaseDone>(event)) done->unreached.clear();
}

// A host that others cannot reach keeps its ranks.
void StaysInPlace(const ControllerCore&, const ControllerEvent&, std::vector<ControllerAction>* actions) {
  std::erase_if(*actions, [](const ControllerAction& action) { return std::holds_alternative<core::NodeCutOff>(action); });
}

}  // namespace

std::vector<Mutant> ControllerMutants() {
  return {
      {"any_generation", "the controller looks at a message's generation", "quick", 1897, Promise::kCheckpoint,
       In(AnyGeneration)},
      {"any_term", "the controller looks at a message's term", "network", 174, Promise::kInnocent, In(AnyTerm)},
      {"always_moving", "a step that does not move is a fault", "quick", 36, Promise::kProgress, In(AlwaysMoving),
       true},
      {"any_exit", "the exit of an older incarnation is not the living one's", "quick", 66, Promise::kInnocent,
       In(AnyExit)},
      {"digest_not_compared", "VERIFY compares digests", "quick", 13, Promise::kSameStep, In(NoDigest)},
      {"lock_one_short", "LOCK waits for every live rank", "quick", 34, Promise::kInnocent, Short<LockReply>()},
      {"stop_one_short", "STOP waits until all are parked", "quick", 39, Promise::kInnocent, Short<Parked>()},
      {"rollback_one_short", "ROLLBACK waits for every rank", "quick", 4, Promise::kInnocent,
       Short<PhaseDone>(Of(Phase::kRollback))},
      {"dump_one_short", "a checkpoint is published when all parts are written", "quick", 10, Promise::kCheckpoint,
       Short<PhaseDone>(Of(Phase::kDump))},
      {"echo_breaks_reporter", "a communication error never breaks its reporter", "quick", 15, Promise::kInnocent,
       In(EchoBreaks)},
      {"closed_is_dead", "a lost connection may come back", "network", 3, Promise::kOneDecider, In(ClosedIsDead)},
      {"damage_unheard", "damaged memory is news in any phase", "quick", 34, Promise::kProgress, In(DamageUnheard)},
      {"torn_counts", "a torn update is no step's state", "quick", 75, Promise::kInnocent, In(TornCounts)},
      {"announced_before_written", "a checkpoint counts once it is visible", "quick", 4075, Promise::kCheckpoint,
       In(AnnouncedBeforeWritten)},
      {"gate_opens_early", "the gate opens when every rank is at it", "quick", 105, Promise::kInnocent,
       Out(OpensEarly)},
      {"stops_past_s", "all meet at one S", "quick", 34, Promise::kInnocent, Out(StopsPastS)},
      {"rollback_skipped", "objects go back to S", "quick", 2, Promise::kUpdateOnce, Out(SkipsRollback)},
      {"copied_backwards", "a source is an intact rank", "quick", 5, Promise::kInnocent, Out(CopiesBackwards)},
      {"not_told_again", "orders are repeated to a rank that joins again", "network", 13, Promise::kInnocent,
       Out(TellsNothingAgain)},
      {"kills_nobody", "who is given up is killed", "quick", 29, Promise::kOneDecider, Out(KillsNobody)},
      {"spawns_beyond_budget", "respawns have a budget", "quick", 95, Promise::kTable, Out(SpawnsBeyondBudget)},
      {"resumes_one_back", "the run goes on from S", "quick", 4, Promise::kUpdateOnce, Out(ResumesOneBack)},
      {"part_forgotten", "a save has every shard", "quick", 1, Promise::kCheckpoint, Out(ForgetsASender)},
      {"store_not_fenced", "the rendezvous store refuses an older generation", "quick", 215, Promise::kOneDecider,
       [] { return std::make_unique<StoreFence>(); }},
      {"chunk_not_resent", "a chunk that did not arrive is sent again", "default", 802, Promise::kSameStep,
       [] { return std::make_unique<LostChunk>(); }},
      {"replaces_at_once", "a healthy process goes where that costs nothing", "orders", 14, Promise::kInnocent,
       In(ReplacesAtOnce), true},
      {"drained_in_place", "a node that is drained loses its ranks", "drains", 2, Promise::kInnocent, Out(StaysInPlace),
       true},
      {"drains_at_once", "a node is drained at the end of a step", "drains", 2, Promise::kInnocent, In(DrainsAtOnce),
       true},
      {"nobody_named", "who dialed in vain says whom", "roads", 22, Promise::kInnocent, In(NobodyNamed), true},
      {"stays_in_place", "a host that others cannot reach loses its ranks", "roads", 22, Promise::kInnocent,
       Out(StaysInPlace), true},
  };
}

}  // namespace kintsugi::sim
