// Tasks: the controller's orders on the trainer's thread, one at a time: what the agent does before and after the
// trainer's part of each, and what the controller hears of it.
//
// Threads: the trainer's; the task's cancel token is for any.
// Ownership: the open task, and the context that its handler gets.
// Errors: of a task they go to the controller; whatever is thrown is the task's failure. kFailedPrecondition: a call out of
// turn.
// Invariants: every order that was taken is answered once.
#pragma once

#include <memory>
#include <vector>

#include "runtime/agent/loop_pass.h"
#include "runtime/agent/next_state.h"
#include "runtime/agent/refusals.h"
#include "runtime/agent/relocations.h"
#include "runtime/agent/stop_watch.h"
#include "runtime/agent/store_client.h"

namespace kintsugi {

class Tasks {
 public:
  Tasks(const Membership& self, const Registration& registered, const LoopPass& pass, TrainerPosition& position,
        StoreClient& store, AgentThread& thread, StopWatch& stop, StateOffer& offer, Relocations& relocations,
        NextState& next, Refusals& refusals);
  ~Tasks();

  // False: the task is done already, or was the agent's own.
  bool Begin(const core::RunOnTrainer& run, std::shared_ptr<CancelToken> cancel);
  // The open one, as who pulls it sees it.
  GuardTask open();
  // By the registered handler, or as the trainer says.
  Status CarryOut();
  Status Finish(const Status& outcome);
  // The run goes on with what its tasks have brought about.
  void OnRelease() {
    next_.Keep();
    refusals_.GoOn();
  }
  // Within the trainer's part of a REBUILD.
  Status CutAnew(const CutState& state);

 private:
  struct Open;

  HandlerContext ContextOf(const core::RunOnTrainer& run) const;
  Status Verify();
  Status Prepare();
  Status PrepareObjects();
  Status Conclude();
  void Answer(const Status& status);

  const Membership& self_;
  const Registration& registered_;
  const LoopPass& pass_;
  TrainerPosition& position_;
  StoreClient& store_;
  AgentThread& thread_;
  StopWatch& stop_;
  StateOffer& offer_;
  Relocations& relocations_;
  NextState& next_;
  Refusals& refusals_;
  std::unique_ptr<Open> open_;  // with TrainerAt::kInTask
};

}  // namespace kintsugi
