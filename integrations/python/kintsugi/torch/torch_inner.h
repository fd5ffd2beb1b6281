// TorchInner: a backend of torch's own for tensors on a device, such as ProcessGroupNCCL, between an outer group and its ranks.
//
// What: to compare it with NcclInner, and for a device whose library torch has and we do not. It is whatever torch makes: no header of
// CUDA's is needed. Its works say nothing of an abort, and end like any other: here they are void from the cut on. Its `wait` may
// block the host, so the current stream waits instead; for a barrier the host does, and looks at the flag meanwhile. Null works pass.
// What it cannot do, and NcclInner does: end an init whose peer never comes; keep the memory of its connections until all ranks have
// drained, since torch's abort frees at once; end several groups in one call.
// Threads: Cut from any. It aborts on a thread of its own, which may be left behind in it.
// Errors: c10::DistBackendError whose text begins with kFailureMark, once it was cut.
#pragma once

#include <inner_group.h>

#include <atomic>
#include <memory>
#include <string>

namespace kintsugi::torch_door {

class TorchInner final : public InnerGroup {
 public:
  // `called`: how errors call the group.
  TorchInner(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<const std::string> called);

  c10d::Backend& collectives() override { return *shared_->backend; }
  c10::intrusive_ptr<c10d::Work> Begin(Call call) override;
  void Cut() override;
  bool EndsOnDevice() const override { return true; }

  // What its works, and the thread that aborts it, share with it.
  struct Shared {
    c10::intrusive_ptr<c10d::Backend> backend;
    std::shared_ptr<const std::string> called;
    std::atomic<bool> is_void{false};
    std::atomic<int> inside{0};  // threads in a call of it
  };

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace kintsugi::torch_door
