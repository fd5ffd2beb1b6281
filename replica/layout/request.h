// What is asked for against what is stored: the checks before anything is loaded.
//
// What: every requested key is stored as the same kind, with the same dtype unless a cast was asked for, and with the
// same global shape unless all its holders allow another one (then the common box is copied; what the stored tensor
// does not have stays zero, what the request does not have is left out). A pure function of two merged metadata: the
// same on every rank.
// Errors: kUnexpected lists what is stored; kStoredKind, kStoredDType and kStoredShape name key, ranks and both
// values.
// REQUIRES: both are valid (Validate; the request as one).
// Threads: pure.
#pragma once

#include <vector>

#include "replica/layout/error.h"
#include "replica/layout/metadata.h"

namespace kintsugi::layout {

struct RequestOptions {
  bool allow_cast = false;
  size_t errors_max = 64;
};

// One error per key at most, in key order.
KINTSUGI_EXPORT std::vector<LayoutError> CheckRequest(const Metadata& stored, const Metadata& requested,
                                                      const RequestOptions& options = {});

// Ascending ranks that hold, or ask for, any piece of the key.
KINTSUGI_EXPORT std::vector<int32_t> RanksOf(const Metadata& metadata, const KeyMeta& key);

}  // namespace kintsugi::layout
