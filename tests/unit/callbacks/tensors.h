// Tensors for the tests of callbacks/state.
#pragma once

#include <string>

#include "callbacks/state/descriptors.h"

namespace kintsugi {

// A float32 vector of `elements` that is its own global tensor.
inline ShardedTensor Vector(const std::string& key, void* data, int64_t elements) {
  ShardedTensor tensor;
  tensor.key = key;
  tensor.global_shape = tensor.local_shape = {elements};
  tensor.global_offset = {0};
  tensor.memory.data = data;
  tensor.memory.size_bytes = static_cast<uint64_t>(elements) * 4;
  return tensor;
}

// True when `text` holds every one of `parts`.
template <typename... Parts>
bool Names(const std::string& text, const Parts&... parts) {
  return ((text.find(parts) != std::string::npos) && ...);
}

}  // namespace kintsugi
