#include "replica/snapshot/snapshot_store.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace kintsugi {
namespace {

constexpr uint64_t kAlignment = 64;  // of each tensor: a cache line

uint64_t Aligned(uint64_t size_bytes) { return (size_bytes + kAlignment - 1) / kAlignment * kAlignment; }

Result<std::shared_ptr<Snapshot>> Allocate(Rank owner, const std::vector<SnapshotTensor>& tensors,
                                           const DeviceMemory* device) {
  uint64_t bytes = 0;
  for (const SnapshotTensor& tensor : tensors) bytes += Aligned(tensor.size_bytes);
  auto block = SharedMemory::Allocate(bytes);
  if (!block.ok()) return block.status().Annotate("the in-memory snapshot of rank " + owner.ToString());
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->block.emplace(std::move(block).value());
  // Touched here, where nobody waits: a first write into a fresh page takes several times as long.
  std::memset(snapshot->block->memory().data, 0, bytes);
  if (device) snapshot->pinned = device->Pin(snapshot->block->memory().data, bytes);
  snapshot->tensors = tensors;
  uint64_t at = 0;
  for (const SnapshotTensor& tensor : tensors) {
    snapshot->memory.push_back(SliceOf(snapshot->block->memory(), at, tensor.size_bytes));
    at += Aligned(tensor.size_bytes);
  }
  return snapshot;
}

}  // namespace

std::vector<StreamItem> Snapshot::ItemsOf(int layout) const {
  std::vector<StreamItem> items;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].layout == layout) items.push_back({tensors[i].key, memory[i]});
  return items;
}

std::vector<StreamItem> Snapshot::Items() const {
  std::vector<StreamItem> items;
  for (size_t i = 0; i < tensors.size(); ++i) items.push_back({tensors[i].key, memory[i]});
  return items;
}

std::vector<ShardedTensor> Snapshot::Shards() const {
  std::vector<ShardedTensor> shards;
  for (size_t i = 0; i < tensors.size(); ++i) {
    shards.push_back(ShardOf(tensors[i]));
    shards.back().memory = memory[i];
  }
  return shards;
}

std::optional<std::map<int, uint64_t>> Snapshot::Digests(const std::atomic<bool>& stop) const {
  std::set<int> layouts;
  for (const SnapshotTensor& tensor : tensors) layouts.insert(tensor.layout);
  std::map<int, uint64_t> found;
  for (int layout : layouts) {
    const auto digest = DigestState(ItemsOf(layout), stop);
    if (!digest.ok()) return std::nullopt;
    found[layout] = *digest;
  }
  return found;
}

Result<std::shared_ptr<Snapshot>> SnapshotStore::Begin(Rank owner, Step step, Step keep,
                                                       const std::vector<SnapshotTensor>& tensors) {
  std::shared_ptr<Snapshot> snapshot;
  size_t slot = 0;
  {
    const MutexLock lock(mutex_);
    Owner& of = owners_[owner];
    slot = static_cast<size_t>(of.slots.Begin(step, keep));
    snapshot = std::exchange(of.in_slot[slot], nullptr);
  }
  // Somebody may still read it, or it held other tensors.
  if (!snapshot || snapshot.use_count() > 1 || snapshot->tensors != tensors) {
    snapshot.reset();
    KINTSUGI_ASSIGN_OR_RETURN(snapshot, Allocate(owner, tensors, registry_.device_memory().get()));
  }
  snapshot->step = step;
  snapshot->objects.clear();
  snapshot->digests.clear();
  const MutexLock lock(mutex_);
  owners_[owner].in_slot[slot] = snapshot;
  return snapshot;
}

void SnapshotStore::Finish(Rank owner) {
  const MutexLock lock(mutex_);
  owners_[owner].slots.Finish();
}

void SnapshotStore::Abandon(Rank owner) {
  const MutexLock lock(mutex_);
  owners_[owner].slots.Abandon();
}

std::shared_ptr<const Snapshot> SnapshotStore::Find(Rank owner, Step step) const {
  const MutexLock lock(mutex_);
  const auto of = owners_.find(owner);
  if (of == owners_.end()) return nullptr;
  const auto slot = of->second.slots.Find(step);
  return slot ? of->second.in_slot[static_cast<size_t>(*slot)] : nullptr;
}

void SnapshotStore::KeepOnly(const std::vector<Rank>& owners, Step keep) {
  const MutexLock lock(mutex_);
  std::erase_if(owners_, [&](const auto& entry) {
    return std::find(owners.begin(), owners.end(), entry.first) == owners.end() && !entry.second.slots.Find(keep) &&
           !entry.second.slots.making();
  });
}

}  // namespace kintsugi
