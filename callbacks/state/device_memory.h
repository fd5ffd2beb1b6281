// DeviceMemory and DeviceFence: how state that lies on a device is reached, and how far a device is behind its host.
//
// What: registered tensors of kind kDevice are read and written through the DeviceMemory that the trainer hands over
// (Agent::SetDeviceMemory). Everything that works on state (streams, digests, saves, snapshots) goes through it, so
// none of that knows a driver. A DeviceFence stands behind work that the trainer enqueued on its device: the update
// whose EndUpdate it was handed to is committed once the fence is done.
// Threads: any, several at once; a call may change which device's context the calling thread has.
// Order: a copy is not ordered behind work on the trainer's streams: the caller has seen the fence behind that.
// Ownership: host memory handed to a copy stays in place until the call returns. Where that ran into its limit the
// device may still write to pinned memory (AllocateHost, Pin) later: then it must stay mapped until the device is gone.
// Errors: kDeadlineExceeded: the device did not come that far in time; kCancelled: the limit's `stop` was set;
// kInternal with the driver's words: the device's error.
// Units: bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

// What ends a copy that has not ended by itself.
struct CopyLimit {
  TimePoint deadline = TimePoint::Max();
  const std::atomic<bool>* stop = nullptr;
};

class KeptMemory;  // callbacks/state/kept_memory.h

class KINTSUGI_EXPORT DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // The number that tensors in this memory are registered with (Memory::device).
  virtual int device() const = 0;
  // Whether the address lies in this device's memory.
  virtual bool Holds(const void* data) const = 0;

  // Copy to and from host memory; done when they return. Fastest with pinned host memory.
  virtual Status Read(void* host, const void* from, uint64_t size_bytes, const CopyLimit& limit = {}) const = 0;
  virtual Status Write(void* to, const void* host, uint64_t size_bytes, const CopyLimit& limit = {}) const = 0;

  // All that this process has enqueued on the device so far is done, whatever its streams.
  virtual Status Settle() const = 0;

  // Whether BlockSums is there: checksums of device memory without a copy to the host.
  virtual bool CanSum() const = 0;
  // One multilinear-64 checksum for each begun block of `block_bytes`, a power of two from 64
  // KiB on; into `sums` on the host. kFailedPrecondition unless CanSum.
  virtual Status BlockSums(const void* data, uint64_t size_bytes, uint64_t block_bytes, uint64_t* sums,
                           const CopyLimit& limit = {}) const = 0;

  // Host memory that the device copies to and from at full rate; freed with the last reference. kResourceExhausted.
  virtual Result<std::shared_ptr<uint8_t>> AllocateHost(uint64_t size_bytes) const = 0;
  // Makes host memory such memory for as long as the reference lives; null where that is refused: copies then go
  // through a buffer and are slower.
  virtual std::shared_ptr<void> Pin(void* host, uint64_t size_bytes) const = 0;

  // Memory of this device that outlives the process while somebody holds its descriptor. kNotFound: it has none such.
  virtual Result<std::unique_ptr<KeptMemory>> AllocateKept(uint64_t size_bytes) const;

  // Whether it brings a library that moves its bytes from device to device: links go that way where none was asked for.
  virtual bool HasPeerLinks() const { return false; }
};

class KINTSUGI_EXPORT DeviceFence {
 public:
  virtual ~DeviceFence() = default;
  // Whether everything enqueued before the fence is done. Returns at once. An error says that it never will be: the
  // device's.
  virtual Result<bool> IsDone() const = 0;
};

}  // namespace kintsugi
