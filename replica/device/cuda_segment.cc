#include "replica/device/cuda_segment.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "replica/stream/cuda_driver.h"
#include "runtime/base/cuda_mapping.h"

namespace kintsugi {
namespace cuda_segment {

using cuda_mapping::AccessRights;
using cuda_mapping::AllocationProperties;
using cuda_mapping::kPosixDescriptor;
constexpr int kOutOfMemory = 2;

}  // namespace cuda_segment

using namespace cuda_segment;

struct CudaSegment::Functions {
  int (*granularity)(size_t*, const AllocationProperties*, int option) = nullptr;
  int (*reserve)(uint64_t*, size_t, size_t alignment, uint64_t wanted, unsigned long long) = nullptr;
  int (*free_reserved)(uint64_t, size_t) = nullptr;
  int (*create)(uint64_t*, size_t, const AllocationProperties*, unsigned long long) = nullptr;
  int (*release)(uint64_t) = nullptr;
  int (*map)(uint64_t, size_t, size_t offset, uint64_t, unsigned long long) = nullptr;
  int (*unmap)(uint64_t, size_t) = nullptr;
  int (*set_access)(uint64_t, size_t, const AccessRights*, size_t) = nullptr;
  int (*export_handle)(void* descriptor, uint64_t, int type, unsigned long long) = nullptr;
  int (*import_handle)(uint64_t*, void* descriptor, int type) = nullptr;
};

CudaSegment::CudaSegment(std::shared_ptr<const CudaDevice> device, std::unique_ptr<const Functions> functions)
    : device_(std::move(device)), functions_(std::move(functions)) {}

Result<std::unique_ptr<KeptMemory>> CudaSegment::Allocate(std::shared_ptr<const CudaDevice> device,
                                                          uint64_t size_bytes) {
  const SharedLibrary& library = *device->driver().library;
  auto functions = std::make_unique<Functions>();
  Status status;
  const auto need = [&](const char* symbol, auto& function) {
    if (!library.Bind(symbol, function) && status.ok())
      status = Status(StatusCode::kNotFound, "'" + library.name() + "' has no " + symbol);
  };
  need("cuMemGetAllocationGranularity", functions->granularity);
  need("cuMemAddressReserve", functions->reserve);
  need("cuMemAddressFree", functions->free_reserved);
  need("cuMemCreate", functions->create);
  need("cuMemRelease", functions->release);
  need("cuMemMap", functions->map);
  need("cuMemUnmap", functions->unmap);
  need("cuMemSetAccess", functions->set_access);
  need("cuMemExportToShareableHandle", functions->export_handle);
  need("cuMemImportFromShareableHandle", functions->import_handle);
  KINTSUGI_RETURN_IF_ERROR(status);
  std::unique_ptr<CudaSegment> made(new CudaSegment(std::move(device), std::move(functions)));
  KINTSUGI_RETURN_IF_ERROR(made->Make(size_bytes));
  return std::unique_ptr<KeptMemory>(std::move(made));
}

Status CudaSegment::Make(uint64_t size_bytes) {
  KINTSUGI_RETURN_IF_ERROR(device_->Bind());
  const AllocationProperties properties{.handle_types = kPosixDescriptor, .location = {.id = device_->ordinal()}};
  size_t step = 0;
  KINTSUGI_RETURN_IF_ERROR(
      device_->Check(functions_->granularity(&step, &properties, 0), "cuMemGetAllocationGranularity"));
  mapped_ = (std::max<uint64_t>(size_bytes, 1) + step - 1) / step * step;
  KINTSUGI_RETURN_IF_ERROR(device_->Check(functions_->reserve(&address_, mapped_, 0, 0, 0), "cuMemAddressReserve"));
  uint64_t handle = 0;
  if (const int result = functions_->create(&handle, mapped_, &properties, 0); result != 0) {
    const Status why = device_->Check(result, "cuMemCreate");
    return {result == kOutOfMemory ? StatusCode::kResourceExhausted : why.code(),
            std::to_string(mapped_) + " bytes of device memory that outlives its process: " + why.message()};
  }
  int file = -1;
  Status status =
      device_->Check(functions_->export_handle(&file, handle, kPosixDescriptor, 0), "cuMemExportToShareableHandle");
  if (status.ok()) status = Map(handle);
  functions_->release(handle);  // the mapping and the descriptor keep it
  if (file >= 0) (void)fcntl(file, F_SETFD, FD_CLOEXEC);
  memory_ = {reinterpret_cast<void*>(address_), size_bytes, MemoryKind::kDevice, device_->ordinal(), file, 0};
  return status;
}

Status CudaSegment::Map(uint64_t handle) {
  KINTSUGI_RETURN_IF_ERROR(device_->Check(functions_->map(address_, mapped_, 0, handle, 0), "cuMemMap"));
  const AccessRights rights{.location = {.id = device_->ordinal()}};
  return device_->Check(functions_->set_access(address_, mapped_, &rights, 1), "cuMemSetAccess");
}

Status CudaSegment::Replace(const UniqueFd& file) {
  KINTSUGI_RETURN_IF_ERROR(device_->Bind());
  uint64_t handle = 0;
  KINTSUGI_RETURN_IF_ERROR(device_->Check(
      functions_->import_handle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(file.get())), kPosixDescriptor),
      "cuMemImportFromShareableHandle"));
  // Nothing that was enqueued here reaches the bytes of the process before.
  Status status = device_->Synchronize();
  if (status.ok()) status = device_->Check(functions_->unmap(address_, mapped_), "cuMemUnmap");
  if (status.ok()) status = Map(handle);
  functions_->release(handle);
  KINTSUGI_RETURN_IF_ERROR(status);
  if (dup3(file.get(), memory_.shared_fd, O_CLOEXEC) < 0)
    return {StatusCode::kResourceExhausted, std::string("dup3: ") + std::strerror(errno)};
  return Status::Ok();
}

CudaSegment::~CudaSegment() {
  if (memory_.shared_fd >= 0) close(memory_.shared_fd);
  if (mapped_ == 0 || !device_->Bind().ok()) return;
  if (memory_.data) functions_->unmap(address_, mapped_);
  if (address_ != 0) functions_->free_reserved(address_, mapped_);
}

}  // namespace kintsugi
