// CudaDriver: the few functions of the CUDA driver that links need, found at run time.
//
// What: streams, events, memory and copies. The driver (libcuda.so.1) is on every machine with a device, whatever
// toolkit a trainer was built with, so links need no toolkit; the declarations are our own. CudaDevice is one device
// with its primary context, the one that the CUDA runtime and NCCL use too.
// Threads: any; a thread calls Bind before it uses the others.
// Ownership: holds a reference to the primary context.
// Errors: kNotFound where there is no driver, kUnavailable where it has no such device, kInternal with the driver's own
// name and number for everything else (an error of the device: see runtime/device for what it means).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/export.h"
#include "runtime/base/result.h"
#include "runtime/base/shared_library.h"

namespace kintsugi {

struct CudaDriver {
  std::shared_ptr<const SharedLibrary> library;  // of functions that fewer need
  int (*init)(unsigned flags) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_get)(int*, int ordinal) = nullptr;
  int (*context_retain)(void**, int device) = nullptr;
  int (*context_release)(int device) = nullptr;
  int (*context_set)(void*) = nullptr;
  int (*context_synchronize)() = nullptr;
  int (*stream_create)(void**, unsigned flags) = nullptr;
  int (*stream_destroy)(void*) = nullptr;
  int (*event_create)(void**, unsigned flags) = nullptr;
  int (*event_destroy)(void*) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_query)(void*) = nullptr;
  int (*memory_allocate)(uint64_t*, size_t) = nullptr;
  int (*memory_free)(uint64_t) = nullptr;
  int (*host_allocate)(void**, size_t, unsigned flags) = nullptr;
  int (*host_free)(void*) = nullptr;
  int (*copy_to_device)(uint64_t, const void*, size_t, void* stream) = nullptr;
  int (*copy_to_host)(void*, uint64_t, size_t, void* stream) = nullptr;
  int (*pointer_attribute)(void*, int attribute, uint64_t) = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*host_register)(void*, size_t, unsigned flags) = nullptr;  // may be null, as the next
  int (*host_unregister)(void*) = nullptr;
};

inline constexpr int kCudaNotReady = 600;

class KINTSUGI_EXPORT CudaDevice {
 public:
  // libcuda.so.1, or the file in KINTSUGI_CUDA_LIBRARY; with `path` that file alone.
  static Result<std::shared_ptr<CudaDevice>> Open(int ordinal, const std::string& path = "");
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  // Makes the device's context the calling thread's.
  Status Bind() const;
  // Waits for all that this process has enqueued on the device.
  Status Synchronize() const;
  // Whether the address lies in device memory; what the driver does not know is host memory.
  bool IsDeviceMemory(const void* data) const;
  // Whether all of it is host memory that the driver has pinned.
  bool IsPinned(const void* data, uint64_t size_bytes) const;
  // "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2) on device 0"; Ok for 0.
  Status Check(int result, const char* call) const;

  const CudaDriver& driver() const { return driver_; }
  int ordinal() const { return ordinal_; }

 private:
  // What the driver knows of the address; 0: nothing.
  unsigned MemoryType(const void* data) const;
  CudaDevice(const CudaDriver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}

  const CudaDriver driver_;
  const int ordinal_;
  int device_ = 0;
  void* context_ = nullptr;
};

}  // namespace kintsugi
