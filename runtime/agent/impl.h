// Agent::Impl: an agent's two halves and what they share; how it joins and how it ends. Agent's methods forward to the parts.
//
// Threads: the trainer's makes and ends it; each part says whose it is.
// Ownership: of all parts.
// Errors: Start: as Agent::Join says.
// Invariants: when the destructor stops the agent's thread all parts are there still; none of it touches a part after.
#pragma once

#include <memory>

#include "runtime/agent/shared_parts.h"
#include "runtime/agent/thread_half.h"
#include "runtime/agent/trainer_half.h"

namespace kintsugi {

class Agent::Impl {
 public:
  Impl(const AgentOptions& options, std::shared_ptr<LogSink> log);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Connects and joins; a spare waits first until it is told its rank.
  Status Start();

  SharedParts shared;
  ThreadHalf half;
  TrainerHalf trainer{shared, half};

 private:
  Status TakeRank(const net::Secret& secret);
};

}  // namespace kintsugi
