// Launcher: starts a run's ranks on this host, watches and respawns them, and hosts the controller.
//
// A run of several hosts has a launcher on each of them: NodeLauncher (node_launcher.h).
//
// Every rank shares a page with it (liveness, progress, gate word, reports), which it reads every few milliseconds; a
// death is known through the process's pidfd. Nothing outlives it: workers die with it, memory has no names.
// Threads: one, the caller's, for the length of Run. Signals: SIGINT, SIGTERM and SIGHUP ask for an orderly end
// (finish the step, save, exit 75); a second one ends at once.
// Errors: what keeps a run from starting is returned; how a run ended is in the result.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/launcher/run/launcher_options.h"
#include "runtime/launcher/run/progress_meter.h"
#include "runtime/launcher/run/run_result.h"

namespace kintsugi {

class GenerationLog;  // run/generation_log.h

class Launcher {
 public:
  Launcher(LauncherOptions options, std::shared_ptr<LogSink> log);
  ~Launcher();
  // Called on Run's thread, at most ten times a second.
  void OnProgress(std::function<void(const RunProgress&)> listener);
  // Once.
  Result<RunResult> Run();

 private:
  const LauncherOptions options_;
  std::shared_ptr<GenerationLog> log_;
  std::function<void(const RunProgress&)> listener_;
  class Impl;
  std::unique_ptr<Impl> impl_;  // once it runs
};

}  // namespace kintsugi
