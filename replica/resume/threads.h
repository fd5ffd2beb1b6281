// How many threads of one rank work on its state at once (private).
#pragma once

#include <algorithm>
#include <thread>

namespace kintsugi::resume {

// `asked`, where it is not 0. Two keep a disk, or memory, busy while bytes are copied; more where the host has cores
// for them. How many ranks share it is not known here: eight, or all.
inline int ThreadsOf(int asked, int world_size) {
  constexpr int kRanksOfHost = 8;
  if (asked > 0) return asked;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / std::clamp(world_size, 1, kRanksOfHost), 2, 8);
}

}  // namespace kintsugi::resume
