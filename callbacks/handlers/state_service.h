// StateService: what the agent asks of the state plane beside the repair, save and rename handlers. Implemented in
// replica and installed next to its default handlers, so that runtime never includes replica.
//
// Threads: all but Abort run on the trainer's thread; Abort runs on the agent's, may come at any moment, and makes
// every other call return kCancelled within 100 ms until the next Open.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "callbacks/handlers/handlers.h"
#include "callbacks/state/registry.h"

namespace kintsugi {

// Digest of everything this rank holds of one layout; equal on all members of a replica group.
using StateDigest = uint64_t;

class KINTSUGI_EXPORT StateService {
 public:
  virtual ~StateService() = default;

  // Opens this generation's channels to the replica partners (call.partners), after the rebuild_group handler.
  virtual Status Open(HandlerContext& call) = 0;
  // Gives this rank's mirrored objects of `step` to its partners and takes theirs; both sides keep the newest two steps.
  // Called before every gate, and with the step S after a rollback.
  virtual Status Mirror(Step step, const MirroredObjects& mine) = 0;
  // Other bytes of this rank's at the newest step, which it has mirrored before: partners do not hear of them.
  virtual void Refresh(Step step, const MirroredObjects& mine) = 0;
  // Own mirrored bytes of `step`: captured here, or received in a repair. kNotFound otherwise.
  virtual Result<MirroredObjects> Mirrored(Step step) const = 0;
  // Everything that is known of `step`, this rank's objects and its partners'; and the way back, in a process that goes on
  // with the memory of the one before it.
  virtual std::vector<RankObjects> KnownMirrored(Step step) const = 0;
  virtual void TakeMirrored(Step step, std::vector<RankObjects> known) = 0;
  // Digest per layout over all registered tensors, and over the mirrored objects where the layouts' members share them.
  // kCancelled soon after `cancel` says so, before it began too.
  virtual Result<std::map<int, StateDigest>> Digests(CancelToken& cancel) = 0;
  // Returns when nothing beside the trainer's thread, a snapshot say, reads the registry or registered memory any more.
  // Within an incident.
  virtual void AwaitQuiet() = 0;
  // State is cut anew: this is what this rank is to hold, which a repair with HandlerContext::relayout fills, and what Digests are
  // of. Null: what is registered is all there is.
  virtual void SetNext(const StateRegistry* next) = 0;
  virtual void Abort() = 0;
};

}  // namespace kintsugi
