// What an error of a CUDA call means for the process that met it, and which rung follows.
//
// What: an error is sticky when every later call fails too; then the context is lost. A process cannot have another:
// CUDA gives it one primary context per device, destroying or resetting that leaves the runtime and every library
// (NCCL, cuBLAS) with handles into it, and memory of the fault's kind is only taken out of use for new processes. So
// the rung `rebuild` never follows a lost context: the process is replaced. How to ask: after an error call
// cudaGetLastError, then something trivial (cudaDeviceGetAttribute); `query` is its result. Source of the rule: the
// descriptions of cudaError_t in the CUDA runtime's reference, NVIDIA's GPU memory error guide.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/export.h"

namespace kintsugi::device {

enum class CudaRung : uint8_t {
  kNone,              // no fault of the device: the caller deals with it (a poll, too little memory)
  kPatch,             // the context lives and the damaged memory is named
  kRebuild,           // the context lives, and what is damaged is not known
  kRespawn,           // the context is lost: a new process on the same device
  kRespawnElsewhere,  // there is no device, or it needs a reset
};

struct CudaErrorClass {
  std::string name;  // "cudaErrorIllegalAddress"
  bool known = true;
  bool sticky = false;
  bool context_lost = false;
  CudaRung rung = CudaRung::kNone;
};

// `error` and `query` are cudaError_t; `damage_named`: the addresses of the damaged memory are known.
KINTSUGI_EXPORT CudaErrorClass ClassifyCudaError(int error, int query, bool damage_named);

KINTSUGI_EXPORT std::string_view CudaRungName(CudaRung rung);

}  // namespace kintsugi::device
