// NcclCollectives: one group of the trainer over an NCCL communicator.
//
// What: NCCL moves bits and never computes with them: a sum is made by our own kernel in rank order, from the parts
// that all ranks send each other (each rank sums its own share, then the shares are gathered), so its bits depend on
// rank order and size alone, not on the algorithm, the protocol or the topology that NCCL chooses. The volume is that
// of a ring's reduce-scatter and all-gather; the messages are size - 1 each way. Operations are enqueued; a wait of the
// stream meets their errors. Host memory (a few bytes) is staged and waited for.
// Threads: as collectives.h.
// Errors: as collectives.h; a call's own errors are those of NcclCommunicators::Call.
#pragma once

#include <memory>
#include <vector>

#include "integrations/examples/byte_lm/collectives.h"
#include "integrations/examples/byte_lm/device/device_compute.h"
#include "replica/stream/nccl_communicators.h"

namespace kintsugi::byte_lm::device {

class NcclCollectives final : public Collectives {
 public:
  // `communicators` and `compute` outlive it.
  NcclCollectives(std::shared_ptr<const NcclApi> api, NcclCommunicators& communicators, size_t index, int rank,
                  int size, DeviceCompute& compute)
      : api_(std::move(api)),
        communicators_(communicators),
        index_(index),
        rank_(rank),
        size_(size),
        compute_(compute) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status AllReduceSum(float* data, size_t count) override;
  Status AllGather(const float* mine, size_t count_each, float* all) override;
  // Every rank has come this far, and all that this rank had enqueued is done.
  Status Barrier();

 private:
  // A part of a message between this rank and another one: to or from `peer`.
  struct Part {
    const float* send = nullptr;
    size_t send_count = 0;
    float* receive = nullptr;
    size_t receive_count = 0;
  };
  // Enqueues one group of sends and receives; part_of(peer) for every other rank.
  template <typename PartOf>
  Status Exchange(const char* what, const PartOf& part_of);
  Status GatherHost(const float* mine, size_t count_each, float* all);

  const std::shared_ptr<const NcclApi> api_;
  NcclCommunicators& communicators_;
  const size_t index_;
  const int rank_, size_;
  DeviceCompute& compute_;
  ComputeArray<float> others_;  // the other ranks' parts of this rank's share
  ComputeArray<float> staged_;  // for host memory
};

// The group of one rank, for a device's memory.
class AloneOnDevice final : public Collectives {
 public:
  explicit AloneOnDevice(DeviceCompute& compute) : compute_(compute) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status AllReduceSum(float*, size_t) override { return Status::Ok(); }
  Status AllGather(const float* mine, size_t count_each, float* all) override {
    compute_.Copy(count_each, mine, all);
    return Status::Ok();
  }

 private:
  DeviceCompute& compute_;
};

}  // namespace kintsugi::byte_lm::device
