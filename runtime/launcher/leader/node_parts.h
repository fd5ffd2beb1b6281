// What launchers of one host and of several have in common.
//
// Threads: pure functions, but for FreePort, which asks the kernel.
// Errors: none.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/launcher/leader/node_registry.h"
#include "runtime/launcher/run/launcher_options.h"
#include "runtime/launcher/workers/worker_pool.h"
#include "runtime/net/control_socket.h"
#include "runtime/net/transport_options.h"

namespace kintsugi {

// Bounds of the connection between them: it carries the frames of all agents of a node, each with a few words around
// it.
inline net::TransportLimits NodeLimits(int local_ranks) {
  net::TransportLimits limits;
  limits.frame_bytes += 64 * 1024;
  limits.queue_frames *= static_cast<size_t>(local_ranks) + 1;
  limits.queue_bytes *= static_cast<size_t>(local_ranks) + 1;
  return limits;
}

// A caller that asks for a save waits for its outcome; how long is the caller's to say.
inline net::ControlSocketOptions ControlOptions() {
  net::ControlSocketOptions options;
  options.answer_deadline = std::chrono::hours(1);
  return options;
}

// How often a node and its controller tell each other that they live.
inline Duration NodeBeat(const core::Policy& policy) {
  return std::clamp<Duration>(policy.silence / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(250));
}

// How long workers may take to leave once the run has ended: what is left of the grace period, where one was asked to
// stop.
inline Duration LeaveLimit(std::optional<TimePoint> stop_asked, Duration grace) {
  constexpr Duration kLeast = std::chrono::milliseconds(100), kMost = std::chrono::seconds(10);
  if (!stop_asked) return kMost;
  return std::clamp<Duration>(*stop_asked + grace - SteadyClock::SteadyNow(), kLeast, kMost);
}

inline NodeShape ShapeOf(const LauncherOptions& run) {
  return {run.nodes, run.controllers, run.policy.world_size / run.nodes};
}

// A port that is free now, for the trainer's own use (MASTER_PORT), or a meeting's: the last one of `ports`, since
// listeners of ours take the first; of any, one that no connection takes for itself. 0: none is.
uint16_t FreePort(const std::string& on_address, PortRange ports);

// Beside the journal, which outlives the run.
inline std::string StacksDirectory(const LauncherOptions& run) {
  const size_t slash = run.journal.path.rfind('/');
  return slash == std::string::npos ? run.run_directory : run.journal.path.substr(0, slash);
}

// All but where the master and the controller are.
inline WorkerPoolOptions PoolOptionsOf(const LauncherOptions& run, int node_rank) {
  const int local_ranks = ShapeOf(run).local_ranks;
  return {.job = run.job,
          .program = run.program,
          .args = run.args,
          .environment = run.environment,
          .world_size = run.policy.world_size,
          .first_rank = Rank(node_rank < run.nodes ? node_rank * local_ranks : 0),
          .local_ranks = local_ranks,
          .node_rank = node_rank,
          .has_ranks = node_rank < run.nodes,
          .address = run.node_address,
          .adopt = run.adopt,
          .warm_args = run.warm_args,
          .preloads = run.preloads,
          .stacks_directory = StacksDirectory(run),
          .spares = run.spares,
          .devices = run.devices,
          .silence = run.policy.silence,
          .show_output = run.show_output,
          .output_to_stderr = run.output_to_stderr,
          .output = run.output,
          .rank_files = run.rank_files};
}

}  // namespace kintsugi
