// WorkerOutput: what the processes of a host print: passed on with the rank before each line, and into files.
//
// Threads: one, which runs the io_context; neither a reader nor a disk is waited for, but by Flush.
// Errors: none: lines that find no room are dropped and counted by those that write them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/launcher/workers/spare_pool.h"
#include "runtime/launcher/workers/worker_options.h"

namespace kintsugi {

class WorkerOutput {
 public:
  explicit WorkerOutput(const WorkerPoolOptions& options) : options_(options) {}

  // Once the options are known.
  void SetUp();
  void OnBegan(const RankIncarnation& who, pid_t pid);
  void OnLine(const Seat& seat, OutputStream stream, std::string_view line);
  void OnOutputEnd(Rank rank);
  void OnEnded(const RankIncarnation& who, const std::string& how);
  // Lines that are still on their way, for a second.
  void Flush();

 private:
  const WorkerPoolOptions& options_;
  std::shared_ptr<OutputPrefixer> prefixer_;  // null: not set up
};

}  // namespace kintsugi
