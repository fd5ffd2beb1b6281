#include "replica/plan/key_planner.h"

#include <algorithm>

#include "replica/layout/cover.h"
#include "replica/plan/describe.h"
#include "runtime/base/check.h"

namespace kintsugi::plan {

using layout::Box;
using layout::ErrorCode;
using layout::KeyMeta;
using layout::LayoutError;
using layout::Metadata;
using layout::PieceView;

KeyPlanner::KeyPlanner(const Metadata& source, const Metadata& target, const PlanOptions& options, uint64_t* steps,
                       Plan* out)
    : source_(source),
      target_(target),
      options_(options),
      steps_(*steps),
      plan_(*out),
      sets_(options.hosts),
      index_(&sets_),
      finder_(index_, steps) {}

std::optional<LayoutError> KeyPlanner::Add(uint32_t target_key) {
  const KeyMeta& key = target_.keys[target_key];
  const auto stored = source_.Find(key.name);
  KINTSUGI_CHECK(!stored.empty(), "what is planned for is stored: '" + key.name + "'");
  KINTSUGI_CHECK(plan_.keys.empty() || plan_.keys.back().target_key < target_key, "keys come in order");
  const KeyMeta& held = stored.front();
  KeyMoves& added = plan_.keys.emplace_back();
  added = {static_cast<uint32_t>(&held - source_.keys.data()), target_key, plan_.moves.size(), 0,
           plan_.coordinates.size()};
  element_bytes_ = ElementBytes(held);
  common_ = Intersect(held.Whole(), key.Whole());
  is_clipped_ = common_ != key.Whole();
  key_turn_ = keys_of_size_[{element_bytes_, Volume(held.Whole()).value_or(0)}]++;
  std::optional<LayoutError> error;
  if (!options_.rank) {
    error = index_.Build(source_, held);
    if (!error) error = PlanAll(key);
  } else if (const bool sends = Concerns(source_, held, *options_.rank);
             sends || Concerns(target_, key, *options_.rank)) {
    error = index_.Build(source_, held);
    sends_.clear();
    if (!error && sends) FindSends(key, *options_.rank);
    if (!error) error = PlanOwn(key, *options_.rank);
  }
  added.move_count = plan_.moves.size() - added.first_move;
  KINTSUGI_CHECK(plan_.coordinates.size() - added.first_coordinate == added.move_count * 2 * key.axes,
                 "each move has a box");
  return error;
}

std::optional<LayoutError> KeyPlanner::PlanAll(const KeyMeta& key) {
  for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
    const PieceView piece = target_.Piece(key, i);
    const auto wanted = WantedOf(key, piece);
    if (!wanted.ok()) return wanted.error();
    if (!finder_.FindAll(*wanted)) return Missing(key, piece);
    for (size_t h = 0; h < piece.holders.size(); ++h)
      if (h == 0 || piece.holders[h].rank != piece.holders[h - 1].rank)
        Receive(i, piece, *wanted, piece.holders[h].rank);
    if (plan_.moves.size() > options_.moves_max) return TooMany(key, options_.moves_max);
  }
  return std::nullopt;
}

// All that goes to one rank.
void KeyPlanner::Receive(uint32_t piece_number, const PieceView& piece, const Wanted& wanted, int32_t to) {
  uint32_t share = UINT32_MAX;
  int32_t from = 0;
  for (size_t hit = 0; hit < finder_.hits().size(); ++hit) {
    // Boxes of one share come from one rank.
    if (finder_.hits()[hit].share != share) {
      share = finder_.hits()[hit].share;
      from = Choose(index_.shares()[share], piece, wanted, to);
    }
    Push(hit, piece_number, from, to);
  }
}

void KeyPlanner::Push(size_t hit, uint32_t target_piece, int32_t from, int32_t to) {
  const Hit& found = finder_.hits()[hit];
  plan_.moves.push_back(
      {index_.PieceOf(index_.shares()[found.share], from), target_piece, from, to, found.volume * element_bytes_});
  const int64_t* box = finder_.Coordinates(hit);
  plan_.coordinates.insert(plan_.coordinates.end(), box, box + 2 * common_.axes);
}

// --- one rank's part -----------------------------------------------------------------------------------------------

bool KeyPlanner::Concerns(const Metadata& metadata, const KeyMeta& key, int32_t rank) const {
  for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i)
    if (HasHolder(metadata.Piece(key, i), rank)) return true;
  return false;
}

// The target pieces that the rank's own shares meet, or nearly: by the smallest boxes around both. The own shares are
// the few, so they are indexed, and the target's pieces are looked up.
void KeyPlanner::FindSends(const KeyMeta& key, int32_t rank) {
  std::vector<int64_t> coordinates;
  std::vector<uint32_t> own, found;
  Box around = common_;
  for (uint32_t share = 0; share < index_.shares().size(); ++share) {
    const SourceIndex::Share& held = index_.shares()[share];
    if (!sets_.Has(held.holders, rank)) continue;
    const Box box = MinimalBoxOf(index_.Box(held.region), held.flat).box;
    coordinates.insert(coordinates.end(), box.lo.begin(), box.lo.begin() + box.axes);
    coordinates.insert(coordinates.end(), box.hi.begin(), box.hi.begin() + box.axes);
    for (int axis = 0; axis < box.axes; ++axis) {
      around.lo[axis] = own.empty() ? box.lo[axis] : std::min(around.lo[axis], box.lo[axis]);
      around.hi[axis] = own.empty() ? box.hi[axis] : std::max(around.hi[axis], box.hi[axis]);
    }
    own.push_back(share);
  }
  if (own.empty()) return;
  own_boxes_.Build(key.axes, coordinates, own.size());
  for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
    const PieceView piece = target_.Piece(key, i);
    Box box = Intersect(piece.box(), around);
    if (IsEmpty(box)) continue;
    if (piece.is_flat() && Volume(piece.box()).value_or(0) >= piece.flat.stop)
      box = Intersect(MinimalBoxOf(piece.box(), piece.flat).box, around);
    if (IsEmpty(box)) continue;
    own_boxes_.Find(box, &found, &steps_);
    for (uint32_t share : found) sends_.emplace_back(i, own[share]);
  }
}

std::optional<LayoutError> KeyPlanner::PlanOwn(const KeyMeta& key, int32_t rank) {
  std::vector<uint32_t> shares;
  auto send = sends_.begin();
  for (uint32_t i = key.first_piece; i < key.first_piece + key.piece_count; ++i) {
    const PieceView piece = target_.Piece(key, i);
    shares.clear();
    for (; send != sends_.end() && send->first == i; ++send) shares.push_back(send->second);
    const bool is_own = HasHolder(piece, rank);
    if (!is_own && shares.empty()) continue;
    const auto wanted = WantedOf(key, piece);
    if (!wanted.ok()) return wanted.error();
    if (!is_own)
      finder_.FindAmong(*wanted, shares);
    else if (!finder_.FindAll(*wanted))
      return Missing(key, piece);
    for (size_t h = 0; h < piece.holders.size(); ++h) {
      const int32_t to = piece.holders[h].rank;
      if (h > 0 && to == piece.holders[h - 1].rank) continue;
      if (to == rank) {
        Receive(i, piece, *wanted, to);
        continue;
      }
      if (shares.empty()) continue;
      for (size_t hit = 0; hit < finder_.hits().size(); ++hit) {
        const uint32_t share = finder_.hits()[hit].share;
        if (IsOwn(share) && Choose(index_.shares()[share], piece, *wanted, to) == rank) Push(hit, i, rank, to);
      }
    }
    if (plan_.moves.size() > options_.moves_max) return TooMany(key, options_.moves_max);
  }
  return std::nullopt;
}

// --- who sends -----------------------------------------------------------------------------------------------------

int32_t KeyPlanner::Choose(const SourceIndex::Share& share, const PieceView& piece, const Wanted& wanted, int32_t to) {
  const auto candidates = sets_.Candidates(share.holders, to);
  KINTSUGI_CHECK(!candidates.empty(), "somebody holds a share");
  return candidates.size() == 1 ? candidates[0]
                                : candidates[RequestNumber(share, piece, wanted, to) % candidates.size()];
}

// Unsigned on purpose: in layouts that are no grid the numbers may wrap around, the same way everywhere.
uint64_t KeyPlanner::RequestNumber(const SourceIndex::Share& share, const PieceView& piece, const Wanted& wanted,
                                   int32_t to) {
  const Box region = index_.Box(share.region);
  uint64_t number = 0;
  for (int axis = 0; axis < region.axes; ++axis) {
    const int64_t length = std::max<int64_t>(1, wanted.box.length(axis));
    const int64_t first = region.lo[axis] / length, last = (region.hi[axis] - 1) / length;
    number =
        number * static_cast<uint64_t>(last - first + 1) + static_cast<uint64_t>(wanted.box.lo[axis] / length - first);
  }
  if (!wanted.is_whole) {
    const int64_t length = wanted.flat.stop - wanted.flat.start;
    KINTSUGI_CHECK(length > 0, "who asks for nothing asks nobody");
    const int64_t volume = Volume(wanted.box).value_or(0);
    number = number * static_cast<uint64_t>((volume + length - 1) / length) +
             static_cast<uint64_t>(wanted.flat.start / length);
  }
  const uint64_t grid_number = number;
  number += share.occurrence + key_turn_;
  if (piece.holders.size() == 1) return number;
  const auto& askers = AskersOf(piece, share.holders);
  const auto before = std::lower_bound(askers.begin(), askers.end(), to) - askers.begin();
  return number + grid_number * (askers.size() - 1) + static_cast<uint64_t>(before);
}

const std::vector<int32_t>& KeyPlanner::AskersOf(const PieceView& piece, uint32_t holders) {
  if (askers_of_ != piece.holders.data()) askers_.clear();
  askers_of_ = piece.holders.data();
  const auto [it, is_new] = askers_.try_emplace(holders);
  if (is_new)
    for (int32_t rank : RanksOf(piece))
      if (!sets_.Has(holders, rank)) it->second.push_back(rank);
  return it->second;
}

// --- what is wanted ------------------------------------------------------------------------------------------------

Result<Wanted, layout::LayoutError> KeyPlanner::WantedOf(const KeyMeta& key, const PieceView& piece) const {
  const auto volume = CheckBounds(key, piece);
  if (!volume.ok()) return volume.error();
  if (piece.holders.front().rank < 0)
    return LayoutError{ErrorCode::kRankUnknown, key.name, RanksOf(piece), piece.box(),
                       Name(key) + ": " + Name(piece) + " is asked for by " + layout::DescribeRanks(RanksOf(piece))};
  Wanted wanted{piece.box(), piece.is_flat() ? piece.flat : FlatRange{0, *volume}, common_};
  wanted.is_whole = wanted.flat == FlatRange{0, *volume};
  wanted.is_clipped = is_clipped_ && !Contains(common_, wanted.box);
  return wanted;
}

LayoutError KeyPlanner::Missing(const KeyMeta& key, const PieceView& piece) const {
  const HitFinder::Miss& miss = finder_.miss();
  layout::BoxList boxes;
  boxes.axes = key.axes;
  const Box whole = miss.box;
  for (size_t i = 0; i < finder_.hits().size(); ++i) {
    const Box box = Intersect(layout::BoxFrom(finder_.Coordinates(i), key.axes), miss.box);
    if (!IsEmpty(box)) boxes.Add(box);
  }
  if (piece.is_flat() && whole == piece.box()) {
    // A flat range within its own box: what lies around it is no hole.
    const int64_t volume = Volume(whole).value_or(0);
    for (const FlatRange rest : {FlatRange{0, piece.flat.start}, {piece.flat.stop, volume}})
      for (const Box& box : BoxesOf(whole, rest)) boxes.Add(box);
  }
  const auto found = FindMiscover(whole, boxes);
  const bool is_hole = !found || found->times == 0;
  Box region = miss.box;
  if (found && is_hole) region = HoleAt(whole, boxes, found->at);
  if (found && !is_hole) {
    region.lo = region.hi = found->at;
    for (int axis = 0; axis < region.axes; ++axis) ++region.hi[axis];
  }
  return {is_hole ? ErrorCode::kHole : ErrorCode::kOverlap, key.name, RanksOf(piece), region,
          Name(key) + ": of " + Name(piece) + ", asked for by " + layout::DescribeRanks(RanksOf(piece)) + ", " +
              (is_hole ? "no source holds " : "several sources hold ") + Describe(region) + "; sources hold " +
              std::to_string(miss.found) + " of " + std::to_string(miss.volume) + " elements of " + Describe(miss.box)};
}

}  // namespace kintsugi::plan
