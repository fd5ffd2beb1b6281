// Which run is meant where none was named.
#pragma once

#include <string>
#include <vector>

#include "tools/runs/run_list.h"

namespace kintsugi::cli {

// All runs of this user on this host; those that live were asked for their status, for two seconds at most.
std::vector<runs::FoundRun> LookForRuns();

// Sets the folder to that of the only live run where it is empty. False: there is none (exit code 1) or there are
// several (2), which has been printed then.
bool ChooseRun(std::string* run_dir, int& exit_code);

}  // namespace kintsugi::cli
