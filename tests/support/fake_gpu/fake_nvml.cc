// A fake libnvidia-ml for tests of the device watcher: two devices, events that a test pushes. It says nothing about a
// real one.
#include <condition_variable>
#include <cstring>
#include <deque>

#include "runtime/device/nvml.h"
#include "tests/support/fake_gpu/fake_cuda.h"

namespace {

using kintsugi::device::NvmlEventData;
using kintsugi::device::NvmlFieldValue;

int handles[2];
std::mutex mutex;
std::condition_variable changed;
std::deque<NvmlEventData> queue;
unsigned recovery[2], remap_failed[2];
int ecc_result[2];
int wait_result;

int IndexOf(void* handle) { return handle == &handles[1] ? 1 : 0; }

}  // namespace

// What a test does to the fake device: "event" pushes one, the others set what NVML answers.
FAKE_GPU_EXPORT void fakeNvmlEvent(int device, unsigned long long type, unsigned long long data) {
  std::lock_guard lock(mutex);
  queue.push_back({&handles[device], type, data, 0, 0});
  changed.notify_all();
}
FAKE_GPU_EXPORT void fakeNvmlSet(const char* what, int device, int value) {
  std::lock_guard lock(mutex);
  if (std::strcmp(what, "recovery") == 0) recovery[device] = static_cast<unsigned>(value);
  if (std::strcmp(what, "remap failed") == 0) remap_failed[device] = static_cast<unsigned>(value);
  if (std::strcmp(what, "ecc") == 0) ecc_result[device] = value;
  if (std::strcmp(what, "wait") == 0) wait_result = value;
}

FAKE_GPU_EXPORT int nvmlInit_v2() { return 0; }
FAKE_GPU_EXPORT int nvmlShutdown() { return 0; }
FAKE_GPU_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, 0; }
FAKE_GPU_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  return *handle = &handles[index], 0;
}
FAKE_GPU_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** handle) {
  if (std::strcmp(pci, "0000:3b:00.0") != 0) return 6;
  return *handle = &handles[1], 0;
}
FAKE_GPU_EXPORT int nvmlDeviceGetIndex(void* handle, unsigned* index) {
  return *index = static_cast<unsigned>(IndexOf(handle)), 0;
}
FAKE_GPU_EXPORT int nvmlDeviceGetSupportedEventTypes(void*, unsigned long long* types) { return *types = 0xC00A, 0; }
FAKE_GPU_EXPORT int nvmlEventSetCreate(void** set) { return *set = &queue, 0; }
FAKE_GPU_EXPORT int nvmlEventSetFree(void*) { return 0; }
// 0x2 was supported but not wanted; anything else would be a bit that is not supported.
FAKE_GPU_EXPORT int nvmlDeviceRegisterEvents(void*, unsigned long long types, void*) { return types == 0xC008 ? 0 : 3; }
FAKE_GPU_EXPORT const char* nvmlErrorString(int) { return "fake error"; }

FAKE_GPU_EXPORT int nvmlEventSetWait_v2(void*, NvmlEventData* data, unsigned ms) {
  std::unique_lock lock(mutex);
  if (wait_result != 0) return wait_result;
  if (!changed.wait_for(lock, std::chrono::milliseconds(ms), [] { return !queue.empty(); })) return 10;
  *data = queue.front();
  queue.pop_front();
  return 0;
}
FAKE_GPU_EXPORT int nvmlDeviceGetRemappedRows(void* handle, unsigned* a, unsigned* b, unsigned* c, unsigned* failed) {
  std::lock_guard lock(mutex);
  *a = *b = *c = 0;
  return *failed = remap_failed[IndexOf(handle)], 0;
}
FAKE_GPU_EXPORT int nvmlDeviceGetTotalEccErrors(void* handle, int, int, unsigned long long* count) {
  std::lock_guard lock(mutex);
  return *count = 0, ecc_result[IndexOf(handle)];
}
FAKE_GPU_EXPORT int nvmlDeviceGetFieldValues(void* handle, int, NvmlFieldValue* field) {
  std::lock_guard lock(mutex);
  field->result = field->field == 230 ? 0 : 3;
  field->value.as_unsigned = recovery[IndexOf(handle)];
  return 0;
}
