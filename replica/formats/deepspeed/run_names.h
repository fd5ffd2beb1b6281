// RunNames: a state whose optimizer's states are called in any of the known ways (aoa/state_names.h), as DeepSpeed calls it.
//
// What: a model's tensor becomes module.NAME (less "model/", which Python trainers put in front), its states zero.NAME.STATE by
// their meaning, and zero.NAME.fp32 is the master weight, or where a trainer keeps none the model's tensor itself; one that
// keeps masters alone has them as module.NAME too. Parameters that have the same states at the same step are one group.
// Errors: none; what DeepSpeed has no word for is left out with a note.
// Threads: pure.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "replica/formats/catalog.h"

namespace kintsugi::formats::deepspeed {

struct RunNames {
  Catalog catalog;
  std::set<std::string> masters;  // keys that are float32 in DeepSpeed, whatever they are here
};

// Nothing: it has DeepSpeed's names already, or no state of an optimizer.
Result<std::optional<RunNames>> CalledAsDeepSpeed(const Catalog& source);

}  // namespace kintsugi::formats::deepspeed
