#include <c10/util/Exception.h>
#include <nccl_functions.h>

namespace kintsugi::torch_door {
namespace {

constexpr int kOldest = 21800;

std::string TextOfVersion(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

std::shared_ptr<const NcclFunctions> NcclFunctions::Load(const std::function<void*(const char*)>& address) {
  auto nccl = std::make_shared<NcclFunctions>();
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(address(name));
    TORCH_CHECK(function, "NCCL has no ", name);
  };
  find("ncclGetVersion", nccl->get_version);
  TORCH_CHECK(nccl->get_version(&nccl->version) == 0, "ncclGetVersion failed");
  TORCH_CHECK(nccl->version >= kOldest, "NCCL is ", TextOfVersion(nccl->version), "; at least ", TextOfVersion(kOldest),
              " is needed");
  // An abort waits for ever in it (github.com/pytorch/pytorch/issues/149153).
  TORCH_CHECK(nccl->version / 100 != 225, "NCCL ", TextOfVersion(nccl->version),
              " hangs in an abort, so no fault could be mended: install another, 2.26.2 or newer");
  find("ncclGetErrorString", nccl->get_error_string);
  find("ncclGetLastError", nccl->get_last_error);
  find("ncclGetUniqueId", nccl->get_unique_id);
  find("ncclCommInitRankConfig", nccl->init_rank_config);
  find("ncclCommGetAsyncError", nccl->get_async_error);
  find("ncclCommAbort", nccl->abort);
  find("ncclGroupStart", nccl->group_start);
  find("ncclGroupEnd", nccl->group_end);
  find("ncclSend", nccl->send);
  find("ncclRecv", nccl->receive);
  find("ncclAllReduce", nccl->all_reduce);
  find("ncclBroadcast", nccl->broadcast);
  find("ncclReduce", nccl->reduce);
  find("ncclAllGather", nccl->all_gather);
  find("ncclReduceScatter", nccl->reduce_scatter);
  find("ncclRedOpCreatePreMulSum", nccl->make_scaled_sum);
  find("ncclRedOpDestroy", nccl->destroy_op);
  return nccl;
}

void NcclFunctions::Check(int result, const char* call, NcclComm comm) const {
  if (result == 0) return;
  const char* last = get_last_error(comm);
  TORCH_CHECK(false, call, ": ", get_error_string(result), " (", result, ")", last && *last ? ": " : "",
              last ? last : "");
}

}  // namespace kintsugi::torch_door
