#include "replica/layout/error.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace kintsugi::layout {
namespace {

struct Entry {
  ErrorCode code;
  std::string_view name;
};

constexpr std::array kEntries = {
    Entry{ErrorCode::kKey, "key"},
    Entry{ErrorCode::kDType, "dtype"},
    Entry{ErrorCode::kLocalShape, "local_shape"},
    Entry{ErrorCode::kDimensions, "dimensions"},
    Entry{ErrorCode::kNegative, "negative"},
    Entry{ErrorCode::kMisaligned, "misaligned"},
    Entry{ErrorCode::kOutOfBounds, "out_of_bounds"},
    Entry{ErrorCode::kFlatRange, "flat_range"},
    Entry{ErrorCode::kTooLarge, "too_large"},
    Entry{ErrorCode::kAxis, "axis"},
    Entry{ErrorCode::kAxisTwice, "axis_twice"},
    Entry{ErrorCode::kRankOffset, "rank_offset"},
    Entry{ErrorCode::kNarrow, "narrow"},
    Entry{ErrorCode::kFactory, "factory"},
    Entry{ErrorCode::kRankMissing, "rank_missing"},
    Entry{ErrorCode::kRankTwice, "rank_twice"},
    Entry{ErrorCode::kKind, "kind"},
    Entry{ErrorCode::kDTypeDiffers, "dtype_differs"},
    Entry{ErrorCode::kGlobalShape, "global_shape"},
    Entry{ErrorCode::kGrid, "grid"},
    Entry{ErrorCode::kFlags, "flags"},
    Entry{ErrorCode::kDoubleMain, "double_main"},
    Entry{ErrorCode::kOverlap, "overlap"},
    Entry{ErrorCode::kHole, "hole"},
    Entry{ErrorCode::kStrayCopy, "stray_copy"},
    Entry{ErrorCode::kObjectTwice, "object_twice"},
    Entry{ErrorCode::kObjectMissing, "object_missing"},
    Entry{ErrorCode::kRankUnknown, "rank_unknown"},
    Entry{ErrorCode::kUnexpected, "unexpected"},
    Entry{ErrorCode::kMissing, "missing"},
    Entry{ErrorCode::kStoredShape, "stored_shape"},
    Entry{ErrorCode::kStoredDType, "stored_dtype"},
    Entry{ErrorCode::kStoredKind, "stored_kind"},
    Entry{ErrorCode::kProgram, "program"},
    Entry{ErrorCode::kFormat, "format"},
    Entry{ErrorCode::kVersion, "version"},
    Entry{ErrorCode::kDigest, "digest"},
};

constexpr size_t kRanksShown = 8;

auto Order(const LayoutError& error) {
  const Box box = error.region.value_or(Box{});
  return std::tuple(std::string_view(error.key), error.code, error.region.has_value(), box.axes, box.lo, box.hi);
}

}  // namespace

std::string_view ErrorCodeName(ErrorCode code) {
  for (const Entry& entry : kEntries)
    if (entry.code == code) return entry.name;
  return "unknown";
}

bool IsKnown(ErrorCode code) { return ErrorCodeName(code) != "unknown"; }

Status LayoutError::ToStatus() const {
  StatusCode status = StatusCode::kInvalidArgument;
  if (code >= ErrorCode::kFormat)
    status = StatusCode::kDataLoss;
  else if (code == ErrorCode::kUnexpected || code == ErrorCode::kMissing)
    status = StatusCode::kNotFound;
  return {status, std::string(ErrorCodeName(code)) + ": " + message};
}

bool Before(const LayoutError& a, const LayoutError& b) {
  const auto order_a = Order(a), order_b = Order(b);
  if (order_a != order_b) return order_a < order_b;
  return std::tie(a.ranks, a.message) < std::tie(b.ranks, b.message);
}

std::string DescribeRanks(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : ranks.empty() ? "no rank" : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kRanksShown); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kRanksShown) text += " and " + std::to_string(ranks.size() - kRanksShown) + " more";
  return text;
}

}  // namespace kintsugi::layout
