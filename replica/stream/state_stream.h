// State stream: moves registered state from the memory of one or more ranks into the final memory of another.
//
// The sender opens with a manifest; the receiver asks for blocks (1 MiB each, counted over all items), the sender
// streams them straight from live memory, followed by their checksums; and so on until nothing is missing. The receiver
// decides what comes from where: several sources share the work, a source that fails is replaced by the others, a
// damaged block is asked for once more.
// What has arrived is kept in a ReceiveLedger, keyed by (step, manifest): it outlives links and generations, so that
// after a source's death only the missing blocks are sent again.
//
// Threads: SendState runs on the caller's thread; ReceiveState adds one thread per source beyond the first. To stop
// either from elsewhere, abort its links.
// Ownership: items' memory stays in place; the sender's is unchanged, the receiver's is touched by nobody else.
// Errors: kCommFailure and kDeadlineExceeded when no source is left; kCancelled when a link was aborted; kDataLoss
// names tensor, block, both checksums and source; kFailedPrecondition when the two sides do not hold the same things.
// Memory: the links' windows (a few MiB) and 9 bytes per block beside the state itself.
// Units: bytes; rates in bytes per second.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "callbacks/state/descriptors.h"
#include "callbacks/state/device_memory.h"
#include "callbacks/state/receive_ledger.h"
#include "kernels/host_checksum.h"
#include "replica/stream/link.h"
#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace kintsugi {

struct StreamItem {
  std::string key;
  Memory memory;
};

// Every wait is bounded by the deadline of the call, and all but a sender's for its receiver to begin by `patience`
// plus the bytes it is about at this rate.
struct StreamLimits {
  double bytes_per_second_min = 50e6;
  Duration patience = std::chrono::seconds(1);
  TimePoint deadline = TimePoint::Max();
};

struct SendOptions {
  ChecksumAlgorithm checksum = ChecksumAlgorithm::kCrc32c;
  std::vector<uint8_t> objects;  // travel behind the manifest; at most kObjectsBytesMax
  StreamLimits limits;
};

struct ReceiveOptions {
  StreamLimits limits;
  // Blocks asked for at a time: what is lost when a source dies. Their checksums follow them.
  uint64_t request_blocks = 64;
};

struct StreamResult {
  uint64_t bytes_received = 0;                  // payload, of this call
  std::vector<uint64_t> bytes_by_source;        // in the order of the sources
  std::vector<Status> source_status;            // how each source's part ended
  std::vector<std::vector<uint8_t>> objects;    // from each source; empty from one that failed before its manifest
  uint64_t blocks_damaged = 0;                  // arrived damaged and were asked for again
  uint64_t blocks_kept = 0;                     // had arrived in an earlier call
};

inline constexpr uint64_t kStreamBlockBytes = 1 << 20;
inline constexpr uint64_t kObjectsBytesMax = INT32_MAX;  // a message of protobuf's

// Serves one receiver until it has all it wants from here.
KINTSUGI_EXPORT Status SendState(Link& link, const std::vector<StreamItem>& items, Step step,
                                 const SendOptions& options = {});

// Fills the items' memory from `sources`, all of which hold the same state at `step`. REQUIRES: at least one source.
KINTSUGI_EXPORT Status ReceiveState(const std::vector<Link*>& sources, const std::vector<StreamItem>& items, Step step,
                                    ReceiveLedger& ledger, const ReceiveOptions& options, StreamResult* result);

// Digest of the items as they lie in memory: per item XXH3-64 over the multilinear-64 checksums of its blocks, in
// order; over all items XXH3-64 of keys, sizes and these. Equal states have equal digests on every machine, in any
// memory and on any processor. REQUIRES: host memory.
KINTSUGI_EXPORT uint64_t DigestState(const std::vector<StreamItem>& items);
// The same, given up soon after `stop` is set: kCancelled. Items in device memory are summed up there where `device`
// can, else read through a pinned buffer of 4 MiB.
// Errors: the device's; kFailedPrecondition without `device`.
KINTSUGI_EXPORT Result<uint64_t> DigestState(const std::vector<StreamItem>& items, const std::atomic<bool>& stop,
                                             const DeviceMemory* device = nullptr);

}  // namespace kintsugi
