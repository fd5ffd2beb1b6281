// Store: the rendezvous of one generation, kept on the control plane. Small values only (addresses, ids).
//
// Threads: any.
// Errors: kCancelled when a newer generation supersedes the wait, kDeadlineExceeded with the key and the limit,
// kUnavailable when the control plane is not connected.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

class KINTSUGI_EXPORT Store {
 public:
  virtual ~Store() = default;
  virtual Status Set(const std::string& key, const std::vector<uint8_t>& value) = 0;
  // Waits until the key is there.
  virtual Result<std::vector<uint8_t>> Get(const std::string& key, TimePoint deadline) = 0;
};

}  // namespace kintsugi
