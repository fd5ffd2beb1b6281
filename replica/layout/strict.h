// Strict handling: what a load does about keys that do not match.
//
// What: *unexpected* is asked for by some rank but not stored; *missing* is stored but asked for by no rank. Each of
// the eight modes says, for both, whether they are ignored, logged, returned or an error, and whether unexpected keys
// leave the request.
//   mode                   unexpected                          missing
//   assume_ok_unexpected   kept: the load itself may fail      ignored
//   log_unexpected         logged, removed                     ignored
//   log_all                logged, removed                     logged
//   raise_unexpected       error                               ignored
//   raise_all              error                               error
//   return_unexpected      returned, removed                   ignored
//   return_all             returned, removed                   returned
//   ignore_all             removed                             ignored
// The decision is a pure function of the merged request of all ranks: a key that one rank alone asks for is an error
// on every rank, so that nobody waits for those who left.
// Threads: pure.
// Errors: kUnexpected and kMissing.
// Source: StrictHandling in `dist_checkpointing.validation` of Megatron-core.
#pragma once

#include <string_view>
#include <vector>

#include "replica/layout/error.h"
#include "replica/layout/metadata.h"

namespace kintsugi::layout {

enum class StrictHandling : uint8_t {
  kAssumeOkUnexpected,
  kLogUnexpected,
  kLogAll,
  kRaiseUnexpected,
  kRaiseAll,
  kReturnUnexpected,
  kReturnAll,
  kIgnoreAll,
};

// Names as above.
KINTSUGI_EXPORT std::string_view StrictHandlingName(StrictHandling handling);
KINTSUGI_EXPORT std::optional<StrictHandling> StrictHandlingFromName(std::string_view name);
// Whether the verdict speaks of missing keys, for which every rank's request is needed.
KINTSUGI_EXPORT bool JudgesMissing(StrictHandling handling);
// Whether a key of either kind is an error.
KINTSUGI_EXPORT bool RaisesUnexpected(StrictHandling handling);
KINTSUGI_EXPORT bool RaisesMissing(StrictHandling handling);

struct Mismatch {
  std::string key;
  KeyKind kind = KeyKind::kTensor;
  std::vector<int32_t> ranks;  // that ask for it, or, of a missing key, that stored it
  bool operator==(const Mismatch&) const = default;
};

// All lists in key order.
struct StrictVerdict {
  std::vector<LayoutError> errors;            // to be raised, on every rank
  std::vector<LayoutError> to_log;            // to be logged, by one rank
  std::vector<Mismatch> unexpected, missing;  // to be returned to the caller
  std::vector<std::string> removed;           // keys to be taken out of the request
};

// `metadata` without these keys (ascending), canonical as before.
KINTSUGI_EXPORT Metadata Without(const Metadata& metadata, const std::vector<std::string>& keys);

KINTSUGI_EXPORT StrictVerdict JudgeStrictly(StrictHandling handling, const Metadata& stored, const Metadata& requested);

}  // namespace kintsugi::layout
