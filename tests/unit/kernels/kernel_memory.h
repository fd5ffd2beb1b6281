// Where the contract suite of byte_kernels.h runs: kernels and the memory that they reach.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/byte_kernels.h"

namespace kintsugi {

// Memory of one kind and kernels over it. A test skips with the reason where `unavailable` gives one.
class KernelMemory {
 public:
  virtual ~KernelMemory() = default;
  virtual std::string unavailable() const { return ""; }
  virtual const ByteKernels& kernels() const = 0;
  virtual KernelStream stream() const { return {}; }
  // Aligned to 256 bytes, filled with 0xAA; freed with this object.
  virtual uint8_t* Allocate(size_t size_bytes) = 0;
  virtual void Upload(void* to, const void* from, size_t size_bytes) = 0;
  // Waits for the stream first.
  virtual void Download(void* to, const void* from, size_t size_bytes) = 0;
};

class HostKernelMemory : public KernelMemory {
 public:
  explicit HostKernelMemory(const ByteKernels& kernels) : kernels_(kernels) {}
  const ByteKernels& kernels() const override { return kernels_; }
  uint8_t* Allocate(size_t size_bytes) override {
    blocks_.push_back(std::make_unique<uint8_t[]>(size_bytes + 256));
    uint8_t* block = blocks_.back().get();
    std::memset(block, 0xAA, size_bytes + 256);
    return block + (256 - reinterpret_cast<uintptr_t>(block) % 256) % 256;
  }
  void Upload(void* to, const void* from, size_t size_bytes) override { std::memcpy(to, from, size_bytes); }
  void Download(void* to, const void* from, size_t size_bytes) override { std::memcpy(to, from, size_bytes); }

 private:
  const ByteKernels& kernels_;
  std::vector<std::unique_ptr<uint8_t[]>> blocks_;
};

}  // namespace kintsugi
