#include "runtime/device/cuda_fresh_memory.h"

#include "runtime/base/cuda_mapping.h"
#include "runtime/base/shared_library.h"

namespace kintsugi::device {
namespace {

using cuda_mapping::AccessRights;
using cuda_mapping::AllocationProperties;

struct Driver {
  int (*retain)(uint64_t*, void*) = nullptr;
  int (*properties)(AllocationProperties*, uint64_t) = nullptr;
  int (*range)(uint64_t* base, size_t* size, uint64_t) = nullptr;
  int (*create)(uint64_t*, size_t, const AllocationProperties*, unsigned long long) = nullptr;
  int (*release)(uint64_t) = nullptr;
  int (*map)(uint64_t, size_t, size_t offset, uint64_t, unsigned long long) = nullptr;
  int (*unmap)(uint64_t, size_t) = nullptr;
  int (*set_access)(uint64_t, size_t, const AccessRights*, size_t) = nullptr;
};

class CudaPages final : public FreshMemory {
 public:
  CudaPages(const Driver& driver, int device) : driver_(driver), device_(device) {}

  Status Replace(const Memory& memory, const AddressRange& range) override {
    if (memory.kind != MemoryKind::kDevice || memory.device != device_)
      return {StatusCode::kFailedPrecondition, "the memory is not CUDA device " + std::to_string(device_) + "'s"};
    // Mapped allocations follow one another in an address range; each that the damage touches is replaced.
    const uint64_t start = reinterpret_cast<uint64_t>(memory.data), end = range.start + range.size_bytes;
    for (uint64_t at = range.start; at < end;) {
      uint64_t base = 0;
      size_t size = 0;
      KINTSUGI_RETURN_IF_ERROR(Check(driver_.range(&base, &size, at), "cuMemGetAddressRange"));
      if (size == 0 || base < start || base + size > start + memory.size_bytes)
        return {StatusCode::kFailedPrecondition,
                "the allocation under the damage holds other bytes than the tensor's too"};
      KINTSUGI_RETURN_IF_ERROR(ReplaceAllocation(base, size));
      at = base + size;
    }
    return Status::Ok();
  }

 private:
  Status ReplaceAllocation(uint64_t base, size_t size) {
    uint64_t handle = 0;
    if (driver_.retain(&handle, reinterpret_cast<void*>(base)) != 0)
      return {StatusCode::kFailedPrecondition,
              "the memory was not mapped by cuMemMap, so it cannot be replaced at its address"};
    AllocationProperties properties;
    const int known = driver_.properties(&properties, handle);
    driver_.release(handle);  // our reference; the mapping holds its own
    KINTSUGI_RETURN_IF_ERROR(Check(known, "cuMemGetAllocationPropertiesFromHandle"));
    // The new one first: where there is no memory left, nothing has changed.
    uint64_t fresh = 0;
    KINTSUGI_RETURN_IF_ERROR(Check(driver_.create(&fresh, size, &properties, 0), "cuMemCreate"));
    Status status = Check(driver_.unmap(base, size), "cuMemUnmap");
    if (status.ok()) status = Check(driver_.map(base, size, 0, fresh, 0), "cuMemMap");
    driver_.release(fresh);  // the mapping keeps it
    KINTSUGI_RETURN_IF_ERROR(status);
    const AccessRights rights{.location = {.id = device_}};
    return Check(driver_.set_access(base, size, &rights, 1), "cuMemSetAccess");
  }

  Status Check(int result, const char* call) const {
    if (result == 0) return Status::Ok();
    return {StatusCode::kInternal, std::string(call) + ": CUDA driver error " + std::to_string(result) + " on device " +
                                       std::to_string(device_)};
  }

  const Driver driver_;
  const int device_;
};

}  // namespace

Result<std::unique_ptr<FreshMemory>> CudaFreshMemory(int device, const std::string& path) {
  const auto library = SharedLibrary::Open(
      {.what = "the CUDA driver", .usual = {"libcuda.so.1"}, .variable = "KINTSUGI_CUDA_LIBRARY", .path = path});
  if (!library.ok()) return library.status();
  Driver driver;
  Status status;
  const auto need = [&](const char* symbol, auto& function) {
    if (!library->Bind(symbol, function) && status.ok())
      status = Status(StatusCode::kNotFound, "'" + library->name() + "' has no " + symbol);
  };
  need("cuMemRetainAllocationHandle", driver.retain);
  need("cuMemGetAllocationPropertiesFromHandle", driver.properties);
  need("cuMemGetAddressRange_v2", driver.range);
  need("cuMemCreate", driver.create);
  need("cuMemRelease", driver.release);
  need("cuMemMap", driver.map);
  need("cuMemUnmap", driver.unmap);
  need("cuMemSetAccess", driver.set_access);
  KINTSUGI_RETURN_IF_ERROR(status);
  return std::unique_ptr<FreshMemory>(std::make_unique<CudaPages>(driver, device));
}

}  // namespace kintsugi::device
