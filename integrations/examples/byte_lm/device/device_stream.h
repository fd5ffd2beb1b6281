// DeviceStream: the one stream of a rank's training, with waits that end.
//
// What: kernels, products, copies and NCCL's operations go on one stream in the order of the calls. A wait asks the
// event behind them, what `watch` says of the communicators, the abort and the limit in turn; it never synchronizes in
// the driver, where nothing could end it.
// Threads: the trainer's; Abort from any.
// Ownership: frees stream, event and pinned buffer. REQUIRES at the end: nothing is under way, or the device is lost.
// Errors: those of cuda_driver.h; kCancelled after Abort, until Drain; kDeadlineExceeded names the place and the limit;
// what watch says.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "replica/stream/cuda_driver.h"
#include "runtime/base/clock.h"

namespace kintsugi::byte_lm::device {

class DeviceStream {
 public:
  // `limit`: of a wait in which nothing else ends; the runtime finds a rank that stands still much sooner.
  static Result<std::unique_ptr<DeviceStream>> Make(std::shared_ptr<CudaDevice> device,
                                                    Duration limit = std::chrono::minutes(10));
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  void* handle() const { return stream_; }
  const CudaDevice& device() const { return *device_; }
  const std::shared_ptr<CudaDevice>& device_pointer() const { return device_; }

  // The host's bytes go by way of the pinned buffer, and may change after the call.
  Status CopyToDevice(void* to, const void* from, size_t size_bytes);
  // Waits for all that is under way.
  Status CopyToHost(void* to, const void* from, size_t size_bytes);

  Status Wait() { return WaitUntil(SteadyClock::SteadyNow() + limit_, false, "work on the device"); }
  // For work that ends by itself: neither an abort nor the communicators' state ends this wait.
  Status WaitThroughAbort(const char* what) { return WaitUntil(SteadyClock::SteadyNow() + limit_, true, what); }
  // What the stop handler calls: waits end now.
  void Abort() { aborted_ = true; }
  bool aborted() const { return aborted_; }
  // What the clean handler calls, when the communicators are gone: waits until the stream is empty, then takes new
  // work.
  Status Drain(TimePoint deadline);

  // What something trivial gives now: 0 or kCudaNotReady where the context is alive, else the error that ended it.
  int Query() const;

  // Asked during every wait that an abort may end; empty: nothing.
  void Watch(std::function<Status()> watch) { watch_ = std::move(watch); }

 private:
  DeviceStream(std::shared_ptr<CudaDevice> device, Duration limit) : device_(std::move(device)), limit_(limit) {}
  Status WaitUntil(TimePoint deadline, bool through_abort, const char* what);
  Result<bool> IsDone();

  static constexpr size_t kPinnedBytes = size_t{1} << 20;

  const std::shared_ptr<CudaDevice> device_;
  const Duration limit_;
  void* stream_ = nullptr;
  void* event_ = nullptr;
  void* pinned_ = nullptr;
  std::function<Status()> watch_;
  std::atomic<bool> aborted_{false};
};

}  // namespace kintsugi::byte_lm::device
