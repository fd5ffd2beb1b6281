// Why a descriptor cannot be carried by metadata at all (private to this folder).
//
// Only what the arrays cannot hold: keys, numbers of axes, negative or overflowing numbers. All other rules are
// judged once, over the merged metadata.
#pragma once

#include <optional>

#include "callbacks/state/descriptors.h"
#include "replica/layout/error.h"

namespace kintsugi::layout {

std::optional<LayoutError> RefusalOf(const ShardedTensor& tensor);
std::optional<LayoutError> RefusalOf(const ShardedObject& object);

}  // namespace kintsugi::layout
