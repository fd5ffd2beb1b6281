// RenamedPlan: from a stored layout in its names to a running layout in others, through an AOA program, as one plan.
//
// What: three steps. The engine says of which boxes of stored tensors each target piece is made. These boxes, asked for
// by the ranks of the target, are a layout in stored names: `wanted`. An ordinary plan brings the source to it, and
// `uses` say which wanted piece fills which box of which target piece, after which steps. So a source box that several
// target pieces of one rank are made of travels to that rank once, and copies of a target piece ask the engine once.
// Bytes are those of the stored dtype; casts are steps of a use. Objects keep their names. A key without source is
// listed: `added` by the program, or `dropped`, a state that neither program nor source speaks of; nothing is written
// there.
// Invariants: CheckRenamed proves them. Every element of every other target piece is written once, by steps that end in
// the target's shape and dtype; every wanted piece is used by each rank that gets it.
// Errors: kProgram, what the engine answers with its own message; kStoredShape, kStoredDType, the program makes another
// tensor than the target asks for; kUnexpected, a piece of a key that is not stored; kTooLarge; else those of MakePlan.
// With `rank` in the options only the plan is that rank's part: wanted and uses are everyone's, which is what makes the
// parts fit. Cost: linear in answers and moves, and a sort. REQUIRES: valid metadata, and an engine for their tensors
// (TensorsOf).
// Threads: pure.
#pragma once

#include "replica/aoa/engine.h"
#include "replica/plan/planner.h"
#include "replica/plan/step_map.h"

namespace kintsugi::plan {

// One wanted piece, which is `source_box`, becomes `target_box` of a target piece. For ranks that hold both.
struct Use {
  uint32_t wanted_piece = 0;
  uint32_t target_piece = 0;
  layout::Box source_box;
  layout::Box target_box;
  std::vector<aoa::PieceStep> steps;
};

struct RenamedPlan {
  layout::Metadata wanted;
  Plan plan;                             // from the source to `wanted`
  std::vector<Use> uses;                 // ascending by wanted piece, target piece, target box
  std::vector<uint32_t> added, dropped;  // ascending numbers of keys of the target

  KINTSUGI_EXPORT std::span<const Use> UsesOf(uint32_t wanted_piece) const;
};

struct RenamedError : layout::LayoutError {
  std::optional<aoa::Diagnostic> program;  // of kProgram: the statement at fault, and the chain of macros
};

KINTSUGI_EXPORT Result<RenamedPlan, RenamedError> MakeRenamedPlan(const layout::Metadata& source,
                                                                  const aoa::Engine& engine,
                                                                  const layout::Metadata& target,
                                                                  const PlanOptions& options = {});

// The proof before an execution, without the engine: CheckPlan for the plan, and the invariants above for its uses.
// Errors: as CheckPlan; kHole, kOverlap, kOutOfBounds, kLocalShape (steps), kStoredDType, kRankUnknown (a rank that
// gets what it does not ask for, or lacks what it needs), kFormat (order, numbers); the first one found.
KINTSUGI_EXPORT std::optional<layout::LayoutError> CheckRenamed(const RenamedPlan& renamed,
                                                                const layout::Metadata& source,
                                                                const layout::Metadata& target);

// A part of a move as programs and people see it: a box on both sides.
struct RenamedMove {
  uint32_t target_piece = 0;
  uint32_t source_key = 0;  // number in the source's metadata
  int32_t from = 0, to = 0;
  layout::Box source_box, target_box;
  const std::vector<aoa::PieceStep>* steps = nullptr;  // of the use; lives as long as the plan
  int64_t bytes = 0;                              // of the source box, in the stored dtype
};

// The moves, cut where steps reshape them; a move that feeds several target boxes is there for each of them. In the
// order of the plan, then of the uses.
// Errors: kTooLarge for more than
// `moves_max`. REQUIRES: a plan that passed CheckRenamed.
KINTSUGI_EXPORT Result<std::vector<RenamedMove>, layout::LayoutError> ListMoves(const RenamedPlan& renamed,
                                                                                const layout::Metadata& source,
                                                                                const layout::Metadata& target,
                                                                                uint64_t moves_max = UINT64_MAX);

}  // namespace kintsugi::plan
