// ResumeTarget: what one rank's registered tensors are as the target of a plan, and where their bytes go (private).
//
// Tensors on a device are received in host memory of the same size and brought over at the end.
// Errors: as BindTarget and DeviceMemory.
// Threads: one.
// Ownership: the registry outlives it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "callbacks/state/registry.h"
#include "replica/layout/metadata.h"
#include "replica/plan/renamed_plan.h"
#include "replica/reshard/bindings.h"
#include "runtime/base/clock.h"

namespace kintsugi::resume {

class ResumeTarget {
 public:
  // Without the keys `elsewhere`, where that is given.
  // `other_shapes`: names of tensors (* and ?) that may be stored with another global shape, though they were not
  // registered so.
  static Result<ResumeTarget> Of(const StateRegistry& registry, const std::set<std::string>* elsewhere = nullptr,
                                 std::vector<std::string> other_shapes = {});

  const layout::Metadata& metadata() const { return metadata_; }  // of one rank, number 0
  // The registered tensor as a piece of what is stored under `stored`, and nothing more.
  static ShardedTensor PieceAlone(ShardedTensor tensor, const std::string& stored);
  // By the key they are stored under.
  const std::map<std::string, const ShardedTensor*>& tensors() const { return tensors_; }
  // The same with this rank's own number, as other ranks see it.
  layout::Metadata As(Rank self) const;
  // The tensor `key` is read as what is stored under `stored`, which is no key of this rank.
  void ReadAs(const std::string& key, const std::string& stored);
  // Takes keys (ascending) out of the request: their memory stays as it is.
  void Remove(const std::vector<std::string>& keys);

  Status Bind(const layout::Metadata& source, reshard::Bindings* bindings);
  Status BindRenamed(const plan::RenamedPlan& renamed, reshard::Bindings* bindings);
  // Zeros where a stored tensor of another shape may leave gaps.
  void ClearGaps();
  // Brings device tensors to their devices.
  Status Deliver(TimePoint deadline);

  uint64_t staged_bytes() const { return staged_bytes_; }

 private:
  explicit ResumeTarget(const StateRegistry& registry) : registry_(&registry) {}
  // The tensor in host memory.
  Result<ShardedTensor> OnHost(const ShardedTensor& tensor, const std::string& stored);

  const StateRegistry* registry_;
  bool MayDiffer(const ShardedTensor& tensor) const;  // stored with another global shape
  ShardedTensor Asked(const ShardedTensor& tensor, const std::string& stored) const;
  void Describe();

  std::vector<std::string> other_shapes_;
  std::map<std::string, const ShardedTensor*> tensors_;  // by the key they are stored under
  layout::Metadata metadata_;
  std::map<std::string, std::vector<uint8_t>> staged_;  // by key
  uint64_t staged_bytes_ = 0;
};

}  // namespace kintsugi::resume
