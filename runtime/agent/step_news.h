// TellStep, HearStep: what ranks know of a step that any of them refuses (runtime/core/refused_step.h) comes to all of them.
//
// Who has something to tell does so in REBUILD; all hear it in ROLLBACK, which begins once every rank has ended REBUILD. Where
// nobody has, that is one question of each rank. Else the first of the crew puts it together, and the others ask for that:
// questions grow with the ranks, not with their square.
//
// Threads: the trainer's.
// Errors: as the store's; kDataLoss: what is there is not what a rank tells.
#pragma once

#include "callbacks/handlers/handlers.h"
#include "runtime/core/refused_step.h"

namespace kintsugi {

Status TellStep(const HandlerContext& call, const core::StepFacts& facts);
Result<core::StepNews> HearStep(const HandlerContext& call);

}  // namespace kintsugi
