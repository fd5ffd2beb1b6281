// What all ranks of a generation have registered, put together: what a program of names is built against.
//
// Errors: those of Agreement; kFailedPrecondition names what does not fit together, and is every rank's error.
// Threads: as Agreement.
#pragma once

#include <string>

#include "callbacks/state/aliases.h"
#include "callbacks/state/registry.h"
#include "replica/layout/metadata.h"
#include "replica/resume/agreement.h"

namespace kintsugi::resume {

// Of each rank's own, under its own number; a rank that could not say what it has brings its error instead.
Result<layout::Metadata> AgreeOnLayouts(const std::string& name, const Result<layout::Metadata>& own,
                                        Agreement& agreement);

// Of all registered tensors, further names of a tensor (`aliases`, null: none) as tensors of their own.
KINTSUGI_EXPORT Result<layout::Metadata> RegisteredByAll(const StateRegistry& registry, const Aliases* aliases,
                                                         Agreement agreement);

}  // namespace kintsugi::resume
