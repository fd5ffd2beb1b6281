// What all ranks of Megatron have alike beside tensors: common.pt of torch_dist, and in each of the older files.
//
// What: objects at their paths; `args` a namespace with all that stands below it; and what Megatron's loaders ask of every
// checkpoint (iteration, checkpoint_version). Groups of an optimizer's parameters are its caller's, who knows the optimizer.
// Errors: kInvalidArgument names an object that cannot be written.
// Threads: plain data.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "replica/formats/megatron/settings.h"
#include "replica/formats/torch/state_dict.h"
#include "replica/formats/values.h"

namespace kintsugi::formats::megatron {

// Names of Megatron's (megatron/training/checkpointing.py, save_checkpoint).
inline constexpr std::string_view kArgs = "args", kIteration = "iteration", kVersion = "checkpoint_version",
                                  kOptimizer = "optimizer";
inline constexpr double kVersionWritten = 3.0;

class Common {
 public:
  void Add(const CatalogObject& object);
  // An attribute of `args`, where there is one of that name: what a script was told counts only for the layout that it had.
  void SetLayout(const std::string& name, const Values::Value& value);
  std::optional<int64_t> NumberOf(const std::string& name) const;
  std::optional<std::string> TextOf(const std::string& name) const;
  // REQUIRES: this lives as long as they do.
  std::vector<torch::Leaf> Leaves(uint64_t step) const;

 private:
  std::vector<std::pair<Path, CatalogObject>> objects_;
  std::vector<std::pair<std::string, CatalogObject>> args_;
  std::set<std::string> names_;  // at the top
};

// The settings of a group, below `place` (which is the list's).
void AddGroups(const std::vector<ParamGroup>& groups, const Path& place, std::vector<torch::Leaf>* leaves);

}  // namespace kintsugi::formats::megatron
