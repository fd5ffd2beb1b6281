#include "replica/layout/request.h"

#include <algorithm>

#include "replica/layout/validate_cover.h"

namespace kintsugi::layout {
namespace {

constexpr size_t kKeysListed = 8;

std::string ListKeys(const Metadata& stored) {
  std::string text;
  for (size_t i = 0; i < std::min(stored.keys.size(), kKeysListed); ++i)
    text += (i ? ", '" : "'") + stored.keys[i].name + "'";
  if (stored.keys.size() > kKeysListed) text += " and " + std::to_string(stored.keys.size() - kKeysListed) + " more";
  return stored.keys.empty() ? "nothing" : text;
}

std::string ShapeOf(const KeyMeta& key) {
  return DescribeShape(Shape(key.global_shape.begin(), key.global_shape.begin() + key.axes));
}

std::optional<LayoutError> CheckKey(const Metadata& stored, const Metadata& requested, const KeyMeta& wanted,
                                    const RequestOptions& options) {
  const auto error = [&](ErrorCode code, const std::string& what) {
    const auto ranks = RanksOf(requested, wanted);
    return LayoutError{code, wanted.name, ranks, wanted.Whole(),
                       Describe(wanted) + ", asked for by " + DescribeRanks(ranks) + ", " + what};
  };
  const auto found = stored.Find(wanted.name);
  if (found.empty()) return error(ErrorCode::kUnexpected, "is not stored; stored is " + ListKeys(stored));
  const KeyMeta& held = found.front();
  if (held.kind != wanted.kind) return error(ErrorCode::kStoredKind, "is stored as " + Describe(held));
  if (held.dtype != wanted.dtype && !options.allow_cast)
    return error(ErrorCode::kStoredDType, "is stored as " + std::string(DTypeName(held.dtype)) + ", but asked for as " +
                                              std::string(DTypeName(wanted.dtype)));
  // Shapes of different numbers of axes have no common box.
  if (ShapeOf(held) != ShapeOf(wanted) && !(wanted.allow_shape_mismatch && held.axes == wanted.axes))
    return error(ErrorCode::kStoredShape,
                 "is stored with global shape " + ShapeOf(held) + ", but asked for with " + ShapeOf(wanted));
  return std::nullopt;
}

}  // namespace

std::vector<int32_t> RanksOf(const Metadata& metadata, const KeyMeta& key) {
  std::vector<int32_t> ranks;
  for (uint32_t i = 0; i < key.piece_count; ++i)
    for (const Holder& holder : metadata.Piece(key, key.first_piece + i).holders) ranks.push_back(holder.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<LayoutError> CheckRequest(const Metadata& stored, const Metadata& requested,
                                      const RequestOptions& options) {
  std::vector<LayoutError> errors;
  for (const KeyMeta& key : requested.keys) {
    if (errors.size() >= options.errors_max) break;
    if (auto error = CheckKey(stored, requested, key, options)) errors.push_back(std::move(*error));
  }
  return errors;
}

}  // namespace kintsugi::layout
