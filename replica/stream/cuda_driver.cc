#include "replica/stream/cuda_driver.h"

#include "runtime/base/check.h"
#include "runtime/base/shared_library.h"

namespace kintsugi {
namespace {

constexpr int kPointerMemoryType = 2;
constexpr unsigned kMemoryTypeHost = 1, kMemoryTypeDevice = 2;

Result<CudaDriver> Load(const std::string& path) {
  const auto library = SharedLibrary::Open(
      {.what = "the CUDA driver", .usual = {"libcuda.so.1"}, .variable = "KINTSUGI_CUDA_LIBRARY", .path = path});
  if (!library.ok()) return library.status();
  CudaDriver driver;
  driver.library = std::make_shared<const SharedLibrary>(*library);
  Status status;
  const auto need = [&](const char* symbol, auto& function) {
    if (!library->Bind(symbol, function) && status.ok())
      status = Status(StatusCode::kFailedPrecondition, "'" + library->name() + "' has no " + symbol);
  };
  need("cuInit", driver.init);
  need("cuDeviceGetCount", driver.device_count);
  need("cuDeviceGet", driver.device_get);
  need("cuDevicePrimaryCtxRetain", driver.context_retain);
  need("cuDevicePrimaryCtxRelease_v2", driver.context_release);
  need("cuCtxSetCurrent", driver.context_set);
  need("cuCtxSynchronize", driver.context_synchronize);
  need("cuStreamCreate", driver.stream_create);
  need("cuStreamDestroy_v2", driver.stream_destroy);
  need("cuEventCreate", driver.event_create);
  need("cuEventDestroy_v2", driver.event_destroy);
  need("cuEventRecord", driver.event_record);
  need("cuEventQuery", driver.event_query);
  need("cuMemAlloc_v2", driver.memory_allocate);
  need("cuMemFree_v2", driver.memory_free);
  need("cuMemHostAlloc", driver.host_allocate);
  need("cuMemFreeHost", driver.host_free);
  need("cuMemcpyHtoDAsync_v2", driver.copy_to_device);
  need("cuMemcpyDtoHAsync_v2", driver.copy_to_host);
  need("cuPointerGetAttribute", driver.pointer_attribute);
  need("cuGetErrorName", driver.error_name);
  (void)library->Bind("cuMemHostRegister_v2", driver.host_register);
  (void)library->Bind("cuMemHostUnregister", driver.host_unregister);
  KINTSUGI_RETURN_IF_ERROR(status);
  return driver;
}

}  // namespace

Result<std::shared_ptr<CudaDevice>> CudaDevice::Open(int ordinal, const std::string& path) {
  KINTSUGI_ASSIGN_OR_RETURN(const CudaDriver driver, Load(path));
  std::shared_ptr<CudaDevice> device(new CudaDevice(driver, ordinal));
  const auto unavailable = [](const Status& status) { return Status(StatusCode::kUnavailable, status.message()); };
  int count = 0;
  if (auto status = device->Check(driver.init(0), "cuInit"); !status.ok()) return unavailable(status);
  if (auto status = device->Check(driver.device_count(&count), "cuDeviceGetCount"); !status.ok())
    return unavailable(status);
  if (ordinal < 0 || ordinal >= count)
    return Status(StatusCode::kUnavailable, "CUDA device " + std::to_string(ordinal) +
                                                " does not exist; the driver has " + std::to_string(count));
  KINTSUGI_RETURN_IF_ERROR(device->Check(driver.device_get(&device->device_, ordinal), "cuDeviceGet"));
  KINTSUGI_RETURN_IF_ERROR(
      device->Check(driver.context_retain(&device->context_, device->device_), "cuDevicePrimaryCtxRetain"));
  return device;
}

CudaDevice::~CudaDevice() {
  if (context_) driver_.context_release(device_);
}

Status CudaDevice::Bind() const {
  KINTSUGI_CHECK(context_, "a device that is used was opened");
  return Check(driver_.context_set(context_), "cuCtxSetCurrent");
}

Status CudaDevice::Synchronize() const {
  KINTSUGI_RETURN_IF_ERROR(Bind());
  return Check(driver_.context_synchronize(), "cuCtxSynchronize");
}

unsigned CudaDevice::MemoryType(const void* data) const {
  unsigned type = 0;
  const int known = driver_.pointer_attribute(&type, kPointerMemoryType, reinterpret_cast<uint64_t>(data));
  return known == 0 ? type : 0;
}

bool CudaDevice::IsDeviceMemory(const void* data) const { return MemoryType(data) == kMemoryTypeDevice; }

bool CudaDevice::IsPinned(const void* data, uint64_t size_bytes) const {
  return MemoryType(data) == kMemoryTypeHost &&
         (size_bytes == 0 || MemoryType(static_cast<const uint8_t*>(data) + size_bytes - 1) == kMemoryTypeHost);
}

Status CudaDevice::Check(int result, const char* call) const {
  if (result == 0) return Status::Ok();
  const char* name = nullptr;
  if (driver_.error_name(result, &name) != 0 || !name) name = "an unknown error";
  return {StatusCode::kInternal, std::string(call) + ": " + name + " (" + std::to_string(result) + ") on CUDA device " +
                                     std::to_string(ordinal_)};
}

}  // namespace kintsugi
