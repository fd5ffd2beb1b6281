// DeviceWork: what torch waits for of a collective that runs on a stream of a device.
//
// What: `wait` and `synchronize` make the current stream wait and not the host, but for a barrier's. After an abort the device says
// "done" and what was computed is anything: every look at the work looks at the generation's flag, before and after.
// Threads: any.
// Errors: c10::DistBackendError whose text begins with kFailureMark, once the generation was cut.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <guarded_work.h>
#include <nccl_generation.h>

#include <memory>
#include <string>
#include <vector>

namespace kintsugi::torch_door {

class DeviceWork final : public c10d::Work {
 public:
  struct What {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    std::shared_ptr<NcclGeneration> generation;
    std::shared_ptr<const std::string> group;  // how its errors call it
    std::vector<at::Tensor> touched;           // kept until the current stream waits for the end
    std::vector<at::Tensor> outputs;           // what a future gives
    bool blocks_host = false;                  // a barrier's
  };
  // Stands behind what was enqueued on `stream` so far.
  DeviceWork(What what, const c10::Stream& stream);
  ~DeviceWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return what_.outputs; }
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override { what_.generation->Cut(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::exception_ptr FailureOf(const std::string& why) const;
  void CheckNotVoid() const;
  void AwaitOnHost(std::chrono::milliseconds timeout);

  What what_;
  const c10::Stream stream_;
  c10::Event end_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Until all that was enqueued on a device is done; false: not within the limit, and a thread that waits for it is left behind. Throws the
// device's error.
bool AwaitDevice(const c10::Device& device, int64_t limit_ms);

}  // namespace kintsugi::torch_door
