// Mutants of what a launcher takes for memory that can be adopted.
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

// Claims the step after the one that the memory stands at.
class StepNotCompared : public Hook {
 public:
  void BeforeController(const ControllerCore&, ControllerEvent* event, std::vector<ControllerEvent>*) override {
    if (auto* told = std::get_if<StateHeld>(event); told && told->held) told->held->step = told->held->step.Next();
  }
};

std::function<std::unique_ptr<Hook>()> Bent(LastWordsBent::Bend bend) {
  return [bend] { return std::make_unique<LastWordsBent>(bend); };
}

}  // namespace

std::vector<Mutant> HeldMutants() {
  return {
      {"torn_memory_held", "memory in mid-update is no step's", "adopt", 1, Promise::kUpdateOnce, Bent([](auto* last) {
         if (last->word.state == GateState::kUpdating) last->word.state = GateState::kCommitted;
       })},
      {"held_step_not_compared", "memory of another step is not adopted", "adopt", 5, Promise::kInnocent,
       [] { return std::make_unique<StepNotCompared>(); }},
  };
}

}  // namespace kintsugi::sim
