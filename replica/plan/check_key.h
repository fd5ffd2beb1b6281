// KeyChecker: the rules of CheckPlan for the moves of one key (private to this folder).
#pragma once

#include <optional>

#include "replica/plan/box_index.h"
#include "replica/plan/plan.h"

namespace kintsugi::plan {

class KeyChecker {
 public:
  KeyChecker(const Plan& plan, const layout::Metadata& source, const layout::Metadata& target, uint64_t* steps)
      : plan_(plan), source_(source), target_(target), steps_(*steps) {}

  // REQUIRES: the numbers of the key are within the arrays.
  std::optional<layout::LayoutError> Check(const KeyMoves& key);

 private:
  // Consecutive moves to one rank's copy of one target piece.
  struct Run {
    uint64_t first = 0, end = 0;
    int32_t to = 0;
    uint64_t count() const { return end - first; }
  };

  std::optional<layout::LayoutError> CheckMove(uint64_t number) const;
  std::optional<layout::LayoutError> CheckPiece(uint32_t piece_number);
  std::optional<layout::LayoutError> CheckVolume(const layout::PieceView& piece, const Run& run, int64_t wanted) const;
  std::optional<layout::LayoutError> CheckDisjoint(const layout::PieceView& piece, const Run& run);
  std::optional<layout::LayoutError> CheckTree(const layout::PieceView& piece, const Run& run);
  bool IsInOrder(const layout::Box& box, const Run& run) const;
  bool IsSame(const Run& a, const Run& b) const;
  layout::LayoutError Overlap(const layout::PieceView& piece, const Run& run, uint64_t a, uint64_t b) const;
  layout::LayoutError Leftover(uint64_t number) const;
  layout::LayoutError Refuse(layout::ErrorCode code, uint64_t number, std::vector<int32_t> ranks,
                             const std::string& what) const;
  int64_t WantedVolume(const layout::PieceView& piece) const;
  int64_t VolumeOf(uint64_t number) const;
  layout::Box BoxOf(uint64_t number) const { return plan_.BoxOf(*key_, number, axes_); }
  const int64_t* Coordinates(uint64_t number) const { return plan_.Coordinates(*key_, number, axes_); }

  const Plan& plan_;
  const layout::Metadata& source_;
  const layout::Metadata& target_;
  uint64_t& steps_;
  const KeyMoves* key_ = nullptr;
  const layout::KeyMeta* held_ = nullptr;
  const layout::KeyMeta* wanted_ = nullptr;
  layout::Box common_;
  int axes_ = 0;
  uint64_t next_ = 0;  // the first move that no run has yet
  BoxIndex index_;
  std::vector<int64_t> coordinates_;
  std::vector<uint32_t> found_;
};

}  // namespace kintsugi::plan
