// A picture of what a campaign covered: faults by the controller's phase in which they struck, one cell for each pair.
//
// One SVG that stands by itself, readable in light and dark; a cell's shade grows with the logarithm of its count.
// Threads: pure.
#pragma once

#include <string>

#include "runtime/sim/campaign.h"

namespace kintsugi::cli {

// `what`: the runs in words, below the title.
std::string DrawCoverage(const sim::Campaign& campaign, const std::string& what);

}  // namespace kintsugi::cli
