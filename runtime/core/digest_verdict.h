// DigestVerdict: what the digests of the copies of a shard prove, and which copy is wrong where they differ.
//
// Pure. A copy has a say of its own only if it did not come from another copy here: one that was just streamed says
// what its source says. Where three or more have a say, more than half of them decide. Else the copy that went through
// less is believed: an untouched one before one that was mapped from a dead process, that one before the memory of a
// process that an error of its own ended. Where equals differ nothing tells which is right, and none counts any more.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/core/replica_map.h"

namespace kintsugi::core {

// How a rank came to what it holds; the higher is believed before the lower.
enum class Copy : uint8_t {
  kAbsent,     // it holds nothing that is to be compared
  kStreamed,   // from another copy, or from a checkpoint
  kOfCrashed,  // adopted from a process that an error of its own ended
  kAdopted,    // ... that ended otherwise
  kUntouched,
};

struct DigestVerdict {
  bool equal = true;
  bool attributed = true;  // `odd` are wrong; otherwise all of them are in doubt
  int layout = 0;
  Rank expected;
  Rank differs;  // the first that holds something else; `expected` itself: than what was recorded of it
  std::vector<Rank> odd;
};

// digests[rank][layout]; ranks past the end and layouts that are not there have nothing to compare. Without a state
// service nobody reports a digest, and all are equal.
using Digests = std::vector<std::map<int, uint64_t>>;

// copies[rank]; empty: all are untouched. `strict`: an adopted copy is believed no less than an untouched one.
DigestVerdict CompareDigests(const ReplicaMap& replicas, const Digests& digests, const std::vector<Copy>& copies,
                             bool strict = false);
// With what was recorded of that very step: a copy that differs from it is wrong, on any rank. Ranks without a copy are
// not asked.
DigestVerdict CompareWithRecord(const ReplicaMap& replicas, const Digests& digests, const Digests& recorded,
                                const std::vector<Copy>& copies = {});

// In words, for logs and incidents.
std::string ToString(const DigestVerdict& verdict, Step step);

}  // namespace kintsugi::core
