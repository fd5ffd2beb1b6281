// AgentBench: one AgentCore, and a controller's voice.
#pragma once

#include <utility>
#include <vector>

#include "runtime/core/agent_core.h"

namespace kintsugi::core {

using Outcome = TrainerParked::Outcome;

inline GateWord Committed(uint64_t step) { return {false, GateState::kCommitted, Step(step)}; }

// One agent of rank 1, incarnation 2, and a controller's voice.
class AgentBench {
 public:
  explicit AgentBench(bool replacement = false)
      : core(Rank(1), Incarnation(2), Term{3, 1}, Generation(4), replacement) {}

  std::vector<AgentAction> Do(const AgentEvent& event) { return core.Step(event); }
  std::vector<AgentAction> Order(ControllerMessage message, uint64_t generation) {
    const bool stops = std::holds_alternative<StopOrder>(message);
    auto actions = Do(FromController{{Term{3, 1}, Generation(generation), Rank(1), Incarnation(2)}, std::move(message)});
    if (stops && stop_returns_at_once)
      for (AgentAction& action : Do(StopReturned{})) actions.push_back(std::move(action));
    return actions;
  }
  void BeReady() {
    core.SetReady(Ready());
    Do(TrainerParked{Outcome::kReady, Committed(0), {}});
  }
  // Ready, and into the loop.
  void Start() {
    BeReady();
    Order(ResumeOrder{Step(0)}, 4);
    Do(TrainerResumed{});
  }
  // Through LOCK and STOP of a generation; the trainer parks with `word`.
  void Halt(uint64_t generation, GateWord word) {
    Order(LockOrder{}, generation);
    Do(GateLocked{word});
    Order(StopOrder{word.step, true}, generation);
    Do(TrainerParked{Outcome::kInterrupted, word, {}});
  }
  std::vector<AgentAction> Run(Phase phase, uint64_t generation, uint64_t step, std::vector<RepairMove> moves = {}) {
    return Order(PhaseOrder{.phase = phase, .step = Step(step), .moves = std::move(moves)}, generation);
  }
  void Complete(Phase phase, uint64_t generation, uint64_t step, std::vector<RepairMove> moves = {}) {
    Run(phase, generation, step, std::move(moves));
    Do(HandlerDone{Generation(generation), {.phase = phase}});
  }

  AgentCore core;
  bool stop_returns_at_once = true;
};

template <typename T>
std::vector<T> All(const std::vector<AgentAction>& actions) {
  std::vector<T> found;
  for (const AgentAction& action : actions)
    if (const auto* a = std::get_if<T>(&action)) found.push_back(*a);
  return found;
}
template <typename T>
std::vector<T> Said(const std::vector<AgentAction>& actions) {
  std::vector<T> found;
  for (const SendMessage& send : All<SendMessage>(actions))
    if (const auto* m = std::get_if<T>(&send.message)) found.push_back(*m);
  return found;
}

}  // namespace kintsugi::core
