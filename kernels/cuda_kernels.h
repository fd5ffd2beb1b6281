// ByteKernels for a CUDA device.
//
// What: MakeCudaKernels gives an implementation for one device. Streams are cudaStream_t of that device (null: its
// legacy default stream). Calls enqueue on the stream and return without a synchronization or an allocation; they
// change the calling thread's current device back to what it was.
// Threads: any thread, several at once.
// Errors: kUnavailable where there is no such device or driver (the message carries CUDA's words, and a caller goes on
// without kernels); kInternal names a launch's error. In the library kintsugi::kernels_cuda, which is built where
// the CUDA Toolkit is.
#pragma once

#include <memory>

#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

class ByteKernels;

KINTSUGI_EXPORT Result<std::shared_ptr<const ByteKernels>> MakeCudaKernels(int device);

// The number of devices, or kUnavailable with the reason why there is none.
KINTSUGI_EXPORT Result<int> CudaDevices();

}  // namespace kintsugi
