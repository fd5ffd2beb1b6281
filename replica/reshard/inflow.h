// Inflow: a rank's targets of a plan, filled from source pieces that come in windows, in any order: out of files.
//
// What: Execute needs both ends of a move to be processes that hold their pieces whole. A rank that reads a checkpoint
// has a window of a stored piece in a buffer instead. An Inflow says which stored pieces its rank needs, and which
// stretches of each, takes windows as they come, and in the end says whether everything came.
// Invariants: no plan that its check did not prove; every address is proven to lie within its memory before the first
// window is taken; an element that comes twice, or never, is an error of Finish.
// Errors: kInvalidArgument, the plan is refused or a target is bound to no fitting memory; kInternal of Finish, with
// the key and both counts.
// Units: elements of the stored piece's own memory: row-major, of a flat range only that range.
// Threads: windows that share no element may come from several threads at once.
// Ownership: plan, metadata and bindings outlive it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "replica/plan/plan.h"
#include "replica/reshard/bindings.h"
#include "runtime/base/result.h"

namespace kintsugi::reshard {

struct BoundMove;

class KINTSUGI_EXPORT Inflow {
 public:
  // The plan's moves to `rank`, from any holder of their sources.
  static Result<Inflow> Make(const plan::Plan& plan, const layout::Metadata& source, const layout::Metadata& target,
                             int32_t rank, const Bindings& bindings);

  // Source pieces that the rank needs, ascending.
  std::vector<uint32_t> Pieces() const;
  // The stretches of the piece that hold what is needed, ascending and apart, each begun and ended at a multiple of
  // `granule` (the last at the piece's end). Empty for a piece that is not needed. REQUIRES: granule > 0.
  std::vector<FlatRange> Needed(uint32_t piece, int64_t granule) const;
  // The window [first, first + count) of the piece. REQUIRES: within the piece; `elements` has that many.
  void Take(uint32_t piece, int64_t first, int64_t count, const uint8_t* elements);

  // What a reader may write into its place by itself, without a copy of its own.
  struct Run {
    uint64_t at = 0;  // byte of the window
    uint64_t size_bytes = 0;
    uint8_t* to = nullptr;
  };
  // Where the window's elements go, ascending and apart; those between are not needed. Nothing where some are cast, are
  // wanted more than once, or go in runs shorter than `bytes_min`: then Take it.
  std::optional<std::vector<Run>> RunsOf(uint32_t piece, int64_t first, int64_t count, uint64_t bytes_min) const;
  // The reader has written the window into RunsOf.
  void Landed(uint32_t piece, int64_t first, int64_t count);
  // That every element came, once.
  Status Finish() const;

  uint64_t bytes() const { return bytes_; }  // that came, in the stored type

 private:
  struct Flow {  // one move to this rank
    const plan::KeyMoves* key = nullptr;
    uint64_t number = 0;
    size_t index = 0;  // in taken_
  };
  using EachPart = std::function<void(const Flow& flow, const BoundMove& move, uint64_t at)>;

  Inflow(const plan::Plan& plan, const layout::Metadata& source, const Bindings& bindings)
      : plan_(&plan), source_(&source), bindings_(&bindings) {}
  layout::PieceView PieceOf(uint32_t piece) const;
  // What the window holds of each move to this rank: a move of that part, whose source has no memory yet; the first
  // element of its source map's box is byte `at` of the window.
  void ForEachPart(uint32_t piece, int64_t first, int64_t count, const EachPart& each) const;
  void Count(const Flow& flow, const BoundMove& move);

  const plan::Plan* plan_;
  const layout::Metadata* source_;
  const Bindings* bindings_;
  std::map<uint32_t, std::vector<Flow>> flows_;  // by source piece
  std::vector<int64_t> taken_;                   // elements, by flow
  uint64_t bytes_ = 0;
};

}  // namespace kintsugi::reshard
