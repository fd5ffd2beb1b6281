// ReplicaOptions: how state moves between ranks: over which links, checked how, at which least rate.
//
// Threads: a value.
// Units: bytes per second.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernels/host_checksum.h"
#include "replica/stream/rank_address.h"
#include "runtime/base/clock.h"

namespace kintsugi {

// Over what two ranks exchange state.
enum class LinkPreference : uint8_t {
  kAutomatic,     // for device memory that brings NCCL (CudaMemory) kNccl
  kSharedMemory,  // kFailedPrecondition where it is not possible
  kTcp,
  kNccl,  // else TCP
};

struct ReplicaOptions {
  // Of blocks on their way; for tensors in device memory it is multilinear-64, which a device computes, unless kNone.
  ChecksumAlgorithm checksum = ChecksumAlgorithm::kCrc32c;
  double bytes_per_second_min = 50e6;
  Duration patience =
      std::chrono::seconds(1);  // a peer may move nothing for so long; not below a run's limit of silence
  // kNccl is for moves of layouts that have tensors in device memory; everything else then goes by kAutomatic.
  LinkPreference prefer = LinkPreference::kAutomatic;
  RankAddress address;
};

}  // namespace kintsugi
