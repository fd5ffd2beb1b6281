// SnapshotStore: the memory of the in-memory snapshots that this process holds, its own and those it keeps for others.
//
// Two slots per owner, by the rules of SnapshotSlots. Memory is allocated once per slot and used again; it is shared
// memory, so that a peer of this host copies straight out of it.
// Threads: any; one mutex. What Begin gave is written by the caller alone until Finish or Abandon; what Find gave is
// constant for as long as it is held.
// Errors: kResourceExhausted names the owner and the bytes.
// Memory: at most two snapshots per owner.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "callbacks/state/registry.h"
#include "callbacks/state/shared_memory.h"
#include "callbacks/state/snapshot_slots.h"
#include "replica/stream/state_stream.h"
#include "runtime/base/mutex.h"
#include "runtime/base/result.h"

namespace kintsugi {

// A tensor of a snapshot, without its bytes.
struct SnapshotTensor : TensorSummary {
  uint64_t size_bytes = 0;
  bool operator==(const SnapshotTensor&) const = default;
};

struct Snapshot {
  Step step;
  std::vector<SnapshotTensor> tensors;  // in key order
  std::vector<Memory> memory;           // of each
  std::vector<uint8_t> objects;         // MirrorStore::Pack of the owner's replica groups
  std::map<int, uint64_t> digests;      // by layout, taken when it was made
  std::optional<SharedMemory> block;    // what `memory` lies in
  std::shared_ptr<void> pinned;         // while the block is pinned for the device; gone before it

  std::vector<StreamItem> ItemsOf(int layout) const;
  std::vector<StreamItem> Items() const;
  std::vector<ShardedTensor> Shards() const;
  // As they are now.
  std::optional<std::map<int, uint64_t>> Digests(const std::atomic<bool>& stop) const;
};

class SnapshotStore {
 public:
  // Memory is pinned for the registry's device where it has one.
  explicit SnapshotStore(const StateRegistry& registry) : registry_(registry) {}

  // A slot for a snapshot that is about to be made, its memory mapped and touched.
  Result<std::shared_ptr<Snapshot>> Begin(Rank owner, Step step, Step keep, const std::vector<SnapshotTensor>& tensors);
  // It is whole. REQUIRES: no other one of this owner was begun since.
  void Finish(Rank owner);
  void Abandon(Rank owner);
  // Null: none that is whole.
  std::shared_ptr<const Snapshot> Find(Rank owner, Step step) const;
  // Frees the snapshots of owners other than `owners`, but for those that hold `keep`.
  void KeepOnly(const std::vector<Rank>& owners, Step keep);

 private:
  struct Owner {
    SnapshotSlots slots;
    std::array<std::shared_ptr<Snapshot>, SnapshotSlots::kSlots> in_slot;
  };
  const StateRegistry& registry_;
  mutable Mutex mutex_;
  std::map<Rank, Owner> owners_ KINTSUGI_GUARDED_BY(mutex_);
};

}  // namespace kintsugi
