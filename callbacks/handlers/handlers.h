// Handlers: what a trainer hands over so that the runtime can stop, clean, rebuild, repair and save it.
//
// | kind          | thread                  | phase    | what ok means                                               |
// |---------------|-------------------------|----------|-------------------------------------------------------------|
// | stop          | one of the agent's      | STOP     | no collective of the old generation blocks the trainer      |
// | clean         | the trainer's, parked   | CLEAN    | the old contexts are destroyed, nothing can write late      |
// | rebuild_group | the trainer's, parked   | REBUILD  | the process groups of the new generation are connected      |
// | repair        | the trainer's, parked   | REPAIR   | this rank's part of every move is done                      |
// | rollback      | the trainer's, parked   | ROLLBACK | everything derived (schedule, parameters) is at `step`       |
// | save          | the trainer's, parked   | DUMP     | this rank's entries are on disk, synced, not yet visible    |
// | rename        | the trainer's, parked   | RENAME   | the checkpoint is visible, `latest` names it                |
// | exit          | the trainer's, parked   | ENDED    | last words; the process goes on and leaves by itself        |
//
// Every handler is idempotent: an incident may be planned again at any point, and then the handler is called again with
// a newer generation. It returns soon after `cancel` is set and before `deadline`; a process whose handler does not is
// killed and respawned. stop has a limit of its own (10 s, or the step timeout where that is less): while it runs the
// agent gives signs of life, and no other handler runs beside it. When Agent::Run has returned no handler runs or will
// run. A handler that returns an error or throws makes its rank a fault of the incident.
// A trainer must have stop, clean and rebuild_group, and rollback where an object is derived or anything else follows
// from the state; kintsugi::Join installs repair, save and rename.
// Collectives inside rebuild_group and rollback are allowed; they must be abortable by the stop handler.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "callbacks/handlers/cancel.h"
#include "callbacks/handlers/orders.h"
#include "callbacks/handlers/store.h"
#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"

namespace kintsugi {

enum class HandlerKind : uint8_t { kStop, kClean, kRebuildGroup, kRepair, kRollback, kSave, kRename, kExit };
inline constexpr size_t kHandlerKinds = 8;
KINTSUGI_EXPORT std::string_view HandlerKindName(HandlerKind kind);

struct HandlerContext {
  Rank rank;           // this process's seat: it never changes
  int world_size = 0;  // of this generation: so many ranks take part
  // Who does, ascending, where that is not every rank; a rank's place among them is its number.
  std::vector<Rank> crew;
  // 0 to world_size - 1: what batches and groups are cut by. In a run from which nobody has left it is `rank`.
  int Number() const { return NumberOf(rank); }
  int NumberOf(Rank of) const;
  // The rank with that number. REQUIRES: 0 <= number < world_size.
  Rank RankOf(int number) const { return crew.empty() ? Rank(number) : crew[static_cast<size_t>(number)]; }
  Generation generation;
  Step step;  // S: the step every rank meets at; 0 in stop
  TimePoint deadline;
  CancelToken* cancel = nullptr;  // set when a newer generation supersedes this call; never null
  Store* store = nullptr;         // rendezvous of this generation; null in stop and exit
  // How this incident is repaired; kResume in stop, where that is not decided yet, and outside of an incident (the
  // run's start, a save at a boundary).
  Rung rung = Rung::kResume;
  std::vector<Rank> fault_ranks;     // whom the incident began with, as far as is known now; empty outside of one
  std::vector<Rank> replaced_ranks;  // those whose process is new and has held nothing of the run; empty in stop
  // The other members of this rank's replica groups, ascending; save and rename: all ranks that write a part.
  std::vector<Rank> partners;
  std::vector<RepairMove> moves;   // repair: all moves of the incident, in the order every rank works them off
  std::vector<SaveEntry> entries;  // save: what this rank writes
  std::string directory;           // save, rename: the checkpoint root; repair on reload: the checkpoint to read
  bool begins = false;             // rebuild_group: the run begins, no rank was in its loop yet; the same on all ranks
  // repair on reload: from the in-memory snapshot of `step`, not from `directory`; with relayout its pieces are cut anew, and `moves`
  // says who brings those of ranks that have no copy of their own
  bool from_snapshot = false;
  bool moves_latest = true;  // rename: false where a minority saves; the checkpoint is visible, `latest` stays
  // rebuild_group, repair, rollback: state is cut anew for those that take part now. In rebuild_group this rank says what it is
  // to hold among them (Agent::CutAnew); in repair the pieces come from `holders`, some of whom may take no part any more;
  // rollback goes by what was cut.
  bool relayout = false;
  std::vector<Rank> holders;
  // What was said to CutAnew in this generation is what is registered; 0: what was before Agent::Run. What was said in
  // another one since then came to nothing: its memory is free.
  Generation registered_in;
  // Sorted: tensors that are no part of the state any more, taken out by any rank; what is older may still hold them.
  std::vector<std::string> unregistered;
  uint64_t bytes_moved = 0;  // repair: set by the handler on the receiving side
  // repair on a resume from a directory in a form of the trainer's own, where `step` is 0: the step that was loaded,
  // set by the handler and equal on all ranks.
  Step loaded_step;
  // rebuild_group: peers that could not be connected to, set by the handler where it fails for that; after three attempts
  // in vain the run does without the host that most cannot reach.
  std::vector<UnreachedPeer> unreached;
  // rename: what a person should know of the checkpoint; else what the incident's record says of it. Set by the
  // handler.
  std::string remark;
};

inline int HandlerContext::NumberOf(Rank of) const {
  if (crew.empty()) return of.value();
  return static_cast<int>(std::lower_bound(crew.begin(), crew.end(), of) - crew.begin());
}

using HandlerFunction = Status (*)(HandlerContext& call, void* context);

class KINTSUGI_EXPORT HandlerRegistry {
 public:
  // The last registration of a kind wins. kInvalidArgument on a null function or an unknown kind.
  Status Register(HandlerKind kind, HandlerFunction function, void* context);
  bool Has(HandlerKind kind) const;
  struct Entry {
    HandlerFunction function = nullptr;
    void* context = nullptr;
  };
  // What is registered, for a handler that does something before or after the one it takes the place of; null function:
  // nothing is.
  Entry Get(HandlerKind kind) const;
  // Calls the handler and turns what it throws into kInternal. A missing `exit` is fine; any other missing handler is
  // kFailedPrecondition and names the kind.
  Status Call(HandlerKind kind, HandlerContext& call) const;

 private:
  std::array<Entry, kHandlerKinds> entries_{};
};

}  // namespace kintsugi
