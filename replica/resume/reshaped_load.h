// LoadReshaped: a checkpoint into another number of ranks, another layout, other names: what this rank has registered
// is the target, what the checkpoint stores is the source, and a proven plan says which stored bytes go where.
//
// What: every rank reads the catalog of what is stored, in any format that replica/formats reads, plans for its own
// tensors, proves the plan, and learns that all other ranks could do so too; only then memory is touched. It reads the
// blocks that hold what it needs and nothing else, several at once, straight into their places where they go there as
// they are; each block's checksum is compared. Objects are taken over as each says (take_over.h). With an AOA program,
// names, shapes and types may differ; ranks then tell each other their layouts first, because fused weights are cut by
// the number of shards in the target. Keys on one side only are judged by the strict mode (layout/strict.h); "asked for
// by no rank" is judged over all ranks. Memory beside the state: the catalog, the plan and `buffer_bytes` (a block for
// each thread at least); for tensors on a device also a copy on the host.
// Errors: kFailedPrecondition, the same on every rank, names key, object or statement, before any memory is touched;
// kDataLoss names tensor, block and file; registered memory is then undefined until another load.
// Threads: the trainer's, parked; others read beside it, and are gone when this returns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "callbacks/state/aliases.h"
#include "replica/layout/strict.h"
#include "replica/resume/agreement.h"
#include "replica/aoa/program_text.h"
#include "replica/aoa/user_macro.h"
#include "replica/save/load.h"

namespace kintsugi::resume {

struct ReshapeOptions {
  std::optional<std::vector<std::string>> statements;  // of an AOA program; nothing: names stay
  bool reverse = false;                                // the program is run backwards
  aoa::UserMacros macros;                              // words of its own
  layout::StrictHandling strict = layout::StrictHandling::kRaiseAll;
  // Names of registered tensors (* and ?) that may be stored with another global shape, beside those that were registered so:
  // what both have is taken, the rest is zero.
  std::vector<std::string> other_shapes;
  // Other names of registered tensors; null: none. A tensor that is not stored under its key is read under its alias. With
  // an AOA program names are the program's business.
  const Aliases* aliases = nullptr;
  uint64_t buffer_bytes = 8ull << 20;
  int threads = 0;  // reads in flight; 0: as the cores allow
};

// `request.path`: a native step's folder, or whatever another format's reader takes.
KINTSUGI_EXPORT Result<checkpoint::Loaded> LoadReshaped(const StateRegistry& registry,
                                                        const checkpoint::LoadRequest& request,
                                                        const ReshapeOptions& options, Agreement agreement);

// What `reference` (aoa/program_text.h) names, parsed. kInvalidArgument names a file that cannot be read.
KINTSUGI_EXPORT Result<aoa::ProgramText> ReadProgram(const std::string& reference, const aoa::UserMacros& macros);

}  // namespace kintsugi::resume
