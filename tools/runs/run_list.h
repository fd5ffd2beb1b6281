// Which runs of this user are on this host, as their folders say; how a list of them looks.
//
// Threads: any.
// Errors: none: a folder that cannot be read is left out.
// Invariant: nothing is removed or changed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kintsugi::runs {

enum class RunState {
  kLive,   // its launcher holds the folder's lock
  kEnded,  // it has ended, and left its journal to be looked at
  kGone,   // its launcher was killed, or died with the host: what lies there is stale
};

std::string_view RunStateName(RunState state);

struct FoundRun {
  std::string folder;   // ours, in the base
  std::string run_dir;  // what --run takes
  RunState state = RunState::kLive;
  std::string job;
  std::string node;      // "0"
  int64_t pid = 0;       // of the launcher, in its own namespace; 0: not known
  int64_t ranks = 0;     // of the whole run; 0: not known
  int64_t began_ms = 0;  // of the clock on the wall, since 1970; 0: not known
  std::string program;
  nlohmann::json status;  // what a live one answered; null: nothing
};

// All below these bases, the newest first. Bases that are not this user's alone are passed over.
std::vector<FoundRun> FindRuns(const std::vector<std::string>& bases);

// As the list shows it: the phase of one that answers, "SILENT" of a live one that does not, else its state.
std::string StateWords(const FoundRun& run);

nlohmann::ordered_json ListJson(const std::vector<FoundRun>& runs, int64_t now_ms);
// A table with a head; the folder comes last, whole.
std::string ListTable(const std::vector<FoundRun>& runs, int64_t now_ms);

// "45 s", "12 min", "3 h 05 min", "9 d 4 h"
std::string AgeWords(int64_t seconds);

}  // namespace kintsugi::runs
