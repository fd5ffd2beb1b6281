#include "replica/stream/nccl_api.h"

#include "runtime/base/shared_library.h"

namespace kintsugi {

std::string NcclApi::Describe(const char* call, int result, NcclComm comm) const {
  std::string text = std::string(call) + ": " + get_error_string(result) + " (" + std::to_string(result) + ")";
  const char* last = get_last_error ? get_last_error(comm) : nullptr;
  if (last && *last) text += ": " + std::string(last);
  return text;
}

std::string NcclVersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Result<std::shared_ptr<const NcclApi>> LoadNccl(const std::string& path) {
  const auto library = SharedLibrary::Open(
      {.what = "NCCL", .usual = {"libnccl.so.2", "libnccl.so"}, .variable = "KINTSUGI_NCCL_LIBRARY", .path = path});
  if (!library.ok()) return library.status();
  auto api = std::make_shared<NcclApi>();
  api->name = library->name();
  api->find = [kept = *library](const char* symbol) { return kept.Find(symbol); };
  const auto lacks = [&](const char* symbol) {
    return Status(StatusCode::kFailedPrecondition, "'" + library->name() + "' has no " + symbol +
                                                       ", which NCCL has from " + NcclVersionText(kNcclVersionMin) +
                                                       " on; set KINTSUGI_NCCL_LIBRARY");
  };
  if (!library->Bind("ncclGetVersion", api->get_version) || api->get_version(&api->version) != kNcclSuccess)
    return lacks("ncclGetVersion");
  // Up to 2.8 versions counted 1,000 per major; all these numbers are smaller.
  if (api->version < kNcclVersionMin)
    return Status(StatusCode::kFailedPrecondition, "NCCL of '" + library->name() + "' is version number " +
                                                       std::to_string(api->version) + "; at least " +
                                                       NcclVersionText(kNcclVersionMin) + " is needed");
  const auto need = [&](const char* symbol, auto& function, Status& status) {
    if (status.ok() && !library->Bind(symbol, function)) status = lacks(symbol);
  };
  Status status;
  need("ncclGetErrorString", api->get_error_string, status);
  need("ncclGetLastError", api->get_last_error, status);
  need("ncclGetUniqueId", api->get_unique_id, status);
  need("ncclCommInitRankConfig", api->init_rank_config, status);
  need("ncclCommGetAsyncError", api->get_async_error, status);
  need("ncclCommAbort", api->abort, status);
  need("ncclGroupStart", api->group_start, status);
  need("ncclGroupEnd", api->group_end, status);
  need("ncclSend", api->send, status);
  need("ncclRecv", api->receive, status);
  KINTSUGI_RETURN_IF_ERROR(status);
  library->Bind("ncclCommInitRankScalable", api->init_rank_scalable);
  library->Bind("ncclCommShrink", api->shrink);
  library->Bind("ncclCommRevoke", api->revoke);
  return std::shared_ptr<const NcclApi>(std::move(api));
}

}  // namespace kintsugi
