// WorkerPoolOptions: what the processes of this host's ranks are started with, and how they are looked after.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/process/output_prefixer.h"
#include "runtime/process/rank_files.h"

namespace kintsugi {

struct WorkerPoolOptions {
  std::string job;
  std::string program;
  std::vector<std::string> args;
  std::map<std::string, std::string> environment;
  int world_size = 1;
  Rank first_rank;  // of this host; LOCAL_RANK counts from it
  int local_ranks = 1;
  int node_rank = 0;
  bool has_ranks = true;  // false: of a spare node, which keeps a warm process for each rank that it may take over
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;
  std::string controller;             // HOST:PORT, as the ranks reach it
  std::string address = "127.0.0.1";  // of this host, as other ranks reach it
  bool adopt = true;                  // state memory is kept for the process that comes after
  std::vector<std::string>
      warm_args;                 // of `program`, as a process that forks replacements (warm_process.h); empty: none
  bool preloads = false;         // the first processes are forked from it, too
  std::string stacks_directory;  // where the stacks of those go that are killed; empty: the log has their first lines
  int spares = 0;                // processes that wait, warm, for a rank whose process is gone
  int devices = 0;  // of this host, which are then watched; 0: one for each rank, not watched; kVisibleDevices
  Duration silence = std::chrono::seconds(1);  // of a process that has begun to beat and is not in its loop yet
  bool show_output = true;
  bool output_to_stderr = false;
  std::shared_ptr<OutputPrefixer> output;  // null: one is made
  std::shared_ptr<RankFiles> rank_files;   // null: none

  int LocalRankOf(Rank rank) const { return rank.value() - first_rank.value(); }
};

}  // namespace kintsugi
