// Membership: who this process is in its run, and what the controller said when it joined.
//
// Threads: the agent's writes the reply, the incarnation and the generation before Agent::Join has returned; all of it is
// constant from then on.
// Ownership: its own.
// Errors: none.
#pragma once

#include "runtime/agent/agent_options.h"
#include "runtime/core/messages.h"

namespace kintsugi {

struct Membership {
  AgentOptions options;  // a spare is told its rank and incarnation later
  core::JoinReply join;
  Generation generation;  // that it joined in
};

}  // namespace kintsugi
