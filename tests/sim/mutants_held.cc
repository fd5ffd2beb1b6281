// Mutants of what is held of processes that are gone: what a launcher takes for memory that can be adopted, and what
// the controller makes of it.
#include "tests/sim/mutants.h"

namespace kintsugi::sim {
namespace {

// Bends what a process's page says at its end.
class LastWordsBent : public Hook {
 public:
  using Bend = void (*)(core::LastWords*);
  explicit LastWordsBent(Bend bend) : bend_(bend) {}
  void BeforeHeld(core::LastWords* last) override { bend_(last); }

 private:
  const Bend bend_;
};

// Bends what the controller hears.
class HearingBent : public Hook {
 public:
  using Bend = void (*)(const ControllerCore&, ControllerEvent*);
  explicit HearingBent(Bend bend) : bend_(bend) {}
  void BeforeController(const ControllerCore& core, ControllerEvent* event, std::vector<ControllerEvent>*) override {
    bend_(core, event);
  }

 private:
  const Bend bend_;
};

// Rescuers are told to adopt nothing, and save what they have.
class RescuedWithNothing : public Hook {
 public:
  void AfterController(const ControllerCore& core, const ControllerEvent&,
                       std::vector<ControllerAction>* actions) override {
    for (ControllerAction& action : *actions)
      if (auto* send = std::get_if<Send>(&action); send && core.phase() == Phase::kDump)
        if (auto* order = std::get_if<PhaseOrder>(&send->message)) order->moves.clear();
  }
};

std::function<std::unique_ptr<Hook>()> Bent(LastWordsBent::Bend bend) {
  return [bend] { return std::make_unique<LastWordsBent>(bend); };
}
std::function<std::unique_ptr<Hook>()> Heard(HearingBent::Bend bend) {
  return [bend] { return std::make_unique<HearingBent>(bend); };
}

// To VERIFY all copies look like the one that was told of first.
class NothingDiffers : public Hook {
 public:
  void BeforeController(const ControllerCore& core, ControllerEvent* event, std::vector<ControllerEvent>*) override {
    if (core.phase() != Phase::kVerify) return first_.clear();
    auto* from = std::get_if<FromAgent>(event);
    auto* done = from ? std::get_if<PhaseDone>(&from->message) : nullptr;
    if (!done) return;
    for (auto& [layout, digest] : done->digests) digest = first_.try_emplace(layout, digest).first->second;
  }

 private:
  std::map<int, uint64_t> first_;
};

void NothingIsHeld(const ControllerCore&, ControllerEvent* event) {
  if (auto* told = std::get_if<StateHeld>(event)) told->held.reset();
}

void NothingIsRegistered(const ControllerCore&, ControllerEvent* event) {
  const auto* from = std::get_if<FromAgent>(event);
  if (from && std::holds_alternative<core::Ready>(from->message) && from->header.term == Term()) *event = core::Tick{};
}

}  // namespace

std::vector<Mutant> HeldMutants() {
  return {
      {"torn_memory_held", "memory in mid-update is no step's", "adopt", 1, Promise::kUpdateOnce, Bent([](auto* last) {
         if (last->word.state == GateState::kUpdating) last->word.state = GateState::kCommitted;
       })},
      // Claims the step after the one that the memory stands at.
      {"held_step_not_compared", "memory of another step is not adopted", "adopt", 5, Promise::kInnocent,
       Heard([](const ControllerCore&, ControllerEvent* event) {
         if (auto* told = std::get_if<StateHeld>(event); told && told->held) told->held->step = told->held->step.Next();
       })},
      {"held_memory_ignored", "what launchers hold counts", "held", 7, Promise::kInnocent, Heard(NothingIsHeld)},
      {"memory_of_the_away_ignored", "what a node that comes back holds counts", "away", 171, Promise::kInnocent,
       Heard(NothingIsHeld)},
      {"lost_registry_ignored", "what a lost group had registered is known from its launchers", "away", 964,
       Promise::kInnocent, Heard(NothingIsRegistered)},
      {"rescued_with_nothing", "a process that saves for another adopts first", "held", 4, Promise::kCheckpoint,
       [] { return std::make_unique<RescuedWithNothing>(); }},
      {"adopted_not_compared", "adopted memory is compared with its replicas", "doubt", 13, Promise::kInnocent,
       [] { return std::make_unique<NothingDiffers>(); }},
  };
}

}  // namespace kintsugi::sim
