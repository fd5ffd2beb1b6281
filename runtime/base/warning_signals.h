// WarningSignals: by which signals a job is told that it will be ended, and is to save and leave: SIGTERM, those by which
// batch systems warn, and others that an operator names.
//
// Threads: plain values and pure functions.
// Errors: Parse: kInvalidArgument that names the word and what is known.
#pragma once

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi {

// Always: SIGTERM, and those of batch systems (Slurm's --signal, Grid Engine's -notify, limits of processor time).
inline constexpr std::array kWarningSignals = {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};

// Others, as "ALRM,RTMIN+3", each with SIG before it or without; in their order, each once; "" is none. Signals that
// cannot be caught, and those by which a process is told of its own mistakes, are none.
Result<std::vector<int>> ParseSignals(const std::string& list);

}  // namespace kintsugi
