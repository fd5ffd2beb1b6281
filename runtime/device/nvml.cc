#include "runtime/device/nvml.h"

#include "runtime/base/shared_library.h"

namespace kintsugi::device {

Result<std::shared_ptr<Nvml>> Nvml::Load(const std::string& path) {
  const auto library = SharedLibrary::Open(
      {.what = "NVML", .usual = {"libnvidia-ml.so.1"}, .variable = "KINTSUGI_NVML_LIBRARY", .path = path});
  if (!library.ok()) return library.status();
  std::shared_ptr<Nvml> nvml(new Nvml);
  Status status;
  const auto need = [&](const char* symbol, auto& function) {
    if (!library->Bind(symbol, function) && status.ok())
      status = Status(StatusCode::kUnavailable, "'" + library->name() + "' has no " + symbol);
  };
  need("nvmlInit_v2", nvml->init);
  need("nvmlShutdown", nvml->shutdown);
  need("nvmlDeviceGetCount_v2", nvml->count);
  need("nvmlDeviceGetHandleByIndex_v2", nvml->by_index);
  need("nvmlDeviceGetHandleByPciBusId_v2", nvml->by_pci);
  need("nvmlDeviceGetIndex", nvml->index_of);
  need("nvmlDeviceGetSupportedEventTypes", nvml->supported_events);
  need("nvmlEventSetCreate", nvml->events_create);
  need("nvmlDeviceRegisterEvents", nvml->events_register);
  need("nvmlEventSetWait_v2", nvml->events_wait);
  need("nvmlEventSetFree", nvml->events_free);
  need("nvmlErrorString", nvml->error_string);
  KINTSUGI_RETURN_IF_ERROR(status);
  library->Bind("nvmlDeviceGetHandleByUUID", nvml->by_uuid);
  library->Bind("nvmlDeviceGetRemappedRows", nvml->remapped_rows);
  library->Bind("nvmlDeviceGetTotalEccErrors", nvml->total_ecc);
  library->Bind("nvmlDeviceGetFieldValues", nvml->field_values);
  KINTSUGI_RETURN_IF_ERROR(nvml->Check(nvml->init(), "nvmlInit"));
  nvml->initialised_ = true;
  return nvml;
}

Nvml::~Nvml() {
  if (initialised_) shutdown();
}

Status Nvml::Check(int result, const char* call) const {
  if (result == 0) return Status::Ok();
  return {StatusCode::kUnavailable,
          std::string(call) + ": " + error_string(result) + " (" + std::to_string(result) + ")"};
}

Result<std::vector<void*>> Nvml::Devices() const {
  unsigned number = 0;
  KINTSUGI_RETURN_IF_ERROR(Check(count(&number), "nvmlDeviceGetCount"));
  std::vector<void*> devices(number);
  for (unsigned i = 0; i < number; ++i)
    KINTSUGI_RETURN_IF_ERROR(Check(by_index(i, &devices[i]), "nvmlDeviceGetHandleByIndex"));
  return devices;
}

int Nvml::FindByPci(const std::string& pci) const {
  void* handle = nullptr;
  unsigned index = 0;
  const std::string whole = pci.find('.') == std::string::npos ? pci + ".0" : pci;
  if (by_pci(whole.c_str(), &handle) != 0 || index_of(handle, &index) != 0) return -1;
  return static_cast<int>(index);
}

int Nvml::FindByName(const std::string& uuid) const {
  void* handle = nullptr;
  unsigned index = 0;
  if (!by_uuid || by_uuid(uuid.c_str(), &handle) != 0 || index_of(handle, &index) != 0) return -1;
  return static_cast<int>(index);
}

}  // namespace kintsugi::device
