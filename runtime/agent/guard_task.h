// GuardTask: what the guard asks of the trainer's thread next. Agent::Run works tasks off by itself; a trainer that
// cannot be called back (another language, a loop with frames of its own) pulls them with Agent::NextTask.
//
// Threads: the trainer's.
// Ownership: `call` belongs to the agent and lives until the task is finished.
#pragma once

#include <cstdint>
#include <string>

#include "callbacks/handlers/handlers.h"
#include "runtime/base/ids.h"

namespace kintsugi {

// | kind                     | what to do                                            | and then             |
// |--------------------------|-------------------------------------------------------|----------------------|
// | kNothing                 | the wait ran into its deadline                        | NextTask again       |
// | kLoop                    | train from step.Next() on                             | LeaveLoop            |
// | kClean ... kRename       | what callbacks/handlers/handlers.h says of the kind   | FinishTask, or CarryOutTask |
// | kContinue                | only at a save point: go on where the loop stands     |                      |
// | kUnwind                  | only at a save point: the loop begins anew, or ends   | LeaveLoop            |
// | kEnded                   | the run is over: leave with Agent::exit_code          |                      |
enum class TaskKind : uint8_t {
  kNothing,
  kLoop,
  kClean,
  kRebuildGroup,
  kRepair,
  kRollback,
  kSave,
  kRename,
  kContinue,
  kUnwind,
  kEnded,
};

struct GuardTask {
  TaskKind kind = TaskKind::kNothing;
  Step step;                       // kLoop: the step all ranks stand at
  HandlerContext* call = nullptr;  // kClean ... kRename
  std::string text;                // kEnded: why
};

}  // namespace kintsugi
