// The ranks as tiles: each with its number, what its process does, and whether it is late. Pure.
#pragma once

#include <string>
#include <string_view>

#include "runtime/launcher/run/run_status.h"

namespace kintsugi::observe {

std::string RankTiles(const RunStatus& run);
std::string_view RankTilesStyle();

}  // namespace kintsugi::observe
