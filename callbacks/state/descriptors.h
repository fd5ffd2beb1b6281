// Descriptors: plain data that says what a rank holds. Shared by repair, saving and resharding.
//
// Words: a *global tensor* is the whole logical tensor, row-major, held by nobody; a *box* is, per axis, the half-open
// interval [offset, offset + shape) in global coordinates; a *flattened range* is a half-open range of element numbers
// in the row-major order of the box (as ZeRO-1 optimizers produce: Rajbhandari et al. 2020). Fields follow
// `dist_checkpointing` of Megatron-core (ShardedTensor, ShardedObject), so that adapters translate one to one.
// Units: shapes and offsets in elements, sizes in bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "callbacks/state/dtype.h"
#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/base/status.h"

namespace kintsugi {

using Shape = std::vector<int64_t>;

enum class MemoryKind : uint8_t {
  kHeap,    // anyone's host memory
  kShared,  // allocated by the agent in a memfd: another process of this host can map it
  kDevice,  // memory of the device with number `device`
};

// Where a shard's bytes live. The owner keeps the memory alive and in place while it is registered.
struct Memory {
  void* data = nullptr;
  uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::kHeap;
  int device = -1;
  int shared_fd = -1;          // kShared: the memfd; kDevice: a descriptor that keeps the allocation, or -1 ...
  uint64_t shared_offset = 0;  // ... and where in it `data` starts
};

// Bytes by their addresses.
struct AddressRange {
  uint64_t start = 0;
  uint64_t size_bytes = 0;
  bool operator==(const AddressRange&) const = default;
};

struct FlatRange {
  int64_t start = 0;
  int64_t stop = 0;
  bool operator==(const FlatRange&) const = default;
};

struct ShardedTensor {
  std::string key;
  DType dtype = DType::kFloat32;
  Shape global_shape;
  Shape local_shape;
  Shape global_offset;
  std::optional<FlatRange> flattened_range;
  std::vector<int64_t> replica_id;  // an int is a tuple of one; empty or all zero: the main copy
  // Pieces per axis where every shard of the key has one shape and sits on a multiple of it; empty: an irregular shard.
  Shape axis_fragmentations;
  // Leading axes of the box, each of length 1, that the local tensor does not have (layers stacked under one key).
  int prepend_axis_num = 0;
  // On load: a stored tensor of another global shape is cut, or filled up with zeros.
  bool allow_shape_mismatch = false;
  // Which replica layout the shard belongs to: index into the layouts given to Agent::SetReplicaLayout (MindIO's
  // optimizer type: 0 dense, 1 expert).
  int layout = 0;
  Memory memory;

  // Elements that the memory holds: of the flattened range where there is one, else of the box.
  KINTSUGI_EXPORT int64_t ElementCount() const;
  uint64_t ByteCount() const { return static_cast<uint64_t>(ElementCount()) * DTypeSize(dtype); }
};

// "key float32 [6, 4] of [12, 4] at [6, 0]": for messages.
KINTSUGI_EXPORT std::string Describe(const ShardedTensor& tensor);
KINTSUGI_EXPORT std::string DescribeShape(const Shape& shape);

// Key, type, bounds, agreement of dimensions: all but the memory. The message names the key and both values.
KINTSUGI_EXPORT Status ValidateShard(const ShardedTensor& tensor);
// The same, and that the memory is there and has the shard's size.
KINTSUGI_EXPORT Status Validate(const ShardedTensor& tensor);

enum class ObjectKind : uint8_t {
  kDerived,   // the rollback handler computes it from the step
  kMirrored,  // its bytes are captured before every gate and kept by the replica partners too
};

// How an object of a run goes on in a run of another number of ranks, or in another layout. Nothing is guessed: an
// object of which nothing is said cannot be taken over, and the load fails with its name.
enum class TakeOver : uint8_t {
  kUnsaid,
  kSameRank,  // what the same rank saved; a rank that saved nothing cannot go on
  kRankZero,  // what rank 0 saved: an object that is the same on all ranks
  kDerived,   // nothing: the rollback handler computes it, for whatever ranks there are
  kOwn,       // what `take_over_all` makes of all that was saved
  kCell,      // what any rank saved of this cell of a grid, which the key names: cells are moved, never cut
};

struct SavedObject {
  Rank rank;
  const uint8_t* data = nullptr;
  uint64_t size_bytes = 0;
};

// Bytes that are not a tensor: RNG, data iterator, scheduler. A mirrored object must be able to give
// and take its bytes; both functions run on the trainer's thread.
struct ShardedObject {
  std::string key;
  ObjectKind kind = ObjectKind::kDerived;
  // Appends the object's bytes to `out`.
  void (*capture)(void* context, std::vector<uint8_t>* out) = nullptr;
  // Takes the object back to `bytes`.
  Status (*restore)(void* context, const uint8_t* bytes, uint64_t size_bytes) = nullptr;
  void* context = nullptr;
  TakeOver take_over = TakeOver::kUnsaid;
  // kOwn: appends this rank's bytes to `out`, from what every rank saved (ascending by rank). Pure: every rank calls
  // it.
  Status (*take_over_all)(void* context, const std::vector<SavedObject>& saved, std::vector<uint8_t>* out) = nullptr;
  // Place in a grid of objects under one key: how many along each axis, and which one this is. Empty: the only one.
  Shape grid_shape;
  Shape grid_offset;
  std::vector<int64_t> replica_id;  // as a tensor's
  // In place of `capture`: the object's bytes, the very same where they did not change. Null: they are captured.
  std::shared_ptr<const std::vector<uint8_t>> (*share)(void* context) = nullptr;
};

// A tensor whose stored form differs from the live one (Megatron's ShardedTensorFactory): `build` gives the shards to
// store, `merge` takes loaded ones back. Both get the tensor they work on instead of remembering one, so that a state
// of the optimizer can use its parameter's factory (replica/layout/factory.h). The registry takes plain shards only.
struct ShardedTensorFactory {
  ShardedTensor tensor;
  std::function<Status(const ShardedTensor& tensor, std::vector<ShardedTensor>* parts)> build;
  std::function<Status(const std::vector<ShardedTensor>& parts, const ShardedTensor& tensor)> merge;
};

// State of this rank alone: never stored, never moved.
struct LocalNonpersistent {
  std::string key;
};

}  // namespace kintsugi
