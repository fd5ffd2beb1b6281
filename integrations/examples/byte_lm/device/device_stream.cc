#include "integrations/examples/byte_lm/device/device_stream.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

namespace kintsugi::byte_lm::device {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
// Queries without a pause, then with one: most waits are for microseconds.
constexpr int kEagerQueries = 200;
constexpr auto kQueryPause = 50us;

}  // namespace

Result<std::unique_ptr<DeviceStream>> DeviceStream::Make(std::shared_ptr<CudaDevice> device, Duration limit) {
  KINTSUGI_RETURN_IF_ERROR(device->Bind());
  std::unique_ptr<DeviceStream> stream(new DeviceStream(device, limit));
  const CudaDriver& driver = device->driver();
  KINTSUGI_RETURN_IF_ERROR(device->Check(driver.stream_create(&stream->stream_, kStreamNonBlocking), "cuStreamCreate"));
  KINTSUGI_RETURN_IF_ERROR(device->Check(driver.event_create(&stream->event_, kEventDisableTiming), "cuEventCreate"));
  KINTSUGI_RETURN_IF_ERROR(device->Check(driver.host_allocate(&stream->pinned_, kPinnedBytes, 0), "cuMemHostAlloc"));
  return stream;
}

DeviceStream::~DeviceStream() {
  if (!device_->Bind().ok()) return;
  const CudaDriver& driver = device_->driver();
  if (pinned_) driver.host_free(pinned_);
  if (event_) driver.event_destroy(event_);
  if (stream_) driver.stream_destroy(stream_);
}

Status DeviceStream::CopyToDevice(void* to, const void* from, size_t size_bytes) {
  for (size_t at = 0; at < size_bytes; at += kPinnedBytes) {
    const size_t part = std::min(kPinnedBytes, size_bytes - at);
    // The pinned buffer may still be read by the copy before.
    KINTSUGI_RETURN_IF_ERROR(Wait());
    std::memcpy(pinned_, static_cast<const char*>(from) + at, part);
    KINTSUGI_RETURN_IF_ERROR(
        device_->Check(device_->driver().copy_to_device(reinterpret_cast<uint64_t>(to) + at, pinned_, part, stream_),
                       "cuMemcpyHtoDAsync"));
  }
  return Status::Ok();
}

Status DeviceStream::CopyToHost(void* to, const void* from, size_t size_bytes) {
  KINTSUGI_RETURN_IF_ERROR(Wait());
  for (size_t at = 0; at < size_bytes; at += kPinnedBytes) {
    const size_t part = std::min(kPinnedBytes, size_bytes - at);
    KINTSUGI_RETURN_IF_ERROR(
        device_->Check(device_->driver().copy_to_host(pinned_, reinterpret_cast<uint64_t>(from) + at, part, stream_),
                       "cuMemcpyDtoHAsync"));
    KINTSUGI_RETURN_IF_ERROR(Wait());
    std::memcpy(static_cast<char*>(to) + at, pinned_, part);
  }
  return Status::Ok();
}

int DeviceStream::Query() const {
  const CudaDriver& driver = device_->driver();
  static_cast<void>(device_->Bind());
  const int recorded = driver.event_record(event_, stream_);
  return recorded != 0 ? recorded : driver.event_query(event_);
}

Result<bool> DeviceStream::IsDone() {
  const int result = device_->driver().event_query(event_);
  if (result == kCudaNotReady) return false;
  KINTSUGI_RETURN_IF_ERROR(device_->Check(result, "cuEventQuery"));
  return true;
}

Status DeviceStream::WaitUntil(TimePoint deadline, bool through_abort, const char* what) {
  const TimePoint start = SteadyClock::SteadyNow();
  KINTSUGI_RETURN_IF_ERROR(device_->Bind());
  KINTSUGI_RETURN_IF_ERROR(device_->Check(device_->driver().event_record(event_, stream_), "cuEventRecord"));
  for (int query = 0;; ++query) {
    KINTSUGI_ASSIGN_OR_RETURN(const bool done, IsDone());
    if (!through_abort) {
      if (aborted_) return {StatusCode::kCancelled, "the wait for the device was aborted"};
      // An abort or an error lets the stream go on past work that it ended half way: looked at behind the event too.
      if (watch_ && (done || query >= kEagerQueries)) KINTSUGI_RETURN_IF_ERROR(watch_());
    }
    if (done) return Status::Ok();
    if (query < kEagerQueries) continue;
    const TimePoint now = SteadyClock::SteadyNow();
    if (now >= deadline)
      return {StatusCode::kDeadlineExceeded,
              std::string(what) + " on CUDA device " + std::to_string(device_->ordinal()) + " took " +
                  std::to_string(static_cast<int64_t>(ToMilliseconds(now - start))) + " ms, limit " +
                  std::to_string(static_cast<int64_t>(ToMilliseconds(deadline - start))) +
                  " ms: the device hangs, or a kernel waits for a rank that is gone"};
    std::this_thread::sleep_for(kQueryPause);
  }
}

Status DeviceStream::Drain(TimePoint deadline) {
  KINTSUGI_RETURN_IF_ERROR(WaitUntil(deadline, true, "what an incident left"));
  aborted_ = false;
  return Status::Ok();
}

}  // namespace kintsugi::byte_lm::device
