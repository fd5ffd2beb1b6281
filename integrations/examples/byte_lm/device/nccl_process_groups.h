// The trainer's groups over NCCL, for state in device memory.
//
// What: groups of the same ranks are one communicator; all of a generation are made together (NcclGroups). An abort
// ends the communicators and the waits of the stream; Destroy frees them and waits until the stream is empty, so that
// nothing writes late.
// Threads: as process_groups.h.
// Ownership: the parts outlive it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "integrations/examples/byte_lm/device/nccl_collectives.h"
#include "integrations/examples/byte_lm/process_groups.h"
#include "integrations/examples/byte_lm/rank_layout.h"
#include "replica/stream/nccl_groups.h"

namespace kintsugi::byte_lm::device {

class NcclProcessGroups final : public ProcessGroups {
 public:
  NcclProcessGroups(const RankLayout& layout, std::shared_ptr<const NcclApi> api, DeviceCompute& compute)
      : layout_(layout), api_(std::move(api)), compute_(compute), alone_(compute) {}
  ~NcclProcessGroups() override;

  Status Connect(HandlerContext& call) override;
  Status Destroy(TimePoint deadline) override;
  void Abort() override;
  void MoveTo(const RankLayout& layout) override { layout_ = layout; }
  Groups groups() override;
  Status Barrier() override { return of_.at(Ranks(world_size_))->Barrier(); }

 private:
  static std::vector<int> Ranks(int count);
  Collectives* Of(const std::vector<int>& ranks);
  // Frees the communicators, or leaves them behind after kNcclAbortLimit.
  void End();

  RankLayout layout_;
  const std::shared_ptr<const NcclApi> api_;
  DeviceCompute& compute_;
  AloneOnDevice alone_;
  int world_size_ = 0;
  std::map<std::vector<int>, std::unique_ptr<NcclCollectives>> of_;
  std::mutex mutex_;                       // guards what Abort uses
  std::shared_ptr<NcclGroups> connected_;  // of the newest generation
};

}  // namespace kintsugi::byte_lm::device
