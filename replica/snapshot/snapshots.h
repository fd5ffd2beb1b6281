// Snapshots: in-memory snapshots as a service. Copies the registered state while the next step computes, sends the copy
// to the partner, and keeps what partners send.
//
// The copy is taken first into memory of this process, in pieces; after each the gate word is asked whether the state
// still is that of the step, so that a copy is never half of two steps and a step never waits for a copy. What goes to
// the partner is the copy, not the live state: it may take longer than the step.
// Threads: one worker that opens links, copies and sends; one for each rank whose copies come in. All end with Stop.
// Ownership: refers to the registry, which outlives it.
// Errors: as SnapshotService's reports.
// Memory: two copies of this rank's state and two of each rank's it keeps copies for (usually one).
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <thread>

#include "callbacks/handlers/snapshot_service.h"
#include "callbacks/state/registry.h"
#include "replica/links/replica_options.h"
#include "replica/snapshot/snapshot_store.h"
#include "runtime/base/mutex.h"

namespace kintsugi {

class SnapshotLinks;

class KINTSUGI_EXPORT Snapshots final : public SnapshotService {
 public:
  // Gives the packed mirrored objects of the rank's replica groups at a step (ReplicaDefaults::PackMirrored).
  using Objects = std::function<std::vector<uint8_t>(Step step)>;

  Snapshots(const StateRegistry& registry, Objects objects, ReplicaOptions options = {});
  ~Snapshots() override;

  void Prepare(const Session& session, const SnapshotOrder& order) override;
  void Take(Step step) override;
  void Abort() override;
  void Stop() override;

  // ---- for who changes registered memory, on the trainer's thread, after Abort -------------------------------------

  // Returns when nothing reads the registry, or registered memory, any more.
  void AwaitQuiet();
  // The snapshot of `owner` at `step`, its bytes checked against the digests taken with it. kNotFound, kDataLoss.
  Result<std::shared_ptr<const Snapshot>> Checked(Rank owner, Step step) const;
  // Puts this rank's own snapshot back into registered memory, but for `except` (layouts). kDataLoss where it does not
  // fit what is registered.
  Status Restore(const Snapshot& snapshot, const std::vector<int>& except) const;

 private:
  struct Incoming {
    Rank owner;
    std::shared_ptr<Link> link;
    std::thread thread;
  };

  void StartThread(std::thread* thread, std::function<void()> body);
  void Work();
  void GetReady(const std::shared_ptr<SnapshotLinks>& links, const SnapshotOrder& order);
  void DoneReading();
  void Receive(const std::shared_ptr<SnapshotLinks>& links, Rank owner, const std::shared_ptr<Link>& link);
  Status ReceiveOne(SnapshotLinks& links, Rank owner, Link& link, const std::string& offer, SnapshotReport* report);
  void Copy(SnapshotLinks& links, const SnapshotOrder& order);
  Status CopyOwn(const SnapshotLinks& links, const SnapshotOrder& order, SnapshotReport* report);
  Status AwaitDevice(const SnapshotLinks& links, Step step) const;
  Status CopyTensors(const SnapshotLinks& links, Step step, const Snapshot& into) const;
  Status Send(SnapshotLinks& links, const SnapshotOrder& order, const Snapshot& snapshot) const;
  Result<std::vector<SnapshotTensor>> OwnTensors() const;

  const StateRegistry& registry_;
  const Objects objects_;
  const ReplicaOptions options_;
  SnapshotStore store_;

  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<SnapshotLinks> links_ KINTSUGI_GUARDED_BY(mutex_);  // of the newest generation
  std::optional<SnapshotOrder> order_ KINTSUGI_GUARDED_BY(mutex_);    // not got ready for yet
  std::optional<SnapshotOrder> armed_ KINTSUGI_GUARDED_BY(mutex_);    // the newest, until it is taken
  std::optional<SnapshotOrder> taken_ KINTSUGI_GUARDED_BY(mutex_);    // its boundary was passed; not copied yet
  bool reading_ KINTSUGI_GUARDED_BY(mutex_) = false;  // the worker looks at the registry, or at what is registered
  bool stop_ KINTSUGI_GUARDED_BY(mutex_) = false;
  std::thread worker_;

  // Worker's.
  std::list<Incoming> incoming_;
  std::shared_ptr<Snapshot> own_;  // got ready
  Status ready_;
};

}  // namespace kintsugi
