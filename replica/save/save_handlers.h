// Default handlers of `save` and `rename`, and the part of `repair` that reloads a checkpoint (rung kReload).
//
// Register SaveHandler and RenameHandler with a SaveContext as their context; a repair handler calls LoadHandler when
// call.rung is kReload. Contracts: callbacks/handlers/handlers.h. Nothing here throws on its own account.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "callbacks/handlers/handlers.h"
#include "callbacks/state/aliases.h"
#include "callbacks/state/registry.h"
#include "replica/save/file_system.h"
#include "replica/save/load.h"
#include "replica/save/retention.h"

namespace kintsugi::checkpoint {

// What a rank leaves to others of a load.
struct LoadShare {
  std::set<std::string> elsewhere;  // keys of its tensors that others read
  // Called once this rank has read its own, with the step, or has failed: brings what is elsewhere. Gives what a person
  // should know. Empty: nothing is elsewhere, on no rank.
  std::function<Result<std::string>(HandlerContext& call, const Result<Step>& read)> exchange;
};

// Ownership: registry and files outlive the handlers' use. Set up before the first call, unchanged afterwards.
struct SaveContext {
  const StateRegistry* registry = nullptr;
  const Aliases* aliases = nullptr;  // of the registered tensors; null: there are none
  // Identifies one start of the run: generations count from its beginning, and an abandoned run's higher steps in the
  // same root are never taken for this one's. At most 256 bytes of printable UTF-8.
  std::string job;
  // Mirrored bytes that this rank keeps of `rank` (itself included) at `step`. Needed where mirrored objects exist.
  std::function<Result<std::vector<uint8_t>>(Rank rank, Step step)> mirrored_of;
  // Takes this rank's mirrored bytes of `step` after a reload; where it is empty the registry's objects are restored.
  std::function<Status(Step step, std::vector<uint8_t> bytes)> take_mirrored;
  // Loads a checkpoint of another layout or number of ranks (replica/resume); empty: such a one is refused.
  std::function<Result<Loaded>(HandlerContext& call, const CheckpointInfo& info, const LoadRequest& request)> reshape;
  bool always_reshape = false;                                           // of checkpoints that another run saved
  std::function<Result<bool>(HandlerContext& call, bool fits)> all_fit;  // needed with `reshape`
  // Agrees with all ranks on who reads what, where several hold the same (replica/resume); empty: each reads all it needs.
  std::function<Result<LoadShare>(HandlerContext& call)> share;
  // Loads what is no native checkpoint (replica/resume, in the formats of replica/formats); empty: such is refused.
  std::function<Result<Loaded>(HandlerContext& call, const LoadRequest& request)> load_other;
  // Compares what all ranks hold after a load with the sums in the checkpoint (replica/resume), given what this rank
  // has read; every rank calls it whose load succeeded. Gives what a person should know. Empty: nothing is compared.
  std::function<Result<std::string>(HandlerContext& call, const Loaded& loaded)> compare_sums;
  // Called where a checkpoint has become visible, by its publisher: what is to be written of it elsewhere. It cannot
  // take the checkpoint back.
  std::function<void(HandlerContext& call, const CheckpointInfo& info)> after_publish;
  // Told what a load found worth saying.
  std::function<void(Rank rank, const std::string& note)> note;
  std::vector<std::string> side_files;  // paths: copied into every checkpoint by its publisher, from its own disk
  Retention keep;                       // which checkpoints stay in the root
  FileSystem* files = nullptr;          // null: the machine's
};

// Writes call.entries of step call.step below call.directory; nothing when there are none. Sets call.bytes_moved.
KINTSUGI_EXPORT Status SaveHandler(HandlerContext& call, void* save_context);
// Publishes what all ranks wrote; call.partners are the writers. Sets call.remark where parameters lack states
// and where a side file was left out.
KINTSUGI_EXPORT Status RenameHandler(HandlerContext& call, void* save_context);
// Loads from call.directory: a checkpoint's folder, whose step must be call.step where that is not 0, or a root, of
// which step call.step is taken (the newest complete one where that is 0), or what `load_other` takes. Sets call.step,
// call.bytes_moved and, of the last, call.loaded_step.
KINTSUGI_EXPORT Status LoadHandler(HandlerContext& call, void* save_context);

}  // namespace kintsugi::checkpoint
