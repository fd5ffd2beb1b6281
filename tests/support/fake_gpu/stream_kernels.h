// StreamKernels: the host's checksum kernel, run on a stream of the fake device.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>

#include "kernels/byte_kernels.h"

namespace kintsugi {

// The host's kernels, run on the fake device's stream.
class StreamKernels final : public ByteKernels {
 public:
  explicit StreamKernels(const char* library)
      : run_(reinterpret_cast<Run>(dlsym(dlopen(library, RTLD_NOW), "fakeStreamRun"))),
        reach_(reinterpret_cast<Reach>(dlsym(dlopen(library, RTLD_NOW), "fakeReach"))) {}
  std::string_view kind() const override { return "fake"; }
  bool CanCast(ElementType, ElementType) const override { return false; }
  Status Copy(std::span<const CopyPart>, KernelStream) const override { return Unused(); }
  Status Cast(std::span<const CastPart>, KernelStream) const override { return Unused(); }
  Status Compare(const void*, const void*, uint64_t, uint64_t*, KernelStream) const override { return Unused(); }
  Status Pack(std::span<const PackPart>, void*, uint64_t, const BlockSums*, KernelStream) const override {
    return Unused();
  }
  Status Unpack(std::span<const PackPart>, const void*, uint64_t, const BlockSums*, const uint64_t*, uint64_t*,
                KernelStream) const override {
    return Unused();
  }
  Status Checksum(const void* data, uint64_t size_bytes, const BlockSums& sums, KernelStream stream) const override {
    ++checksums;
    auto* work = new std::function<void()>([=, this] {
      const BlockSums reached{static_cast<uint64_t*>(reach_(sums.sums)), sums.block_bytes};
      if (!HostKernels().Checksum(reach_(data), size_bytes, reached, {}).ok()) std::abort();
    });
    const auto run = [](void* argument) {
      const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(argument));
      (*owned)();
    };
    run_(stream.handle, run, work);
    return Status::Ok();
  }

  mutable std::atomic<int> checksums{0};  // calls

 private:
  using Run = void (*)(void* stream, void (*work)(void*), void* argument);
  static Status Unused() { return {StatusCode::kInternal, "no such kernel is needed"}; }
  const Run run_;
  using Reach = void* (*)(const void*);
  const Reach reach_;
};

}  // namespace kintsugi
