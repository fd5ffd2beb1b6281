// A fake libcuda for tests of the host's side: one device whose memory is heap. It says nothing about a real
// one. With FAKE_CUDA_GUARDED=1 its memory is mapped twice, and where the host knows it nobody may touch it: a stray touch is a fault.
#include "tests/support/fake_gpu/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <set>
#include <vector>

namespace kintsugi::fake {
namespace {

std::mutex streams_mutex;
std::set<Stream*>& Streams() {
  static auto* streams = new std::set<Stream*>;
  return *streams;
}

// As a driver's: one thread may ask while another records it anew.
class Event {
 public:
  void Record(Stream& stream) {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    {
      std::lock_guard lock(mutex_);
      done_ = done;
    }
    stream.Enqueue([done] { *done = true; });
  }
  bool done() {
    std::lock_guard lock(mutex_);
    return *done_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(true);
};

std::mutex memory_mutex;
using Ranges = std::map<uint64_t, size_t>;
Ranges& DeviceMemory() {
  static auto* memory = new Ranges;
  return *memory;
}
Ranges& PinnedMemory() {
  static auto* memory = new Ranges;
  return *memory;
}

// Of guarded memory: where the device finds it, by where the host knows it.
struct Guarded {
  size_t size;
  char* reached;
};
std::map<uint64_t, Guarded>& GuardedMemory() {
  static auto* memory = new std::map<uint64_t, Guarded>;
  return *memory;
}

// With the mutex. Null: there is no memory.
void* MapTwice(size_t size) {
  const size_t pages = (size + 4095) / 4096 * 4096;
  const int file = memfd_create("fake device memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(pages)) != 0) return nullptr;
  void* const known = mmap(nullptr, pages, PROT_NONE, MAP_SHARED, file, 0);
  void* const reached = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  GuardedMemory()[reinterpret_cast<uint64_t>(known)] = {pages, static_cast<char*>(reached)};
  return known;
}

constexpr int kInvalidValue = 1;
constexpr int kNotReady = 600;

// With the mutex.
bool Holds(const Ranges& ranges, uint64_t at) {
  auto next = ranges.upper_bound(at);
  if (next == ranges.begin()) return false;
  --next;
  return at < next->first + next->second;
}

bool IsDevice(uint64_t at, size_t size) {
  if (size == 0) return true;
  if (IsMapped(at) && IsMapped(at + size - 1)) return true;
  std::lock_guard lock(memory_mutex);
  return Holds(DeviceMemory(), at) && Holds(DeviceMemory(), at + size - 1);
}

}  // namespace

bool IsGuarding() {
  const char* said = std::getenv("FAKE_CUDA_GUARDED");
  return said && *said == '1';
}

void Guard(uint64_t at, size_t size, char* reached) {
  std::lock_guard lock(memory_mutex);
  GuardedMemory()[at] = {size, reached};
}

void Unguard(uint64_t at) {
  std::lock_guard lock(memory_mutex);
  const auto found = GuardedMemory().find(at);
  if (found == GuardedMemory().end()) return;
  munmap(found->second.reached, found->second.size);
  GuardedMemory().erase(found);
}

char* Reach(const void* at) {
  const auto address = reinterpret_cast<uint64_t>(at);
  std::lock_guard lock(memory_mutex);
  auto next = GuardedMemory().upper_bound(address);
  if (next != GuardedMemory().begin() && address <= (--next)->first + next->second.size)
    return next->second.reached + (address - next->first);
  return static_cast<char*>(const_cast<void*>(at));
}

}  // namespace kintsugi::fake

using namespace kintsugi::fake;

FAKE_GPU_EXPORT int cuInit(unsigned) { return 0; }
FAKE_GPU_EXPORT int cuDeviceGetCount(int* count) { return *count = 1, 0; }
FAKE_GPU_EXPORT int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
FAKE_GPU_EXPORT int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &memory_mutex, 0; }
FAKE_GPU_EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
FAKE_GPU_EXPORT int cuCtxSetCurrent(void*) { return 0; }
// FAKE_CUDA_LATE=MS: the first stream of a process begins so late with what is enqueued there.
FAKE_GPU_EXPORT int cuStreamCreate(void** stream, unsigned) {
  static std::atomic<bool> is_first{true};
  auto* const made = new Stream;
  const char* const late = std::getenv("FAKE_CUDA_LATE");
  if (is_first.exchange(false) && late)
    made->Enqueue([ms = std::atoi(late)] { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
  std::lock_guard lock(streams_mutex);
  Streams().insert(made);
  return *stream = made, 0;
}
FAKE_GPU_EXPORT int cuStreamDestroy_v2(void* stream) {
  {
    std::lock_guard lock(streams_mutex);
    Streams().erase(static_cast<Stream*>(stream));
  }
  return delete static_cast<Stream*>(stream), 0;
}
// FAKE_CUDA_THREADS=1: each thread plays a process, and has the streams that it made.
FAKE_GPU_EXPORT int cuCtxSynchronize() {
  const bool ranks_are_threads = std::getenv("FAKE_CUDA_THREADS") != nullptr;
  std::vector<std::future<void>> reached;
  {
    std::lock_guard lock(streams_mutex);
    for (Stream* stream : Streams()) {
      if (ranks_are_threads && stream->maker != std::this_thread::get_id()) continue;
      auto here = std::make_shared<std::promise<void>>();
      reached.push_back(here->get_future());
      stream->Enqueue([here] { here->set_value(); });
    }
  }
  for (auto& each : reached) each.wait();
  return 0;
}
FAKE_GPU_EXPORT int cuEventCreate(void** event, unsigned) { return *event = new Event, 0; }
FAKE_GPU_EXPORT int cuEventDestroy_v2(void* event) { return delete static_cast<Event*>(event), 0; }

FAKE_GPU_EXPORT int cuEventRecord(void* event, void* stream) {
  static_cast<Event*>(event)->Record(*static_cast<Stream*>(stream));
  return 0;
}

FAKE_GPU_EXPORT int cuEventQuery(void* event) { return static_cast<Event*>(event)->done() ? 0 : kNotReady; }

FAKE_GPU_EXPORT int cuMemAlloc_v2(uint64_t* at, size_t size) {
  std::lock_guard lock(memory_mutex);
  void* memory =
      IsGuarding() ? MapTwice(size) : std::aligned_alloc(256, (size + 255) / 256 * 256);  // as a device aligns
  if (!memory) return 2;
  DeviceMemory()[reinterpret_cast<uint64_t>(memory)] = size;
  *at = reinterpret_cast<uint64_t>(memory);
  return 0;
}

FAKE_GPU_EXPORT int cuMemFree_v2(uint64_t at) {
  std::lock_guard lock(memory_mutex);
  if (DeviceMemory().erase(at) == 0) return kInvalidValue;
  if (const auto found = GuardedMemory().find(at); found != GuardedMemory().end()) {
    munmap(reinterpret_cast<void*>(at), found->second.size);
    munmap(found->second.reached, found->second.size);
    GuardedMemory().erase(found);
    return 0;
  }
  std::free(reinterpret_cast<void*>(at));
  return 0;
}

FAKE_GPU_EXPORT int cuMemHostRegister_v2(void* at, size_t size, unsigned) {
  std::lock_guard lock(memory_mutex);
  return PinnedMemory().emplace(reinterpret_cast<uint64_t>(at), size).second ? 0 : kInvalidValue;
}
FAKE_GPU_EXPORT int cuMemHostUnregister(void* at) {
  std::lock_guard lock(memory_mutex);
  return PinnedMemory().erase(reinterpret_cast<uint64_t>(at)) == 1 ? 0 : kInvalidValue;
}
FAKE_GPU_EXPORT int cuMemHostAlloc(void** at, size_t size, unsigned) {
  *at = std::malloc(size);
  return cuMemHostRegister_v2(*at, size, 0);
}
FAKE_GPU_EXPORT int cuMemFreeHost(void* at) {
  if (cuMemHostUnregister(at) != 0) return kInvalidValue;
  std::free(at);
  return 0;
}

FAKE_GPU_EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, void* stream) {
  if (!IsDevice(to, size)) return kInvalidValue;
  static_cast<Stream*>(stream)->Enqueue(
      [=, place = Reach(reinterpret_cast<void*>(to))] { std::memcpy(place, from, size); });
  return 0;
}

FAKE_GPU_EXPORT int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) {
  if (!IsDevice(from, size)) return kInvalidValue;
  static_cast<Stream*>(stream)->Enqueue(
      [=, place = Reach(reinterpret_cast<const void*>(from))] { std::memcpy(to, place, size); });
  return 0;
}

FAKE_GPU_EXPORT int cuPointerGetAttribute(void* value, int attribute, uint64_t at) {
  if (attribute != 2) return kInvalidValue;
  const bool device = IsDevice(at, 1);
  std::lock_guard lock(memory_mutex);
  if (!device && !Holds(PinnedMemory(), at)) return kInvalidValue;
  *static_cast<unsigned*>(value) = device ? 2 : 1;
  return 0;
}

FAKE_GPU_EXPORT int cuGetErrorName(int, const char** name) { return *name = "FAKE_ERROR", 0; }

// Not a driver's: what a test's kernels run their work with, and find their memory by.
FAKE_GPU_EXPORT void* fakeReach(const void* at) { return Reach(at); }
FAKE_GPU_EXPORT void fakeStreamRun(void* stream, void (*work)(void*), void* argument) {
  static_cast<Stream*>(stream)->Enqueue([=] { work(argument); });
}
