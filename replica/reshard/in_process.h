// ExecuteInProcess: all ranks of a plan as threads of this process, over in-process links.
//
// What: for one process that holds every rank's memory: conversion of a stored state, tests.
// Errors: the first rank's that is no echo of another rank's (kCommFailure, kCancelled); `statuses` has every rank's.
// Threads: any; starts one for each rank beside those of Execute and joins them.
// Ownership: as execute.h.
#pragma once

#include "replica/reshard/execute.h"

namespace kintsugi::reshard {

// `bindings[r]` are rank r's; `plan` is the whole plan. One result for each rank.
KINTSUGI_EXPORT Result<std::vector<ExecuteResult>> ExecuteInProcess(
    const plan::Plan& plan, const layout::Metadata& source, const layout::Metadata& target,
    const std::vector<Bindings>& bindings, const ExecuteOptions& options = {}, std::vector<Status>* statuses = nullptr);

}  // namespace kintsugi::reshard
