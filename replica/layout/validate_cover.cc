#include "replica/layout/validate_cover.h"

#include <algorithm>

#include "replica/layout/flat_range.h"
#include "runtime/base/check.h"

namespace kintsugi::layout {
namespace {

class CoverChecker {
 public:
  CoverChecker(const Metadata& metadata, const KeyMeta& key) : metadata_(metadata), key_(key) {}

  std::optional<LayoutError> CheckMains() const {
    const bool is_object = key_.kind == KeyKind::kObject;
    for (uint32_t i = 0; i < key_.piece_count; ++i) {
      const PieceView piece = Piece(i);
      if (ElementCount(piece) == 0 || MainCount(piece) <= 1) continue;
      return LayoutError{is_object ? ErrorCode::kObjectTwice : ErrorCode::kDoubleMain, key_.name, Mains(piece),
                         piece.box(),
                         Describe(key_) + ": " + std::to_string(MainCount(piece)) + " main replicas of " +
                             Describe(piece) + ", on " + DescribeRanks(Mains(piece)) + ", where 1 must be" +
                             (is_object ? ""
                                        : ": copies have replica ids; different tensors have different names, "
                                          "experts by their number over all ranks (GlobalExpertKey)")};
    }
    return std::nullopt;
  }

  std::optional<LayoutError> CheckCopies() const {
    for (uint32_t i = 0; i < key_.piece_count; ++i) {
      const PieceView piece = Piece(i);
      if (ElementCount(piece) == 0 || MainCount(piece) > 0 || HasTwinWithMain(i)) continue;
      std::vector<int32_t> ranks;
      for (const Holder& holder : piece.holders) ranks.push_back(holder.rank);
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      return LayoutError{ErrorCode::kStrayCopy, key_.name, ranks, piece.box(),
                         Describe(key_) + ": " + std::to_string(piece.holders.size()) + " copies of " +
                             Describe(piece) + ", on " + DescribeRanks(ranks) + ", but 0 main replicas of it"};
    }
    return std::nullopt;
  }

  std::optional<LayoutError> CheckElements(CoverCost* cost) const {
    const Box whole = key_.Whole();
    const BoxList boxes = MainBoxes();
    const auto found = FindMiscover(whole, boxes, cost);
    if (!found) return std::nullopt;
    return found->times == 0 ? Hole(HoleAt(whole, boxes, found->at)) : Overlap(found->at);
  }

 private:
  PieceView Piece(uint32_t i) const { return metadata_.Piece(key_, key_.first_piece + i); }

  size_t MainCount(const PieceView& piece) const {
    return std::count_if(piece.holders.begin(), piece.holders.end(),
                         [&](const Holder& h) { return metadata_.IsMain(h); });
  }

  std::vector<int32_t> Mains(const PieceView& piece) const {
    std::vector<int32_t> ranks;
    for (const Holder& holder : piece.holders)
      if (metadata_.IsMain(holder) && (ranks.empty() || ranks.back() != holder.rank)) ranks.push_back(holder.rank);
    return ranks;
  }

  bool HasSameBox(uint32_t a, uint32_t b) const {
    return std::equal(Piece(a).lo, Piece(a).lo + 2 * key_.axes, Piece(b).lo);
  }

  // A whole box and the flat range over all of it are the same elements in the same order. In the order of pieces the
  // box comes first; the range is the last of those that start at 0.
  bool HasTwinWithMain(uint32_t i) const {
    const PieceView piece = Piece(i);
    const int64_t volume = *Volume(piece.box());
    if (piece.is_flat() && piece.flat != FlatRange{0, volume}) return false;
    const FlatRange twin = piece.is_flat() ? kNotFlat : FlatRange{0, volume};
    uint32_t first = 0, last = key_.piece_count;
    while (first < last) {
      const uint32_t middle = first + (last - first) / 2;
      const PieceView other = Piece(middle);
      int order = 0;
      for (int at = 0; at < 2 * key_.axes && order == 0; ++at)
        order = other.lo[at] < piece.lo[at] ? -1 : other.lo[at] > piece.lo[at];
      if (order == 0)
        order = other.flat.start != twin.start ? (other.flat.start < twin.start ? -1 : 1)
                : other.flat.stop < twin.stop  ? -1
                                               : other.flat.stop > twin.stop;
      if (order == 0) return MainCount(other) > 0;
      if (order < 0)
        first = middle + 1;
      else
        last = middle;
    }
    return false;
  }

  // The elements of all main replicas as boxes. Flat ranges of one box that follow one another become one range first,
  // so that a parameter cut over many ranks is one box.
  BoxList MainBoxes() const {
    BoxList boxes{.axes = key_.axes};
    for (uint32_t i = 0; i < key_.piece_count;) {
      const PieceView piece = Piece(i);
      const uint32_t first = i++;
      if (ElementCount(piece) == 0 || MainCount(piece) == 0) continue;
      if (!piece.is_flat()) {
        boxes.Add(piece.lo);
        continue;
      }
      FlatRange run = piece.flat;
      for (; i < key_.piece_count && HasSameBox(first, i); ++i) {
        const PieceView next = Piece(i);
        if (next.flat.start != run.stop) break;
        if (MainCount(next) > 0) run.stop = next.flat.stop;
      }
      for (const Box& box : BoxesOf(piece.box(), run)) boxes.Add(box);
    }
    return boxes;
  }

  // The box within a main replica that contains the element, if there is one.
  std::optional<Box> BoxWith(const PieceView& piece, const Point& at) const {
    if (ElementCount(piece) == 0 || MainCount(piece) == 0 || !Contains(piece.box(), at)) return std::nullopt;
    if (!piece.is_flat()) return piece.box();
    for (const Box& box : BoxesOf(piece.box(), piece.flat))
      if (Contains(box, at)) return box;
    return std::nullopt;
  }

  LayoutError Overlap(const Point& at) const {
    std::optional<Box> region;
    std::vector<int32_t> ranks;
    std::string owners;
    for (uint32_t i = 0; i < key_.piece_count; ++i) {
      const PieceView piece = Piece(i);
      const auto box = BoxWith(piece, at);
      if (!box) continue;
      if (ranks.size() < 2) {
        region = region ? Intersect(*region, *box) : *box;
        owners += (owners.empty() ? "" : " and ") + DescribeRanks(Mains(piece)) + " holds " + Describe(piece);
      }
      for (int32_t rank : Mains(piece)) ranks.push_back(rank);
    }
    KINTSUGI_CHECK(region.has_value(), "an element that is held twice is in a box of somebody's");
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return {ErrorCode::kOverlap, key_.name, ranks, region,
            Describe(key_) + ": main replicas overlap in " + layout::Describe(*region) + ": " + owners};
  }

  LayoutError Hole(const Box& hole) const {
    __int128 held = 0;
    std::vector<int32_t> ranks;
    // The neighbours: who holds the element before the hole, and the one behind its first run.
    std::optional<Point> before, behind;
    const Box whole = key_.Whole();
    if (const int64_t number = Ravel(whole, hole.lo); number > 0) before = Unravel(whole, number - 1);
    if (whole.axes > 0 && hole.hi[whole.axes - 1] < whole.hi[whole.axes - 1]) {
      behind = hole.lo;
      (*behind)[whole.axes - 1] = hole.hi[whole.axes - 1];
    }
    for (uint32_t i = 0; i < key_.piece_count; ++i) {
      const PieceView piece = Piece(i);
      if (MainCount(piece) == 0) continue;
      held += ElementCount(piece);
      if ((before && BoxWith(piece, *before)) || (behind && BoxWith(piece, *behind)))
        for (int32_t rank : Mains(piece)) ranks.push_back(rank);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    const bool is_object = key_.kind == KeyKind::kObject;
    return {is_object ? ErrorCode::kObjectMissing : ErrorCode::kHole, key_.name, ranks, hole,
            Describe(key_) + ": no main replica holds " + layout::Describe(hole) + "; together they hold " +
                std::to_string(static_cast<int64_t>(std::min<__int128>(held, INT64_MAX))) + " of " +
                std::to_string(*Volume(whole)) + (is_object ? " objects" : " elements") +
                (ranks.empty() ? "" : "; beside it is " + DescribeRanks(ranks))};
  }

  const Metadata& metadata_;
  const KeyMeta& key_;
};

}  // namespace

std::string Describe(const KeyMeta& key) {
  return (key.kind == KeyKind::kObject ? "object '" : "tensor '") + key.name + "'";
}

std::string Describe(const PieceView& piece) {
  std::string text = Describe(piece.box());
  if (piece.is_flat()) text += " flat " + std::to_string(piece.flat.start) + ".." + std::to_string(piece.flat.stop);
  return text;
}

int64_t ElementCount(const PieceView& piece) {
  return piece.is_flat() ? piece.flat.stop - piece.flat.start : *Volume(piece.box());
}

std::optional<LayoutError> CheckCover(const Metadata& metadata, const KeyMeta& key, CoverCost* cost) {
  const CoverChecker checker(metadata, key);
  if (auto error = checker.CheckMains()) return error;
  if (auto error = checker.CheckCopies()) return error;
  return checker.CheckElements(cost);
}

}  // namespace kintsugi::layout
