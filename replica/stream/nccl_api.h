// NcclApi: the functions of NCCL that we call, found at run time.
//
// What: any NCCL from 2.18 on; what newer ones add is null where the library lacks it. The declarations are our own: no
// header is needed to build, and a header of one version would say nothing about the library that a framework has
// loaded. They follow NCCL's public interface, whose versions keep to it: the configuration names its size and version,
// and a library fills in what it knows beyond.
// Threads: NCCL's communicators are not thread-safe: see nccl_communicators.h.
// Errors: LoadNccl: kNotFound where there is no library, kFailedPrecondition where it is too old or not NCCL; callers
// go on with Gloo.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace kintsugi {

struct NcclUniqueId {
  char internal[128];
};

// As of 2.18.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // INT_MIN: not set
  int ctas_min = INT_MIN;
  int ctas_max = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int unset = INT_MIN;  // padding then; later versions have a field here
};

enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};

inline constexpr int kNcclInt8 = 0;
inline constexpr int kNcclVersionMin = 21800;

using NcclComm = void*;
using NcclStream = void*;

struct NcclApi {
  int version = 0;   // 10,000 major + 100 minor + patch
  std::string name;  // of the library

  int (*get_version)(int*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  const char* (*get_last_error)(NcclComm) = nullptr;
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*init_rank_config)(NcclComm*, int ranks, NcclUniqueId, int rank, NcclConfig*) = nullptr;
  int (*get_async_error)(NcclComm, int*) = nullptr;
  int (*abort)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, size_t, int type, int peer, NcclComm, NcclStream) = nullptr;
  int (*receive)(void*, size_t, int type, int peer, NcclComm, NcclStream) = nullptr;

  // Null where the library is older.
  int (*init_rank_scalable)(NcclComm*, int ranks, int rank, int ids, NcclUniqueId*, NcclConfig*) = nullptr;  // 2.23
  int (*shrink)(NcclComm, int* excluded, int count, NcclComm*, NcclConfig*, int flags) = nullptr;            // 2.27.3
  int (*revoke)(NcclComm, int flags) = nullptr;                                                              // 2.28.7

  // Any other function of the library; null where it has none of this name.
  std::function<void*(const char* symbol)> find;

  // "ncclSend: unhandled cuda error (1): ...".
  KINTSUGI_EXPORT std::string Describe(const char* call, int result, NcclComm comm) const;
};

// "2.28.9".
KINTSUGI_EXPORT std::string NcclVersionText(int version);

// The copy that the process has loaded already, else the file in KINTSUGI_NCCL_LIBRARY, else libnccl.so.2; with `path`
// that file alone.
KINTSUGI_EXPORT Result<std::shared_ptr<const NcclApi>> LoadNccl(const std::string& path = "");

}  // namespace kintsugi
