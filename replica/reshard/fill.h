// Filler: a plan within one process, carried out one target piece at a time.
//
// What: Execute moves a whole plan between memories that are all there at once. A converter has its sources mapped and
// wants its targets in windows, so that memory stays bounded: it asks for one piece after the other, in any order and
// from several threads, and gets the piece's elements, dense and row-major. Where they lie in a source as one run of
// bytes already, that run is the answer and nothing is copied. Sources may be strided.
// Invariants: no plan that its check did not prove; every element of a piece is written exactly once.
// Errors: kInvalidArgument, the plan is refused, or a source has no room for what the plan takes from it; names key and
// both values. kInternal: moves did not fill a piece.
// Threads: any; a Filler does not change.
// Ownership: plan, metadata and what `source_of` gives are the caller's and stay in place. REQUIRES: every move is from
// and to one rank.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "replica/plan/renamed_plan.h"
#include "replica/reshard/destination.h"
#include "runtime/base/result.h"

namespace kintsugi::reshard {

// Where a source piece lies: `map` takes its coordinates to bytes of `memory`. A dense piece's is MapOf.
struct SourceView {
  Memory memory;
  StridedMap map;
};
using SourceOf = std::function<Result<SourceView>(uint32_t source_piece)>;

class KINTSUGI_EXPORT Filler {
 public:
  // Every target key has the name of its source; a type that differs is cast.
  static Result<Filler> Make(const plan::Plan& plan, const layout::Metadata& source, const layout::Metadata& target,
                             SourceOf source_of);
  // Names, shapes and types may differ (replica/plan/renamed_plan.h).
  static Result<Filler> MakeRenamed(const plan::RenamedPlan& renamed, const layout::Metadata& source,
                                    const layout::Metadata& target, SourceOf source_of);

  // Bytes that the piece has.
  uint64_t ByteCount(uint32_t target_piece) const;
  // The piece's bytes: in `buffer`, or in a source. REQUIRES: the buffer has ByteCount bytes.
  Result<const uint8_t*> Fill(uint32_t target_piece, std::span<uint8_t> buffer) const;

 private:
  Filler(const plan::Plan& plan, const layout::Metadata& source, const layout::Metadata& target, SourceOf source_of)
      : plan_(&plan), source_(&source), target_(&target), source_of_(std::move(source_of)) {}
  // The moves to one piece of the plan's target.
  struct Range {
    const plan::KeyMoves* key = nullptr;
    uint64_t first = 0, end = 0;
  };
  Range MovesTo(const layout::Metadata& wanted, uint32_t piece) const;
  // All moves of the range into the copy; counts elements.
  Status Carry(const Range& range, const DestinationCopy& copy, int64_t* elements) const;
  Result<const uint8_t*> FillRenamed(uint32_t target_piece, std::span<uint8_t> buffer) const;

  const plan::Plan* plan_;
  const layout::Metadata* source_;
  const layout::Metadata* target_;
  SourceOf source_of_;
  const plan::RenamedPlan* renamed_ = nullptr;
  std::vector<uint32_t> uses_;  // numbers of uses, ascending by target piece
};

}  // namespace kintsugi::reshard
