// Mutants of what an agent sees of its gate, does about its orders and says of itself.
#include "tests/sim/mutants.h"

namespace kintsugi::sim {
namespace {

class Inward : public Hook {
 public:
  using Bend = std::function<void(const AgentCore&, AgentEvent*)>;
  explicit Inward(Bend bend) : bend_(std::move(bend)) {}
  void BeforeAgent(Rank, const AgentCore& core, AgentEvent* event) override { bend_(core, event); }

 private:
  Bend bend_;
};

class Outward : public Hook {
 public:
  using Bend = std::function<void(const AgentEvent&, std::vector<AgentAction>*)>;
  explicit Outward(Bend bend) : bend_(std::move(bend)) {}
  void AfterAgent(Rank, const AgentCore&, const AgentEvent& cause, std::vector<AgentAction>* actions) override {
    bend_(cause, actions);
  }

 private:
  Bend bend_;
};

std::function<std::unique_ptr<Hook>()> In(Inward::Bend bend) {
  return [bend] { return std::make_unique<Inward>(bend); };
}
std::function<std::unique_ptr<Hook>()> Out(Outward::Bend bend) {
  return [bend] { return std::make_unique<Outward>(bend); };
}

template <typename Action>
void Without(const AgentEvent&, std::vector<AgentAction>* actions) {
  std::erase_if(*actions, [](const AgentAction& action) { return std::holds_alternative<Action>(action); });
}

// The word is read before the lock bit is set, not by the same instruction: an update has begun in between.
void ReadsBeforeLocking(const AgentCore&, AgentEvent* event) {
  auto* locked = std::get_if<GateLocked>(event);
  if (locked && locked->word.state == GateState::kUpdating)
    locked->word = {locked->word.locked, GateState::kCommitted, locked->word.step.Previous()};
}

void SaysCommitted(const AgentCore&, AgentEvent* event) {
  auto* locked = std::get_if<GateLocked>(event);
  if (locked && locked->word.state == GateState::kAtGate) locked->word.state = GateState::kUpdating;
}

void TornIsCommitted(const AgentCore&, AgentEvent* event) {
  auto* parked = std::get_if<TrainerParked>(event);
  if (!parked || parked->word.state != GateState::kTorn) return;
  parked->word.state = GateState::kCommitted;
  parked->outcome = TrainerParked::Outcome::kInterrupted;
}

void Abandons(const AgentEvent&, std::vector<AgentAction>* actions) {
  for (AgentAction& action : *actions)
    if (auto* interrupt = std::get_if<Interrupt>(&action)) interrupt->verdict.step_exists = false;
}

void GoesOn(const AgentEvent&, std::vector<AgentAction>* actions) {
  for (AgentAction& action : *actions)
    if (auto* interrupt = std::get_if<Interrupt>(&action)) interrupt->verdict.step = interrupt->verdict.step.Next();
}

void NotSaidAgain(const AgentEvent& cause, std::vector<AgentAction>* actions) {
  if (std::holds_alternative<Connected>(cause)) Without<SendMessage>(cause, actions);
}

void AcksFromThePast(const AgentCore&, AgentEvent* event) {
  if (auto* stored = std::get_if<PauseStored>(event)) stored->begun = kintsugi::Step();
}

}  // namespace

std::vector<Mutant> AgentMutants() {
  return {
      {"reads_before_locking", "the gate is read and locked at once", "quick", 323, Promise::kInnocent,
       In(ReadsBeforeLocking)},
      {"at_gate_is_updating", "at the gate is not past it", "quick", 34, Promise::kInnocent, In(SaysCommitted)},
      {"torn_is_committed", "an update that threw is torn", "quick", 39, Promise::kProgress, In(TornIsCommitted)},
      {"abandons_at_gate", "who is held at its gate goes on to S", "quick", 105, Promise::kInnocent, Out(Abandons)},
      {"goes_on_at_gate", "who is held at its gate goes no further than S", "quick", 34, Promise::kInnocent,
       Out(GoesOn)},
      {"handler_not_cancelled", "a newer generation cancels the running handler", "network", 6301, Promise::kInnocent,
       Out(Without<CancelHandler>)},
      {"gate_not_locked", "a newer generation locks the gate", "quick", 1, Promise::kInnocent, Out(Without<LockGate>)},
      {"not_said_again", "what a rank said unasked it says again when it is back", "network", 3, Promise::kProgress,
       Out(NotSaidAgain)},
      {"pause_acked_from_the_past", "a pause is answered with the newest step begun", "quick", 161, Promise::kProgress,
       In(AcksFromThePast)},
  };
}

}  // namespace kintsugi::sim
