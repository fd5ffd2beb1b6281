// Verify: that a checkpoint of any format is whole and, where we wrote it, that every byte is as written.
//
// What: the catalog's own checks (structure, bounds, cover), then every block that our sidecar, or a native checkpoint,
// has a checksum of. A foreign checkpoint without a sidecar proves its structure only, and the answer says so.
// Errors: kDataLoss names file and place.
// Threads: as write.h.
#pragma once

#include <functional>
#include <string>

#include "replica/formats/format.h"

namespace kintsugi::formats {

struct Verified {
  std::string format;
  uint64_t tensors = 0;
  uint64_t bytes = 0;          // of tensors
  bool has_checksums = false;  // ours, over every byte
  uint64_t checked_bytes = 0;
  uint64_t tensor_sums = 0;  // tensors that are what their writers summed up (replica/save/tensor_sums.h)
  std::vector<std::string>
      notes;  // what a person should know, and is no error: a parameter without a state that others have
};

KINTSUGI_EXPORT Result<Verified> VerifyAny(const std::string& path, const std::string& format,
                                           const std::function<void(uint64_t done)>& progress);

}  // namespace kintsugi::formats
