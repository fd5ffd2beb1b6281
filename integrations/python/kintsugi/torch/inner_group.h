// InnerGroup: what connects the ranks of an outer group for one generation, for tensors of one kind of device.
//
// What: the seam below OuterGroup. Gloo is behind it for the processor (GlooInner), NCCL for CUDA devices (NcclInner), or what torch
// makes for a device (TorchInner). Collectives are those of the c10d::Backend that it brings.
// Threads: Cut from any, at once with collectives; Drained and destruction once no collective is under way any more.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace kintsugi::torch_door {

class InnerGroup {
 public:
  virtual ~InnerGroup() = default;

  virtual c10d::Backend& collectives() = 0;
  // One call of it that gives a work, or null where there is none to wait for.
  using Call = c10::function_ref<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>;
  virtual c10::intrusive_ptr<c10d::Work> Begin(Call call) { return call(collectives()); }
  // First of all at a stop: no byte of it arrives late, and nobody waits in it on the host for long. Without Python's lock;
  // waits for nobody.
  virtual void Cut() = 0;
  // Whether a work ends on a stream of the device, behind the host's back: such works guard themselves, and are handed on as
  // they are. Else they end with a future of the host's.
  virtual bool EndsOnDevice() const = 0;
};

// Whether somebody captures a CUDA graph: collectives on a device are refused meanwhile.
void SetCapturing(bool capturing);
void CheckNotCapturing();

// A TCP connection, found again at abort by its inode: descriptor numbers are reused.
struct GroupConnection {
  int descriptor = -1;
  uint64_t inode = 0;
};

class GlooInner final : public InnerGroup {
 public:
  GlooInner(c10::intrusive_ptr<c10d::Backend> gloo, std::vector<GroupConnection> connections)
      : gloo_(std::move(gloo)), connections_(std::move(connections)) {}

  c10d::Backend& collectives() override { return *gloo_; }
  void Cut() override;
  bool EndsOnDevice() const override { return false; }

 private:
  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::vector<GroupConnection> connections_;
};

}  // namespace kintsugi::torch_door
