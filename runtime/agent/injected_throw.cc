#include "runtime/agent/injected_throw.h"

#include <stdexcept>

namespace kintsugi {

Status Mark(Agent& agent, Step step, TrainPhase phase) {
  Status status = agent.EnterPhase(step, phase);
  if (TakeInjectedThrow(agent)) throw std::runtime_error(status.message());
  return status;
}

}  // namespace kintsugi
