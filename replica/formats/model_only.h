// ModelOnly: the model alone of what a run saved, as its library looks for it: parameters under their own names, tied ones
// tied, and its buffers (model_buffers.h); no optimizer's state, none of the run's objects.
//
// Where names begin with "model/", as those of Python trainers do, the model is what is called so, without that word.
// Else it is every tensor that is no optimizer's state (aoa/state_names.h), and where a trainer keeps master weights alone,
// these, as the parameters that they are.
// Threads: none.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "replica/aoa/tensors.h"
#include "replica/formats/catalog.h"

namespace kintsugi::formats {

// What Python trainers call their model's tensors.
inline constexpr std::string_view kModelPrefix = "model/";

// A catalog of its own, over the same files; its notes say what was left out that a model may need.
// kFailedPrecondition: there is no such tensor.
Result<Catalog> ModelOnly(const Catalog& source);

// The name that each tensor of the model gets, by the one that it has; empty: there is no such tensor.
std::map<std::string, std::string> ModelNames(const aoa::Tensors& tensors);

}  // namespace kintsugi::formats
