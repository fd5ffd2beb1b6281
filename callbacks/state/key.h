// Keys: the names of tensors and objects. They travel in JSON and protobuf, are compared between ranks and read by
// people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/export.h"
#include "runtime/base/status.h"

namespace kintsugi {

inline constexpr size_t kKeyBytesMax = 1024;

// Not empty, valid UTF-8 (RFC 3629), without control characters, at most kKeyBytesMax bytes.
KINTSUGI_EXPORT Status ValidateKey(const std::string& key);

// What ValidateKey refuses of its bytes as hex ("\\x0a"); never shorter.
KINTSUGI_EXPORT std::string EscapedKey(const std::string& key);
// Any bytes made fit for a message: what ValidateKey refuses is shown as hex, long keys are cut.
KINTSUGI_EXPORT std::string PrintableKey(const std::string& key);

// Objects in a grid (Megatron-core's ShardedObject): a key names one cell, as "NAME/shard_0.1_2.2": its place along each
// axis, and how many there are. What such a key names in front of that; empty: the key names no cell.
KINTSUGI_EXPORT std::string_view GridName(std::string_view key);

}  // namespace kintsugi
