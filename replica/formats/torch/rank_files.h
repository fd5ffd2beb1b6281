// Names of files that ranks saved one each: "model_world_size_4_rank_0.pt", "rank_3.pt", "optim-rank-1.pth".
//
// Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kintsugi::formats::torch {

struct RankFileName {
  std::string family;  // what all ranks' names have in front; may be empty
  int64_t rank = 0;
  std::optional<int64_t> world;
  bool says_rank = false;  // by that word; else a number alone stands at the end
};
// Nothing: it ends with no number, or is no file of torch.save by its ending.
std::optional<RankFileName> ParseRankFileName(std::string_view name);

}  // namespace kintsugi::formats::torch
