// ReshardLive: what ranks hold in memory in one layout becomes what they ask for in another, in one call of all ranks.
//
// What: every rank describes its shards of both layouts. The descriptions are merged over all ranks (agree.h); each
// rank judges them, runs the AOA program, plans its own moves, proves them and checks its memories; all learn whether
// all could; only then bytes move (replica/reshard/execute.h); and all learn whether all are done. So a mistake of
// one rank is the same error on every rank, with nothing written anywhere.
//   source   valid by the rules of layout/validate.h: every element once, copies coincide. It is read, never written.
//   target   any shards of the same keys (of the program's outputs): nobody need ask for all. Several ranks may ask for
//            the same. Elements that the source does not have (allow_shape_mismatch) become zero.
// With a program names, shapes and types are what it makes of the source's. Without one, keys are found under their
// names.
// Errors: kInvalidArgument, kFailedPrecondition, the same on every rank, before anything is written; they name key,
// ranks and remedy. What breaks later (a link's errors, kDeadlineExceeded, kCancelled, kDataLoss) comes to each rank
// as it sees it: targets are undefined then, sources are as they were, and the mesh is of no use.
// Threads: one a rank. Starts those of Execute, and joins them.
// Ownership: shards' memories stay in place until it returns.
// Units: bytes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replica/aoa/user_macro.h"
#include "replica/layout/strict.h"
#include "replica/live/link_mesh.h"
#include "replica/reshard/execute.h"

namespace kintsugi::live {

// The same on every rank, but for `deadline`, `cancel` and `own`.
struct LiveOptions {
  // Statements of an AOA program; nothing: names stay.
  std::optional<std::vector<std::string>> statements;
  bool reverse = false;     // the program is run backwards
  aoa::UserMacros macros;   // words of its own
  bool allow_cast = false;  // where types differ, and no program says so, elements are cast on arrival
  // Of several ranks that hold one piece of the source the lowest has the main copy, whatever replica ids say.
  bool copies_by_place = false;
  // What all ranks ask for together is each tensor whole, its copies held by several ranks of which the lowest is the main one.
  bool whole_target = false;
  // Of keys on one side only (layout/strict.h).
  layout::StrictHandling strict = layout::StrictHandling::kRaiseUnexpected;
  int64_t window_bytes = 4 << 20;  // execute.h
  TimePoint deadline = TimePoint::Max();
  CancelToken* cancel = nullptr;  // may be null
  // Why this rank cannot take part: told to all ranks in place of its shards.
  Status own;
};

struct LiveResult {
  reshard::ExecuteResult moved;
  std::vector<std::string> unread;    // keys of the source that no target is made of, where `strict` asks for them
  std::vector<std::string> unfilled;  // of the target, that have no source: not written
  std::vector<std::string> notes;     // of the program, of `strict`
};

KINTSUGI_EXPORT Result<LiveResult> ReshardLive(LinkMesh& mesh, std::span<const ShardedTensor> source,
                                               std::span<const ShardedTensor> target, const LiveOptions& options);

}  // namespace kintsugi::live
