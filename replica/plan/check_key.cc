#include "replica/plan/check_key.h"

#include "replica/layout/flat_range.h"
#include "replica/plan/describe.h"
#include "runtime/base/check.h"

namespace kintsugi::plan {

using layout::Box;
using layout::ErrorCode;
using layout::KeyMeta;
using layout::LayoutError;
using layout::PieceView;

namespace {

// Boxes of one piece that are compared pair by pair.
constexpr uint64_t kPairsMax = 16;

bool IsOf(const KeyMeta& key, uint32_t piece) {
  return piece >= key.first_piece && piece - key.first_piece < key.piece_count;
}

// The box, which is not empty, lies within the piece: a box within a box is within a flat range of it exactly when its
// first and its last element are.
bool Holds(const PieceView& piece, const int64_t* lo, const int64_t* hi) {
  for (int axis = 0; axis < piece.axes; ++axis)
    if (lo[axis] < piece.lo[axis] || hi[axis] > piece.hi[axis]) return false;
  if (!piece.is_flat()) return true;
  int64_t first = 0, last = 0;
  for (int axis = 0; axis < piece.axes; ++axis) {
    const int64_t length = piece.hi[axis] - piece.lo[axis];
    first = first * length + (lo[axis] - piece.lo[axis]);
    last = last * length + (hi[axis] - 1 - piece.lo[axis]);
  }
  return first >= piece.flat.start && last < piece.flat.stop;
}

}  // namespace

std::optional<LayoutError> KeyChecker::Check(const KeyMoves& key) {
  KINTSUGI_CHECK(key.first_move <= plan_.moves.size() && key.move_count <= plan_.moves.size() - key.first_move,
                 "arrays are checked before keys");
  key_ = &key;
  held_ = &source_.keys[key.source_key];
  wanted_ = &target_.keys[key.target_key];
  axes_ = wanted_->axes;
  common_ = Intersect(held_->Whole(), wanted_->Whole());
  next_ = key.first_move;
  const uint64_t end = key.first_move + key.move_count;
  for (uint64_t i = key.first_move; i < end; ++i)
    if (auto error = CheckMove(i)) return error;
  for (uint32_t i = 0; i < wanted_->piece_count; ++i)
    if (auto error = CheckPiece(wanted_->first_piece + i)) return error;
  if (next_ != end) return Leftover(next_);
  return std::nullopt;
}

// --- one move ------------------------------------------------------------------------------------------------------

std::optional<LayoutError> KeyChecker::CheckMove(uint64_t number) const {
  ++steps_;
  const Move& move = plan_.moves[number];
  if (!IsOf(*held_, move.source_piece) || !IsOf(*wanted_, move.target_piece))
    return LayoutError{ErrorCode::kKey,
                       wanted_->name,
                       {},
                       BoxOf(number),
                       Name(*wanted_) + ": move " + std::to_string(number) + " goes from piece " +
                           std::to_string(move.source_piece) + " to piece " + std::to_string(move.target_piece) +
                           ", which are not both of this key"};
  const PieceView from = source_.Piece(*held_, move.source_piece), to = target_.Piece(*wanted_, move.target_piece);
  if (!HasHolder(from, move.from))
    return Refuse(ErrorCode::kRankUnknown, number, {move.from},
                  "comes from rank " + std::to_string(move.from) + ", but " + Name(from) + " is held by " +
                      layout::DescribeRanks(RanksOf(from)));
  if (!HasHolder(to, move.to))
    return Refuse(ErrorCode::kRankUnknown, number, {move.to},
                  "goes to rank " + std::to_string(move.to) + ", but " + Name(to) + " is asked for by " +
                      layout::DescribeRanks(RanksOf(to)));
  if (plan_.rank && move.from != *plan_.rank && move.to != *plan_.rank)
    return Refuse(ErrorCode::kRankUnknown, number, JoinRanks({move.from}, {move.to}),
                  "does not concern rank " + std::to_string(*plan_.rank) + ", whose plan this is");
  const int64_t *lo = Coordinates(number), *hi = lo + axes_;
  for (int axis = 0; axis < axes_; ++axis)
    if (lo[axis] >= hi[axis] || lo[axis] < common_.lo[axis] || hi[axis] > common_.hi[axis])
      return Refuse(ErrorCode::kOutOfBounds, number, {}, "is empty or not within the tensor, " + Describe(common_));
  if (!Holds(from, lo, hi))
    return Refuse(ErrorCode::kOutOfBounds, number, {move.from},
                  "is not within the source's piece, " + Name(from) + " on rank " + std::to_string(move.from));
  if (!Holds(to, lo, hi))
    return Refuse(ErrorCode::kOutOfBounds, number, {move.to},
                  "is not within the target's piece, " + Name(to) + " on rank " + std::to_string(move.to));
  const int64_t bytes = VolumeOf(number) * ElementBytes(*held_);
  if (move.bytes != bytes)
    return Refuse(ErrorCode::kLocalShape, number, JoinRanks({move.from}, {move.to}),
                  "says " + std::to_string(move.bytes) + " bytes, but has " + std::to_string(bytes));
  return std::nullopt;
}

// --- one target piece ----------------------------------------------------------------------------------------------

std::optional<LayoutError> KeyChecker::CheckPiece(uint32_t piece_number) {
  const PieceView piece = target_.Piece(*wanted_, piece_number);
  const int64_t wanted = WantedVolume(piece);
  const uint64_t end = key_->first_move + key_->move_count;
  Run before;
  for (size_t h = 0; h < piece.holders.size(); ++h) {
    Run run{next_, next_, piece.holders[h].rank};
    if (h > 0 && run.to == piece.holders[h - 1].rank) continue;
    while (run.end < end && plan_.moves[run.end].target_piece == piece_number && plan_.moves[run.end].to == run.to)
      ++run.end;
    next_ = run.end;
    // All copies of a piece are mostly filled in the same way.
    const bool is_known = before.count() > 0 && IsSame(before, run);
    if (!is_known)
      if (auto error = CheckDisjoint(piece, run)) return error;
    const bool is_complete = !plan_.rank || run.to == *plan_.rank;
    if (is_complete)
      if (auto error = CheckVolume(piece, run, wanted)) return error;
    if (run.count() > 0) before = run;
  }
  return std::nullopt;
}

int64_t KeyChecker::WantedVolume(const PieceView& piece) const {
  const Box box = piece.box();
  if (Contains(common_, box) && piece.is_flat()) return piece.flat.stop - piece.flat.start;
  if (!piece.is_flat()) return Volume(Intersect(box, common_)).value_or(-1);
  int64_t volume = 0;
  for (const Box& part : BoxesOf(box, piece.flat)) volume += Volume(Intersect(part, common_)).value_or(0);
  return volume;
}

std::optional<LayoutError> KeyChecker::CheckVolume(const PieceView& piece, const Run& run, int64_t wanted) const {
  int64_t written = 0;
  for (uint64_t i = run.first; i < run.end; ++i) written += VolumeOf(i);
  if (written == wanted) return std::nullopt;
  return LayoutError{ErrorCode::kHole,
                     wanted_->name,
                     {run.to},
                     piece.box(),
                     Name(*wanted_) + ": of " + Name(piece) + " on rank " + std::to_string(run.to) + ", " +
                         std::to_string(written) + " of " + std::to_string(wanted) + " elements are written"};
}

std::optional<LayoutError> KeyChecker::CheckDisjoint(const PieceView& piece, const Run& run) {
  if (run.count() < 2 || IsInOrder(piece.box(), run)) return std::nullopt;
  if (run.count() > kPairsMax) return CheckTree(piece, run);
  for (uint64_t a = run.first; a < run.end; ++a)
    for (uint64_t b = a + 1; b < run.end; ++b, ++steps_) {
      const int64_t *of_a = Coordinates(a), *of_b = Coordinates(b);
      bool meets = true;
      for (int axis = 0; axis < axes_ && meets; ++axis)
        meets = of_a[axis] < of_b[axes_ + axis] && of_b[axis] < of_a[axes_ + axis];
      if (meets) return Overlap(piece, run, a, b);
    }
  return std::nullopt;
}

std::optional<LayoutError> KeyChecker::CheckTree(const PieceView& piece, const Run& run) {
  coordinates_.assign(Coordinates(run.first), Coordinates(run.end));
  index_.Build(axes_, coordinates_, run.count());
  if (index_.is_grid()) return std::nullopt;
  for (uint64_t i = run.first; i < run.end; ++i) {
    index_.Find(BoxOf(i), &found_, &steps_);
    for (uint32_t other : found_)
      if (other != i - run.first) return Overlap(piece, run, i, run.first + other);
  }
  return std::nullopt;
}

// Each box begins after the last element of the one before it, in the row-major order of the piece's box.
bool KeyChecker::IsInOrder(const Box& box, const Run& run) const {
  int64_t after = 0;
  for (uint64_t i = run.first; i < run.end; ++i) {
    const int64_t *lo = Coordinates(i), *hi = lo + axes_;
    int64_t first = 0, last = 0;
    for (int axis = 0; axis < axes_; ++axis) {
      first = first * box.length(axis) + (lo[axis] - box.lo[axis]);
      last = last * box.length(axis) + (hi[axis] - 1 - box.lo[axis]);
    }
    if (first < after) return false;
    after = last + 1;
  }
  return true;
}

bool KeyChecker::IsSame(const Run& a, const Run& b) const {
  return a.count() == b.count() && std::equal(Coordinates(a.first), Coordinates(a.end), Coordinates(b.first));
}

int64_t KeyChecker::VolumeOf(uint64_t number) const {
  const int64_t *lo = Coordinates(number), *hi = lo + axes_;
  int64_t volume = 1;
  for (int axis = 0; axis < axes_; ++axis) volume *= hi[axis] - lo[axis];
  return volume;
}

// --- errors --------------------------------------------------------------------------------------------------------

LayoutError KeyChecker::Overlap(const PieceView& piece, const Run& run, uint64_t a, uint64_t b) const {
  const Box both = Intersect(BoxOf(a), BoxOf(b));
  return {ErrorCode::kOverlap,
          wanted_->name,
          {run.to},
          both,
          Name(*wanted_) + ": of " + Name(piece) + " on rank " + std::to_string(run.to) + ", " + Describe(both) +
              " is written twice: by " + Describe(BoxOf(a)) + " from rank " + std::to_string(plan_.moves[a].from) +
              " and " + Describe(BoxOf(b)) + " from rank " + std::to_string(plan_.moves[b].from)};
}

LayoutError KeyChecker::Leftover(uint64_t number) const {
  const Move& move = plan_.moves[number];
  return Refuse(ErrorCode::kFormat, number, {move.to},
                "is out of order: target pieces and, within them, receiving ranks must ascend");
}

LayoutError KeyChecker::Refuse(ErrorCode code, uint64_t number, std::vector<int32_t> ranks,
                               const std::string& what) const {
  const Move& move = plan_.moves[number];
  return {code, wanted_->name, std::move(ranks), BoxOf(number),
          Name(*wanted_) + ": move " + std::to_string(number) + " of " + Describe(BoxOf(number)) + " from rank " +
              std::to_string(move.from) + " to rank " + std::to_string(move.to) + " " + what};
}

}  // namespace kintsugi::plan
