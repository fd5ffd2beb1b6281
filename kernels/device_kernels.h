// LoadDeviceKernels: the kernels of a CUDA device, from a library that is found at run time.
//
// What: libkintsugi_cuda.so has them (built where the CUDA Toolkit is), so that libkintsugi.so needs neither a toolkit nor a
// device. It is looked for beside the library or program that this code is linked into, then by the loader; the file that
// KINTSUGI_KERNELS_LIBRARY or `path` names is taken alone.
// Threads: any.
// Errors: kNotFound says where it was looked for; kFailedPrecondition: the library is of another version; those of
// MakeCudaKernels.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

class ByteKernels;

// Part of the library's one symbol, so that a library of another version has it under another name. Counted up whenever
// ByteKernels or a type in its functions changes.
#define KINTSUGI_DEVICE_KERNELS_SYMBOL kintsugi_device_kernels_1
#define KINTSUGI_DEVICE_KERNELS_NAME "kintsugi_device_kernels_1"

// What the library shows: the kernels of device number `device`, or why there are none.
using DeviceKernelsFunction = void (*)(int device, Result<std::shared_ptr<const ByteKernels>>* kernels);

KINTSUGI_EXPORT Result<std::shared_ptr<const ByteKernels>> LoadDeviceKernels(int device, const std::string& path = "");

}  // namespace kintsugi
