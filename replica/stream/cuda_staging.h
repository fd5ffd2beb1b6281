// CudaLane: what one direction of a link has on a device: a stream and some slots, each a staging buffer with an event.
//
// What: a slot's pinned host buffer and device buffer grow on demand, up to the largest piece.
// Threads: one.
// Ownership: frees everything; REQUIRES at the end: nothing is under way on the stream, or its device is lost.
// Errors: those of cuda_driver.h. Internal to replica/stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "replica/stream/cuda_driver.h"
#include "runtime/base/clock.h"

namespace kintsugi {

class CudaLane {
 public:
  struct Slot {
    void* event = nullptr;
    uint8_t* pinned = nullptr;
    uint64_t device = 0;
    uint64_t pinned_bytes = 0, device_bytes = 0;  // of the buffers
    bool busy = false;  // an event is under way
  };

  static Result<std::unique_ptr<CudaLane>> Make(std::shared_ptr<CudaDevice> device, int slots);
  ~CudaLane();
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  // Makes the slot's buffers hold `size_bytes`. REQUIRES: the slot is not busy.
  Status Grow(Slot& slot, uint64_t size_bytes);
  // The same for the pinned buffer alone.
  Status GrowHost(Slot& slot, uint64_t size_bytes);
  Status CopyToDevice(uint64_t to, const void* from, uint64_t size_bytes);
  Status CopyToHost(void* to, uint64_t from, uint64_t size_bytes);
  Status Record(Slot& slot);
  // True when the slot's event is behind.
  Result<bool> IsDone(Slot& slot);

  // Waits until nothing is under way on the stream; false after `limit`. True where the device is lost.
  bool WaitEmpty(Duration limit);

  void* stream() const { return stream_; }
  std::vector<Slot>& slots() { return slots_; }
  const CudaDevice& device() const { return *device_; }

 private:
  explicit CudaLane(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
  Status GrowDevice(Slot& slot, uint64_t size_bytes);

  const std::shared_ptr<CudaDevice> device_;
  void* stream_ = nullptr;
  std::vector<Slot> slots_;
};

}  // namespace kintsugi
