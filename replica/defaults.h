// ReplicaDefaults: the state service and the default `repair` handler, built on the state registry and the state stream.
//
// The repair handler works off the moves in order: where this rank is a source it serves the destination, where it is the
// destination it receives straight into registered memory, from all sources at once. Mirrored objects travel with the
// moves.
// Threads: as StateService and the handler table say; MirroredOf from any thread.
// Ownership: refers to the registry, which outlives it; owns its links.
// Errors: kCancelled after Abort or a cancelled call; kFailedPrecondition for a reload without a loader; the stream's.
// Invariants: what was received is remembered per (step, manifest) across generations until the next Digests: a repair that
// VERIFY finds wanting starts from nothing.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "callbacks/handlers/handlers.h"
#include "callbacks/handlers/state_service.h"
#include "replica/mirror_store.h"
#include "replica/stream/make_link.h"
#include "replica/stream/state_stream.h"

namespace kintsugi {

struct ReplicaOptions {
  ChecksumAlgorithm checksum = ChecksumAlgorithm::kCrc32c;
  double bytes_per_second_min = 50e6;
  LinkPreference prefer = LinkPreference::kAutomatic;
  GlooAddress address;
};

class KINTSUGI_EXPORT ReplicaDefaults final : public StateService {
 public:
  explicit ReplicaDefaults(const StateRegistry& registry, ReplicaOptions options = {});
  ~ReplicaDefaults() override;

  // Registers the default repair handler, with this object as its context.
  Status Install(HandlerRegistry& handlers);
  // The handler itself; `context` is a ReplicaDefaults.
  static Status RepairHandler(HandlerContext& call, void* context);
  // What repair does on the rung reload: reads a checkpoint. Whoever brings the save handlers sets it.
  void SetLoader(HandlerFunction load, void* context);

  Status Open(HandlerContext& call) override;
  Status Mirror(Step step, const std::vector<uint8_t>& mine) override;
  Result<std::vector<uint8_t>> Mirrored(Step step) const override;
  std::vector<uint8_t> PackMirrored(Step step) const override;
  Status TakeMirrored(Step step, const std::vector<uint8_t>& packed) override;
  Result<std::map<int, StateDigest>> Digests() override;
  void Abort() override;

  // Mirrored bytes of any rank this one holds some of; a save needs its partners'.
  Result<std::vector<uint8_t>> MirroredOf(Rank rank, Step step) const;
  Status Repair(HandlerContext& call);

 private:
  class ActiveLinks;

  Status OpenLinks(HandlerContext& call, CancelToken& cancel);
  Status ServeMove(HandlerContext& call, const RepairMove& move, size_t number);
  Status ReceiveMove(HandlerContext& call, const RepairMove& move, size_t number);
  Result<std::vector<StreamItem>> ItemsOf(const RepairMove& move) const;
  Result<std::unique_ptr<Link>> OpenFor(HandlerContext& call, const RepairMove& move, size_t number, Rank source);
  StreamLimits LimitsOf(const HandlerContext& call) const;

  const StateRegistry& registry_;
  const ReplicaOptions options_;
  HandlerFunction load_ = nullptr;
  void* load_context_ = nullptr;
  Rank self_{-1};  // known from the first Open on
  MirrorStore mirrored_;
  std::map<std::string, ReceiveLedger> ledgers_;  // by layout and keys; trainer's thread only

  mutable std::mutex mutex_;  // guards what Abort touches
  std::atomic<bool> aborted_{false};
  std::shared_ptr<CancelToken> opening_;
  std::vector<std::shared_ptr<Link>> partners_;  // changed by Open only, on the trainer's thread, under the mutex
};

}  // namespace kintsugi
