// The fake libcuda's virtual memory management: physical allocations are memfds, mapped where the caller says.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>

#include "tests/support/fake_gpu/fake_cuda.h"

namespace {

struct Mapping {
  size_t size;
  uint64_t handle;
};

std::mutex mapping_mutex;
std::map<uint64_t, Mapping>& Mappings() {
  static auto* mappings = new std::map<uint64_t, Mapping>;
  return *mappings;
}

const std::pair<const uint64_t, Mapping>* Find(uint64_t at) {
  auto next = Mappings().upper_bound(at);
  if (next == Mappings().begin()) return nullptr;
  --next;
  return at < next->first + next->second.size ? &*next : nullptr;
}

constexpr int kInvalidValue = 1;

}  // namespace

bool kintsugi::fake::IsMapped(uint64_t at) {
  std::lock_guard lock(mapping_mutex);
  return Find(at) != nullptr;
}

// A handle is a descriptor; who holds it is not counted, so that only the test's end closes it.
FAKE_GPU_EXPORT int cuMemCreate(uint64_t* handle, size_t size, const void*, unsigned long long) {
  const int fd = memfd_create("fake device memory", MFD_CLOEXEC);
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) return 2;
  return *handle = static_cast<uint64_t>(fd), 0;
}
FAKE_GPU_EXPORT int cuMemRelease(uint64_t) { return 0; }
FAKE_GPU_EXPORT int cuMemGetAllocationGranularity(size_t* bytes, const void*, int) { return *bytes = 65536, 0; }
FAKE_GPU_EXPORT int cuMemExportToShareableHandle(void* descriptor, uint64_t handle, int, unsigned long long) {
  return *static_cast<int*>(descriptor) = dup(static_cast<int>(handle)), 0;
}
FAKE_GPU_EXPORT int cuMemImportFromShareableHandle(uint64_t* handle, void* descriptor, int) {
  const int file = dup(static_cast<int>(reinterpret_cast<intptr_t>(descriptor)));
  return *handle = static_cast<uint64_t>(file), file < 0;
}
FAKE_GPU_EXPORT int cuMemAddressReserve(uint64_t* at, size_t size, size_t, uint64_t, unsigned long long) {
  void* const place = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return *at = reinterpret_cast<uint64_t>(place), place == MAP_FAILED;
}
FAKE_GPU_EXPORT int cuMemAddressFree(uint64_t at, size_t size) {
  return munmap(reinterpret_cast<void*>(at), size) != 0;
}
FAKE_GPU_EXPORT int cuMemGetAllocationPropertiesFromHandle(void*, uint64_t) { return 0; }

FAKE_GPU_EXPORT int cuMemMap(uint64_t at, size_t size, size_t, uint64_t handle, unsigned long long) {
  std::lock_guard lock(mapping_mutex);
  if (Find(at)) return kInvalidValue;  // what is mapped must be unmapped first
  Mappings()[at] = {size, handle};
  return mmap(reinterpret_cast<void*>(at), size, PROT_NONE, MAP_SHARED | MAP_FIXED, static_cast<int>(handle), 0) ==
         MAP_FAILED;
}

FAKE_GPU_EXPORT int cuMemUnmap(uint64_t at, size_t size) {
  std::lock_guard lock(mapping_mutex);
  const auto found = Mappings().find(at);
  if (found == Mappings().end() || found->second.size != size) return kInvalidValue;
  Mappings().erase(found);
  kintsugi::fake::Unguard(at);
  return mmap(reinterpret_cast<void*>(at), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
         MAP_FAILED;
}

// Until this is called the memory cannot be touched, as on a device.
FAKE_GPU_EXPORT int cuMemSetAccess(uint64_t at, size_t size, const void*, size_t) {
  if (kintsugi::fake::IsGuarding()) {
    std::lock_guard lock(mapping_mutex);
    const auto* found = Find(at);
    if (!found) return kInvalidValue;
    void* const reached =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<int>(found->second.handle), 0);
    if (reached == MAP_FAILED) return 2;
    kintsugi::fake::Guard(at, size, static_cast<char*>(reached));
    return 0;
  }
  return mprotect(reinterpret_cast<void*>(at), size, PROT_READ | PROT_WRITE) != 0;
}

FAKE_GPU_EXPORT int cuMemRetainAllocationHandle(uint64_t* handle, void* at) {
  std::lock_guard lock(mapping_mutex);
  const auto* found = Find(reinterpret_cast<uint64_t>(at));
  if (!found) return kInvalidValue;
  return *handle = found->second.handle, 0;
}

// An address of cudaMalloc's memory is not mapped by anybody: one page stands for its allocation.
FAKE_GPU_EXPORT int cuMemGetAddressRange_v2(uint64_t* base, size_t* size, uint64_t at) {
  std::lock_guard lock(mapping_mutex);
  const auto* found = Find(at);
  *base = found ? found->first : at / 4096 * 4096;
  *size = found ? found->second.size : 4096;
  return 0;
}
