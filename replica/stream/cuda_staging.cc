#include "replica/stream/cuda_staging.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr uint64_t kSlotBytesMin = 1 << 20;

}  // namespace

Result<std::unique_ptr<CudaLane>> CudaLane::Make(std::shared_ptr<CudaDevice> device, int slots) {
  KINTSUGI_CHECK(slots > 0, "a lane has a slot");
  KINTSUGI_RETURN_IF_ERROR(device->Bind());
  std::unique_ptr<CudaLane> lane(new CudaLane(device));
  const CudaDriver& driver = device->driver();
  KINTSUGI_RETURN_IF_ERROR(device->Check(driver.stream_create(&lane->stream_, kStreamNonBlocking), "cuStreamCreate"));
  lane->slots_.resize(static_cast<size_t>(slots));
  for (Slot& slot : lane->slots_)
    KINTSUGI_RETURN_IF_ERROR(device->Check(driver.event_create(&slot.event, kEventDisableTiming), "cuEventCreate"));
  return lane;
}

CudaLane::~CudaLane() {
  if (!device_->Bind().ok()) return;
  const CudaDriver& driver = device_->driver();
  // First: a copy behind an operation that was aborted may still be on its way into a buffer.
  if (stream_) driver.stream_destroy(stream_);
  for (Slot& slot : slots_) {
    if (slot.pinned) driver.host_free(slot.pinned);
    if (slot.device) driver.memory_free(slot.device);
    if (slot.event) driver.event_destroy(slot.event);
  }
}

Status CudaLane::GrowHost(Slot& slot, uint64_t size_bytes) {
  KINTSUGI_CHECK(!slot.busy, "buffers of a slot that is busy stay where they are");
  if (slot.pinned_bytes >= size_bytes) return Status::Ok();
  const CudaDriver& driver = device_->driver();
  if (slot.pinned) driver.host_free(std::exchange(slot.pinned, nullptr));
  slot.pinned_bytes = 0;
  const uint64_t capacity = std::max(size_bytes, kSlotBytesMin);
  void* pinned = nullptr;
  KINTSUGI_RETURN_IF_ERROR(device_->Check(driver.host_allocate(&pinned, capacity, 0), "cuMemHostAlloc"));
  slot.pinned = static_cast<uint8_t*>(pinned);
  slot.pinned_bytes = capacity;
  return Status::Ok();
}

Status CudaLane::GrowDevice(Slot& slot, uint64_t size_bytes) {
  if (slot.device_bytes >= size_bytes) return Status::Ok();
  const CudaDriver& driver = device_->driver();
  if (slot.device) driver.memory_free(std::exchange(slot.device, 0));
  slot.device_bytes = 0;
  const uint64_t capacity = std::max(size_bytes, kSlotBytesMin);
  KINTSUGI_RETURN_IF_ERROR(device_->Check(driver.memory_allocate(&slot.device, capacity), "cuMemAlloc"));
  slot.device_bytes = capacity;
  return Status::Ok();
}

Status CudaLane::Grow(Slot& slot, uint64_t size_bytes) {
  KINTSUGI_RETURN_IF_ERROR(GrowHost(slot, size_bytes));
  return GrowDevice(slot, size_bytes);
}

Status CudaLane::CopyToDevice(uint64_t to, const void* from, uint64_t size_bytes) {
  return device_->Check(device_->driver().copy_to_device(to, from, size_bytes, stream_), "cuMemcpyHtoDAsync");
}

Status CudaLane::CopyToHost(void* to, uint64_t from, uint64_t size_bytes) {
  return device_->Check(device_->driver().copy_to_host(to, from, size_bytes, stream_), "cuMemcpyDtoHAsync");
}

Status CudaLane::Record(Slot& slot) {
  slot.busy = true;
  return device_->Check(device_->driver().event_record(slot.event, stream_), "cuEventRecord");
}

Result<bool> CudaLane::IsDone(Slot& slot) {
  if (!slot.busy) return true;
  const int result = device_->driver().event_query(slot.event);
  if (result == kCudaNotReady) return false;
  KINTSUGI_RETURN_IF_ERROR(device_->Check(result, "cuEventQuery"));
  slot.busy = false;
  return true;
}

bool CudaLane::WaitEmpty(Duration limit) {
  if (!device_->Bind().ok() || !Record(slots_.front()).ok()) return true;
  const TimePoint deadline = SteadyClock::SteadyNow() + limit;
  for (;;) {
    const Result<bool> done = IsDone(slots_.front());
    if (!done.ok() || *done) return true;
    if (SteadyClock::SteadyNow() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace kintsugi
