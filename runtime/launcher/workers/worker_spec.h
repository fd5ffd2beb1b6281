// What the processes of a host are started with: their environment, and the descriptors that they get.
//
// Threads: pure functions.
// Errors: none.
// Invariants: nothing of a launcher, torchrun or rank around this launcher reaches a process: what is not set is unset.
#pragma once

#include <string>

#include "runtime/launcher/workers/worker_options.h"
#include "runtime/process/process_spec.h"
#include "runtime/process/spare_channel.h"

namespace kintsugi {

// What all processes of a pool have of its own.
struct WorkerShares {
  std::string mark;  // in the environment of each: those of no other node that happens to run on the same host have it
  int secret_fd = -1;
  int device_fd = -1;
  int warm_list_fd = -1;  // where a rank says what it has loaded (warm_process.h); -1: there is no warm process
};

// Every process, a rank's and a spare's: neither knows its rank yet.
ProcessSpec CommonSpec(const WorkerPoolOptions& options, const WorkerShares& shares);
// A process of this rank, on this device of the host.
ProcessSpec RankSpec(const WorkerPoolOptions& options, const WorkerShares& shares, const RankIncarnation& who,
                     int device);
// The process that forks others. It is no rank: it gets neither a page nor the secret.
ProcessSpec WarmSpec(const WorkerPoolOptions& options, const WorkerShares& shares, int server_fd, int list_fd);

}  // namespace kintsugi
