// NcclFunctions: the functions of NCCL that the collectives of CUDA tensors use.
//
// What: their addresses, as the core finds them at run time (`_core.nccl_function`), in the copy that torch has loaded. No header
// of NCCL is needed; the declarations follow its public interface from 2.18 on.
// Errors: c10::Error names what is missing and the library; versions that are known to hang in an abort are refused by name.
#pragma once

#include <climits>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace kintsugi::torch_door {

struct NcclId {
  char bytes[128];
};

using NcclComm = void*;
using NcclStream = void*;

enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclUint32 = 3,
  kNcclInt64 = 4,
  kNcclUint64 = 5,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};

enum NcclOp : int { kNcclSum = 0, kNcclProduct = 1, kNcclMax = 2, kNcclMin = 3, kNcclAverage = 4 };

// As of 2.18; later versions fill in what they know beyond.
struct NcclSettings {
  size_t size = sizeof(NcclSettings);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 1;
  int cga_cluster_size = INT_MIN;  // INT_MIN: not set
  int ctas_min = INT_MIN;
  int ctas_max = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int unset = INT_MIN;
};

struct NcclFunctions {
  // `address` gives a function's, by its name, or throws what says that there is none.
  static std::shared_ptr<const NcclFunctions> Load(const std::function<void*(const char*)>& address);

  int version = 0;  // 10,000 major + 100 minor + patch
  int (*get_version)(int*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  const char* (*get_last_error)(NcclComm) = nullptr;
  int (*get_unique_id)(NcclId*) = nullptr;
  int (*init_rank_config)(NcclComm*, int ranks, NcclId, int rank, NcclSettings*) = nullptr;
  int (*get_async_error)(NcclComm, int*) = nullptr;
  int (*abort)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, size_t, int type, int peer, NcclComm, NcclStream) = nullptr;
  int (*receive)(void*, size_t, int type, int peer, NcclComm, NcclStream) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int type, int op, NcclComm, NcclStream) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int type, int root, NcclComm, NcclStream) = nullptr;
  int (*reduce)(const void*, void*, size_t, int type, int op, int root, NcclComm, NcclStream) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int type, NcclComm, NcclStream) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int type, int op, NcclComm, NcclStream) = nullptr;
  int (*make_scaled_sum)(int* op, void* scale, int type, int residence, NcclComm) = nullptr;
  int (*destroy_op)(int op, NcclComm) = nullptr;

  // Throws "ncclSend: unhandled cuda error (1): ..." unless it is success.
  void Check(int result, const char* call, NcclComm comm = nullptr) const;
};

}  // namespace kintsugi::torch_door
