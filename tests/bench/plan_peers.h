// Peers of the planner: torch DCP and Megatron-core on the same metadata in the same run.
//
// What: cases of distribution, load plans and validation are measured here, written to a file, and measured by
// plan_peers.py with the peers' own functions. A figure is our time; `baseline` theirs, `ratio` how many times faster.
// Errors: ends the program where build/python lacks the peers (./tools/setup --python).
#pragma once

#include "tests/bench/figures.h"

namespace kintsugi::bench {

// `python`: an interpreter with torch and megatron-core.
void MeasurePeers(Figures& figures, const std::string& python, int runs);

}  // namespace kintsugi::bench
