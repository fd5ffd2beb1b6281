#include "runtime/core/held_state.h"

#include "runtime/core/device_commit.h"

namespace kintsugi::core {

std::optional<Step> StepHeld(const GateWord& word) {
  switch (word.state) {
    case GateState::kCommitted:
      return Step(word.step);
    case GateState::kAtGate:
      if (word.step.value() == 0) return std::nullopt;  // updates are numbered from 1
      return Step(word.step).Previous();
    case GateState::kUpdating:
    case GateState::kTorn:
      break;
  }
  return std::nullopt;
}

bool LeavesHeldWhole(StateMark mark, bool given) {
  return mark == StateMark::kNotYet || (mark == StateMark::kWriting && !given);
}

std::optional<HeldState> HeldAfter(const std::optional<HeldState>& before, const LastWords& last) {
  if (LeavesHeldWhole(last.mark, last.given)) return before;
  if (last.mark != StateMark::kWhole || !last.offered) return std::nullopt;
  const std::optional<Step> step = StepHeld(WithDevice(last.word, last.device_behind));
  if (!step) return std::nullopt;
  return HeldState{last.of, *step, last.clean};
}

}  // namespace kintsugi::core
