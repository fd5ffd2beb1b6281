#include "replica/layout/validate.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "replica/layout/validate_cover.h"
#include "runtime/base/check.h"

namespace kintsugi::layout {
namespace {

std::vector<int32_t> RanksOf(const PieceView& piece) {
  std::vector<int32_t> ranks;
  for (const Holder& holder : piece.holders)
    if (ranks.empty() || ranks.back() != holder.rank) ranks.push_back(holder.rank);
  return ranks;
}

int32_t LowestRank(const Metadata& metadata, const KeyMeta& key) {
  int32_t lowest = std::numeric_limits<int32_t>::max();
  for (uint32_t i = 0; i < key.piece_count; ++i) {
    const PieceView piece = metadata.Piece(key, key.first_piece + i);
    KINTSUGI_CHECK(!piece.holders.empty(), "a piece has holders");
    lowest = std::min(lowest, piece.holders.front().rank);
  }
  return lowest;
}

std::string LengthsOf(const Point& lengths, int axes) {
  return DescribeShape(Shape(lengths.begin(), lengths.begin() + axes));
}

std::string KindOf(const KeyMeta& key) { return key.kind == KeyKind::kObject ? "an object" : "a tensor"; }
std::string GlobalShapeOf(const KeyMeta& key) { return LengthsOf(key.global_shape, key.axes); }
std::string GridOf(const KeyMeta& key) { return key.is_grid ? LengthsOf(key.fragments, key.axes) : "none"; }

std::optional<LayoutError> CheckAgreement(const Metadata& metadata, std::span<const KeyMeta> same_name) {
  const KeyMeta& a = same_name.front();
  for (const KeyMeta& b : same_name.subspan(1)) {
    std::vector<int32_t> ranks = {LowestRank(metadata, a), LowestRank(metadata, b)};
    const auto differ = [&](ErrorCode code, const std::string& what, const std::string& of_a, const std::string& of_b) {
      const std::string text = Describe(a) + ": " + what + " differs: " + of_a + " on " + DescribeRanks({ranks[0]}) +
                               ", " + of_b + " on " + DescribeRanks({ranks[1]});
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      return LayoutError{code, a.name, ranks, {}, text};
    };
    if (a.kind != b.kind) return differ(ErrorCode::kKind, "kind", KindOf(a), KindOf(b));
    if (a.dtype != b.dtype)
      return differ(ErrorCode::kDTypeDiffers, "dtype", std::string(DTypeName(a.dtype)),
                    std::string(DTypeName(b.dtype)));
    if (GlobalShapeOf(a) != GlobalShapeOf(b)) return differ(ErrorCode::kGlobalShape, "global shape", GlobalShapeOf(a), GlobalShapeOf(b));
    if (GridOf(a) != GridOf(b)) return differ(ErrorCode::kGrid, "axis fragmentations", GridOf(a), GridOf(b));
    return differ(ErrorCode::kFlags, "allow_shape_mismatch", a.allow_shape_mismatch ? "true" : "false",
                  b.allow_shape_mismatch ? "true" : "false");
  }
  return std::nullopt;
}

std::optional<LayoutError> CheckSize(const Metadata& metadata, const KeyMeta& key) {
  KINTSUGI_CHECK(DTypeSize(key.dtype) > 0, "an element of a key that was not refused has bytes");
  const auto volume = Volume(key.Whole());
  const uint64_t limit = std::numeric_limits<int64_t>::max() / DTypeSize(key.dtype);
  if (volume && static_cast<uint64_t>(*volume) <= limit) return std::nullopt;
  return LayoutError{ErrorCode::kTooLarge,
                     key.name,
                     {LowestRank(metadata, key)},
                     key.Whole(),
                     Describe(key) + ": global shape " + GlobalShapeOf(key) + " of " + std::string(DTypeName(key.dtype)) +
                         " on " + DescribeRanks({LowestRank(metadata, key)}) +
                         " has more bytes than 63 bits can count"};
}

std::optional<LayoutError> CheckPiece(const KeyMeta& key, const PieceView& piece) {
  const auto error = [&](ErrorCode code, const std::string& what) {
    const auto ranks = RanksOf(piece);
    return LayoutError{code, key.name, ranks, piece.box(),
                       Describe(key) + ": " + Describe(piece) + " of " + DescribeRanks(ranks) + ": " + what};
  };
  for (int axis = 0; axis < key.axes; ++axis)
    if (piece.hi[axis] > key.global_shape[axis])
      return error(ErrorCode::kOutOfBounds, "axis " + std::to_string(axis) + " ends at " +
                                                std::to_string(piece.hi[axis]) + ", past the global length " +
                                                std::to_string(key.global_shape[axis]));
  if (piece.is_flat() && piece.flat.stop > *Volume(piece.box()))
    return error(ErrorCode::kFlatRange, "the flat range ends at " + std::to_string(piece.flat.stop) + ", past the " +
                                            std::to_string(*Volume(piece.box())) + " elements of its box");
  if (!key.is_grid) return std::nullopt;
  for (int axis = 0; axis < key.axes; ++axis) {
    const int64_t local = piece.hi[axis] - piece.lo[axis], global = key.global_shape[axis];
    int64_t filled = 0;
    if (__builtin_mul_overflow(local, key.fragments[axis], &filled) || filled != global)
      return error(ErrorCode::kMisaligned, "axis " + std::to_string(axis) + " has local length " +
                                               std::to_string(local) + ", and " + std::to_string(key.fragments[axis]) +
                                               " fragments of it do not make the global length " +
                                               std::to_string(global));
    if (local != 0 && piece.lo[axis] % local != 0)
      return error(ErrorCode::kMisaligned, "axis " + std::to_string(axis) + " begins at " +
                                               std::to_string(piece.lo[axis]) + ", no multiple of the local length " +
                                               std::to_string(local));
  }
  return std::nullopt;
}

std::optional<LayoutError> CheckName(const Metadata& metadata, std::span<const KeyMeta> same_name,
                                     const ValidateOptions& options) {
  if (same_name.size() > 1) return CheckAgreement(metadata, same_name);
  const KeyMeta& key = same_name.front();
  if (auto error = CheckSize(metadata, key)) return error;
  for (uint32_t i = 0; i < key.piece_count; ++i)
    if (auto error = CheckPiece(key, metadata.Piece(key, key.first_piece + i))) return error;
  return options.is_request ? std::nullopt : CheckCover(metadata, key, options.cost);
}

std::optional<LayoutError> CheckRanks(const Metadata& metadata, int32_t world_size) {
  const auto twice = std::adjacent_find(metadata.ranks.begin(), metadata.ranks.end());
  if (twice != metadata.ranks.end())
    return LayoutError{ErrorCode::kRankTwice,
                       "",
                       {*twice},
                       {},
                       "the list of rank " + std::to_string(*twice) + " was merged " +
                           std::to_string(std::count(twice, metadata.ranks.end(), *twice)) + " times instead of once"};
  std::vector<int32_t> absent;
  int32_t expected = 0;
  for (int32_t rank : metadata.ranks) {
    if (world_size > 0 && rank >= world_size)
      return LayoutError{
          ErrorCode::kRankUnknown,
          "",
          {rank},
          {},
          "rank " + std::to_string(rank) + " contributed, but the world size is " + std::to_string(world_size)};
    for (; world_size > 0 && expected < rank; ++expected) absent.push_back(expected);
    ++expected;
  }
  for (; expected < world_size; ++expected) absent.push_back(expected);
  if (absent.empty()) return std::nullopt;
  return LayoutError{ErrorCode::kRankMissing,
                     "",
                     absent,
                     {},
                     DescribeRanks(absent) + " contributed no list: " + std::to_string(metadata.ranks.size()) + " of " +
                         std::to_string(world_size) + " did"};
}

}  // namespace

std::vector<LayoutError> Validate(const Metadata& metadata, const ValidateOptions& options) {
  std::vector<LayoutError> errors(
      metadata.refusals.begin(),
      metadata.refusals.begin() + static_cast<std::ptrdiff_t>(std::min(metadata.refusals.size(), options.errors_max)));
  const auto add = [&](std::optional<LayoutError> error) {
    if (error && errors.size() < options.errors_max) errors.push_back(std::move(*error));
  };
  add(CheckRanks(metadata, options.world_size));
  const std::span<const KeyMeta> keys(metadata.keys);
  for (size_t first = 0; first < keys.size() && errors.size() < options.errors_max;) {
    size_t last = first + 1;
    while (last < keys.size() && keys[last].name == keys[first].name) ++last;
    add(CheckName(metadata, keys.subspan(first, last - first), options));
    first = last;
  }
  return errors;
}

Status ToStatus(const std::vector<LayoutError>& errors) {
  if (errors.empty()) return Status::Ok();
  const Status first = errors.front().ToStatus();
  if (errors.size() == 1) return first;
  return {first.code(), first.message() + " (and " + std::to_string(errors.size() - 1) + " more errors)"};
}

}  // namespace kintsugi::layout
