// For drills: an injected `throw` as an exception of the trainer's own code, as a mistake of its own would be.
//
// Threads: as the calls of Agent that they follow.
// Errors: as Agent::EnterPhase.
#pragma once

#include "runtime/agent.h"

namespace kintsugi {

// Whether the newest EnterPhase or BeginCollective of this agent carried out an injected `throw`; true once.
KINTSUGI_EXPORT bool TakeInjectedThrow(Agent& agent);

// Agent::EnterPhase, which throws std::runtime_error where a `throw` was injected.
KINTSUGI_EXPORT Status Mark(Agent& agent, Step step, TrainPhase phase);

}  // namespace kintsugi
