// WatchProgram: `kintsugi watch`: starts a program with the hook in each of its Python processes, looks at their marks until it ends, and tells
// on standard error who keeps others waiting.
//
// Threads: one.
// Errors: Status, where nothing was started.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "tools/watch/wait_limits.h"

namespace kintsugi::watch {

struct WatchOptions {
  std::vector<std::string> command;
  std::string package;  // folder of the Python package: its `site` and its `watch`
  WaitBounds limits;
};

// The program's status, as of waitpid.
Result<int> WatchProgram(const WatchOptions& options, const std::function<void(const std::string&)>& tell);

}  // namespace kintsugi::watch
