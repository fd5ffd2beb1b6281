// For the C ABI, whose callers raise an injected `throw` as an exception of their own language.
//
// Threads: as the calls of Agent that it follows.
#pragma once

#include "runtime/agent.h"

namespace kintsugi {

// Whether the newest EnterPhase or BeginCollective of this agent carried out an injected `throw`; true once.
bool TakeInjectedThrow(Agent& agent);

}  // namespace kintsugi
