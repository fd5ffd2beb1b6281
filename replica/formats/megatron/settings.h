// What Megatron's optimizers keep beside tensors: groups of parameters with their settings (learning rate, betas, ..), and how
// many updates there were.
//
// What: found in what a run of kintsugi.megatron saved ("optimizer.0.settings", a step of each parameter), or in common.pt; as
// objects they are called as there, "optimizer.param_groups.0.lr".
// Errors: none; what is of another form is left alone.
// Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replica/formats/catalog.h"

namespace kintsugi::formats::megatron {

// The settings of one group, by name; each a pickle.
struct ParamGroup {
  std::vector<std::pair<std::string, CatalogObject>> settings;

  // Nothing where it is no number or truth.
  std::optional<double> NumberOf(std::string_view name) const;
};

// Those that stand among the objects as common.pt has them, of either optimizer. `rest`: the other objects, where asked for.
std::vector<ParamGroup> GroupsIn(const std::vector<CatalogObject>& objects, std::vector<CatalogObject>* rest = nullptr);

// Those that a run of kintsugi.megatron saved: each as the first rank has it that has such a group.
std::vector<ParamGroup> GroupsOfRun(const std::vector<CatalogObject>& objects);

// How many updates every parameter has had; nothing where none was counted, or they differ.
std::optional<double> StepOf(const Catalog& source);

}  // namespace kintsugi::formats::megatron
