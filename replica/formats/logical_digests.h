// Logical digests as evidence: what a state was, whatever its format and layout (compare.h), held against what a checkpoint
// holds now.
//
// What: digests come from another checkpoint, or from what `kintsugi ckpt show --digests` said of one. A tensor's other names
// (aliases) have no digest of their own: formats differ in whether they keep them.
// Errors: those of reading; kDataLoss names a file of digests and what is wrong with it.
// Threads: as write.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "replica/formats/format.h"

namespace kintsugi::formats {

using DigestsByKey = std::map<std::string, uint64_t>;

// Of the tensors of `catalog`.
KINTSUGI_EXPORT Result<DigestsByKey> DigestsOf(const Catalog& catalog,
                                               const std::function<void(uint64_t done, uint64_t total)>& progress);
// `path`: a checkpoint of any format, or a JSON file that `show --digests` wrote.
KINTSUGI_EXPORT Result<DigestsByKey> ReadDigests(const std::string& path, const ReadOptions& options,
                                                 const std::function<void(uint64_t done, uint64_t total)>& progress);

struct DigestsMatch {
  uint64_t equal = 0;
  // Ascending: tensors that have other bytes (or another type or shape), and those that are not there.
  std::vector<std::string> other, missing;
  uint64_t more = 0;  // tensors that nothing was said of
};
KINTSUGI_EXPORT DigestsMatch CompareDigests(const DigestsByKey& expected, const DigestsByKey& found);

}  // namespace kintsugi::formats
