// Storage keys of objects: "<key>/shard_<o0.o1...>_<s0.s1...>", place and grid shape of one object.
//
// What: written as Megatron-core writes them, and read so that a key may itself contain '/' and '_': the split is at
// the last "/shard_". Files of old versions have a shape one shorter than the offset; -1 is appended to it then,
// meaning unknown.
// Errors: kFormat, with the text.
// Threads: pure functions.
// Source of the format: ShardedObject in `dist_checkpointing.mapping` of Megatron-core.
#pragma once

#include <string>

#include "callbacks/state/descriptors.h"
#include "replica/layout/error.h"

namespace kintsugi::layout {

struct ObjectKey {
  std::string key;
  Shape grid_offset;
  Shape grid_shape;
  bool operator==(const ObjectKey&) const = default;
};

// An object without a grid is written as the only one of a grid of one axis: "key/shard_0_1".
KINTSUGI_EXPORT std::string StorageKey(const ObjectKey& object);
KINTSUGI_EXPORT Result<ObjectKey, LayoutError> ParseStorageKey(const std::string& text);

}  // namespace kintsugi::layout
