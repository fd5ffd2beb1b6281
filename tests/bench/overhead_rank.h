// One rank of bench_overhead: byte_lm with the agent, or the same training stages over the same groups without it.
//
// A rank leaves what it measured in `folder` as rank-N.json.
// Threads: one rank per process.
// Errors: end the process (Need).
// Units: in the names.
#pragma once

#include <filesystem>

#include "runtime/base/ids.h"
#include "tests/bench/figures.h"

namespace kintsugi::bench {

struct RankOptions {
  int world_size = 2;
  int64_t batch = 8;
  int64_t steps = 100;   // measured
  int64_t warmup = 10;   // before them
  uint64_t ballast_mib = 0;  // of further registered state
  int probes = 0;        // without the agent: barriers and mirror exchanges to time after the steps
  std::filesystem::path folder;
};

struct RankFigures {
  double step_ms = 0;              // mean over the measured steps
  double agent_cpu_share = 0;      // CPU time of the agent's threads by wall time
  double launcher_cpu_share = 0;   // the same of all threads of the launcher, controller included
  double snapshot_cpu_share = 0;   // ... of those that copy in-memory snapshots
  double barrier_us = 0;           // medians over the probes
  double mirror_us = 0;
};

// Runs under `kintsugi run`, which sets the environment.
void RunWithAgent(const RankOptions& options);
void RunWithoutAgent(const RankOptions& options, Rank rank);

RankFigures ReadRank(const std::filesystem::path& folder, int rank);

}  // namespace kintsugi::bench
