// ReplicaDefaults: the state service and the default `repair` handler, built on the state registry and the state
// stream.
//
// The repair handler works off the moves in order: where this rank is a source it serves the destination, where it is
// the destination it receives straight into registered memory, from all sources at once. Mirrored objects travel with
// the moves. Tensors in device memory are reached through the registry's DeviceMemory: over NCCL where both ranks ask
// for it, else by way of pinned host memory.
// Threads: as StateService and the handler table say; MirroredOf from any thread.
// Ownership: refers to the registry, which outlives it; owns its links.
// Errors: kCancelled after Abort or a cancelled call; kFailedPrecondition for a reload without a loader; the stream's.
// Invariants: what was received is remembered per (step, manifest) across generations until the next Digests: a repair
// that VERIFY finds wanting starts from nothing.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "callbacks/handlers/handlers.h"
#include "callbacks/handlers/state_service.h"
#include "replica/links/replica_options.h"
#include "replica/mirror_channel.h"
#include "replica/mirror_store.h"
#include "replica/stream/state_stream.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

class Snapshots;
struct Snapshot;

class KINTSUGI_EXPORT ReplicaDefaults final : public StateService {
 public:
  explicit ReplicaDefaults(const StateRegistry& registry, ReplicaOptions options = {});
  ~ReplicaDefaults() override;

  // Registers the default repair handler, with this object as its context.
  Status Install(HandlerRegistry& handlers);
  // The handler itself; `context` is a ReplicaDefaults.
  static Status RepairHandler(HandlerContext& call, void* context);
  // What repair does on the rung reload: reads a checkpoint. The code that installs the save handlers sets it.
  void SetLoader(HandlerFunction load, void* context);
  // Asked once the links of a run that begins are open (HandlerContext::begins); its refusal is Open's.
  void SetStartCheck(std::function<Status(HandlerContext& call)> check) { start_check_ = std::move(check); }
  // Where a reload from memory takes what it gives back; outlives this object. Null: there is no such reload.
  void SetSnapshots(Snapshots* snapshots) { snapshots_ = snapshots; }
  // What one rank brings where state is cut anew, and what it gets.
  struct Cut {
    std::vector<ShardedTensor> source, target;
    std::vector<uint8_t> objects;  // its own; then those of the first rank that brought any
    uint64_t bytes_moved = 0;      // to this rank
  };
  // Moves what all bring to where all want it. Without it no state is cut anew.
  using Mover = std::function<Status(HandlerContext& call, Cut* cut)>;
  void SetMover(Mover mover) { mover_ = std::move(mover); }

  Status Open(HandlerContext& call) override;
  Status Mirror(Step step, const MirroredObjects& mine) override;
  void Refresh(Step step, const MirroredObjects& mine) override { mirrored_.Refresh(self_, step, mine); }
  Result<MirroredObjects> Mirrored(Step step) const override;
  // Those of this rank's replica groups at `step`, as far as they are known. Any thread.
  std::vector<uint8_t> PackMirrored(Step step) const { return mirrored_.Pack(Group(), step); }
  std::vector<RankObjects> KnownMirrored(Step step) const override { return mirrored_.Known(Group(), step); }
  void TakeMirrored(Step step, std::vector<RankObjects> known) override { mirrored_.Take(step, std::move(known)); }
  Result<std::map<int, StateDigest>> Digests(CancelToken& cancel) override;
  void AwaitQuiet() override;
  void SetNext(const StateRegistry* next) override { next_ = next; }
  void Abort() override;

  // Mirrored bytes of any rank this one holds some of; a save needs its partners'.
  Result<std::vector<uint8_t>> MirroredOf(Rank rank, Step step) const;
  Status Repair(HandlerContext& call);

 private:
  class ActiveLinks;

  std::vector<Rank> Group() const;
  Result<MirroredObjects> Known(Rank rank, Step step) const;
  Status OpenLinks(HandlerContext& call, CancelToken& cancel);
  Status RestoreOwn(HandlerContext& call);
  Status WorkOff(HandlerContext& call);
  // Of a rank that comes to a live run: its own objects are made of those of whom it has the state from.
  Status TakeOverObjects(const HandlerContext& call);
  Status CutAnew(HandlerContext& call);
  // With HandlerContext::from_snapshot: what this rank keeps of it, its own copy and that of who has none. `read`: where that lies.
  Status Recall(const HandlerContext& call, Cut* cut, std::vector<std::shared_ptr<const Snapshot>>* read);
  Status TakeOver(const HandlerContext& call, const MirroredObjects& theirs);
  Status ServeMove(HandlerContext& call, const RepairMove& move, size_t number);
  Status ReceiveMove(HandlerContext& call, const RepairMove& move, size_t number);
  Result<std::vector<StreamItem>> ItemsOf(const RepairMove& move) const;
  bool HasDeviceTensors(int layout) const;
  // Keeps what has arrived only while repairs go on from the same kind of source, into the same memory.
  void EnterLedgers(bool from_snapshot);
  Result<std::unique_ptr<Link>> OpenFor(HandlerContext& call, const RepairMove& move, size_t number, Rank source);
  StreamLimits LimitsOf(const HandlerContext& call) const;

  const StateRegistry& registry_;
  const StateRegistry* next_ = nullptr;
  const ReplicaOptions options_;
  HandlerFunction load_ = nullptr;
  void* load_context_ = nullptr;
  std::function<Status(HandlerContext& call)> start_check_;
  Snapshots* snapshots_ = nullptr;
  Mover mover_;
  Rank self_{-1};  // known from the first Open on
  MirrorStore mirrored_;
  std::map<std::string, ReceiveLedger> ledgers_;  // by layout and keys; trainer's thread only
  bool ledgers_from_snapshot_ = false;
  std::vector<const void*> ledgers_places_;  // of the tensors, by key

  mutable Mutex mutex_;
  std::atomic<bool> aborted_{false};
  std::shared_ptr<CancelToken> opening_ KINTSUGI_GUARDED_BY(mutex_);
  std::vector<Rank> group_ KINTSUGI_GUARDED_BY(mutex_);  // this rank and its partners
  // Changed by Open only, on the trainer's thread, under the mutex: there they are read without it.
  std::vector<std::unique_ptr<MirrorChannel>> partners_;
};

}  // namespace kintsugi
