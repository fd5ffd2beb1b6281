// AgentInternals: what the layers that compose an agent set and read of it, beside what a trainer is given. Not installed.
//
// Threads: as the calls of Agent.
#pragma once

#include <memory>

#include "runtime/agent.h"

namespace kintsugi {

class Aliases;
class SnapshotService;
class StateRegistry;
class StateService;

class AgentInternals {
 public:
  static const StateRegistry& registry(const Agent& agent);
  static const Aliases& aliases(const Agent& agent);

  // Before the guard begins. The agent keeps a reference. Without a snapshot service no in-memory snapshots are made.
  static Status SetStateService(Agent& agent, std::shared_ptr<StateService> service);
  static std::shared_ptr<StateService> state_service(const Agent& agent);
  static Status SetSnapshotService(Agent& agent, std::shared_ptr<SnapshotService> service);

  // Whether the newest EnterPhase or BeginCollective of this agent carried out an injected `throw`; true once. For the
  // C ABI, whose callers raise it as an exception of their own language.
  static bool TakeInjectedThrow(Agent& agent);
  // ... a `flip-grad`, which its callers carry out.
  static bool TakeInjectedFlip(Agent& agent);
};

}  // namespace kintsugi
