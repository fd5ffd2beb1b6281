// LayoutError: what is wrong with a layout, in parts that a program can read. Functions give Result<T, LayoutError>.
//
// What: a code, the key, the ranks concerned, the region in global coordinates and a sentence with both values. The
// command line turns the parts into JSON under the names of the fields; ToStatus is for callers who only pass it on.
// Invariants: errors of one merged metadata are equal on every rank, to the last byte.
// Threads: values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replica/layout/box.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"
#include "runtime/base/status.h"

namespace kintsugi::layout {

// The numbers are part of the wire format: append only.
enum class ErrorCode : uint8_t {
  // One shard, where it is made.
  kKey = 1,          // not a key
  kDType = 2,        // the data has another dtype than the shard says, or the dtype is none
  kLocalShape = 3,   // the data has another shape or size than the shard says
  kDimensions = 4,   // lengths of shapes and offsets do not fit each other, or exceed the limit
  kNegative = 5,     // a length or offset below zero
  kMisaligned = 6,   // a shard of a regular grid that does not sit on it
  kOutOfBounds = 7,  // offset + local length > global length
  kFlatRange = 8,    // a flat range that is not within its box
  kTooLarge = 9,     // more elements or bytes than 63 bits count
  kAxis = 10,        // an axis that is not there
  kAxisTwice = 11,   // an axis that is named twice
  kRankOffset = 12,  // a rank offset outside its fragments
  kNarrow = 13,      // a cut that cannot be done in the same way on every rank
  kFactory = 14,     // a factory's parts are not the tensor they were made from
  // All ranks together.
  kRankMissing = 32,    // a rank's list was never merged
  kRankTwice = 33,      // a rank's list was merged twice
  kKind = 34,           // tensor here, object there
  kDTypeDiffers = 35,   // ranks disagree on the dtype
  kGlobalShape = 36,    // ranks disagree on the global shape
  kGrid = 37,           // ranks disagree on the grid, or whether there is one
  kFlags = 38,          // ranks disagree on whether another global shape is fine
  kDoubleMain = 39,     // one shard, two main replicas
  kOverlap = 40,        // main replicas of two shards hold the same elements
  kHole = 41,           // elements that no main replica holds
  kStrayCopy = 42,      // a copy that coincides with no main replica
  kObjectTwice = 43,    // one object, two main replicas
  kObjectMissing = 44,  // a place of an object's grid that nobody fills
  kRankUnknown = 45,    // a rank that the world does not have
  // Stored against asked for.
  kUnexpected = 64,   // asked for, but not in the checkpoint
  kMissing = 65,      // in the checkpoint, but asked for by no rank
  kStoredShape = 66,  // another global shape is stored
  kStoredDType = 67,  // another dtype is stored
  kStoredKind = 68,   // a tensor is stored where an object is asked for, or the reverse
  kProgram = 69,      // no AOA program makes it of what is stored
  // Bytes.
  kFormat = 96,   // not metadata, or not in canonical form
  kVersion = 97,  // metadata of another version
  kDigest = 98,   // the digest is not that of the content
};

// "hole", "double_main", ...: stable names for programs; "unknown" for a number that is none.
KINTSUGI_EXPORT std::string_view ErrorCodeName(ErrorCode code);
KINTSUGI_EXPORT bool IsKnown(ErrorCode code);

struct LayoutError {
  ErrorCode code = ErrorCode::kFormat;
  std::string key;             // empty: no single key is concerned
  std::vector<int32_t> ranks;  // ascending; empty: no single rank is concerned, or the rank is not known yet
  std::optional<Box> region;   // in global coordinates
  std::string message;         // names key, ranks, region and both values in words

  // kDataLoss for bytes, kNotFound for an unexpected or missing key, else kInvalidArgument. The message begins with the
  // code's name.
  KINTSUGI_EXPORT Status ToStatus() const;
  bool operator==(const LayoutError&) const = default;
};

// A total order: by key, code, region, ranks, message.
KINTSUGI_EXPORT bool Before(const LayoutError& a, const LayoutError& b);

// "rank 3", "ranks 0, 1, 2", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more"
KINTSUGI_EXPORT std::string DescribeRanks(const std::vector<int32_t>& ranks);

}  // namespace kintsugi::layout
