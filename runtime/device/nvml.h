// Nvml: NVIDIA's management library, loaded at run time, and the source of device events over it.
//
// What: critical Xids and changes of the recovery action come as events; every kNvmlPollInterval the counters are read:
// uncorrectable memory errors, row remapping, the recovery action. The declarations are our own: the toolkit has no
// nvml.h.
// Threads: any (NVML is thread-safe); calls may block for seconds on a sick device.
// Errors: kNotFound where there is no library, kUnavailable with NVML's words.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/device/device_watcher.h"

namespace kintsugi::device {

inline constexpr Duration kNvmlPollInterval = std::chrono::seconds(5);

struct NvmlEventData {
  void* device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct NvmlFieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency_us;
  int type;
  int result;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_unsigned_long_long;
  } value;
};

class KINTSUGI_EXPORT Nvml {
 public:
  // libnvidia-ml.so.1, or the file in KINTSUGI_NVML_LIBRARY; with `path` that file alone.
  static Result<std::shared_ptr<Nvml>> Load(const std::string& path = "");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  Result<std::vector<void*>> Devices() const;
  // The index of the device at "0000:3b:00", or of "GPU-8932f937-...", or -1.
  int FindByPci(const std::string& pci) const;
  int FindByName(const std::string& uuid) const;
  Status Check(int result, const char* call) const;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, void**) = nullptr;
  int (*by_pci)(const char*, void**) = nullptr;
  int (*index_of)(void*, unsigned*) = nullptr;
  int (*supported_events)(void*, unsigned long long*) = nullptr;
  int (*events_create)(void**) = nullptr;
  int (*events_register)(void*, unsigned long long, void*) = nullptr;
  int (*events_wait)(void*, NvmlEventData*, unsigned ms) = nullptr;
  int (*events_free)(void*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  // Null where the library is older.
  int (*by_uuid)(const char*, void**) = nullptr;
  int (*remapped_rows)(void*, unsigned* correctable, unsigned* uncorrectable, unsigned* pending,
                       unsigned* failed) = nullptr;
  int (*total_ecc)(void*, int kind, int counter, unsigned long long*) = nullptr;
  int (*field_values)(void*, int count, NvmlFieldValue*) = nullptr;

 private:
  Nvml() = default;
  bool initialised_ = false;
};

KINTSUGI_EXPORT std::unique_ptr<DeviceSource> NvmlSource(std::shared_ptr<const Nvml> nvml,
                                                         Duration poll_interval = kNvmlPollInterval);

}  // namespace kintsugi::device
