#include "runtime/device/nvml.h"

namespace kintsugi::device {
namespace {

constexpr int kTimeout = 10, kGpuIsLost = 15;
constexpr unsigned long long kXidCritical = 0x8, kGpuUnavailable = 0x4000, kRecoveryActionChanged = 0x8000;
constexpr unsigned kFieldRecoveryAction = 230;
constexpr int kUncorrected = 1, kVolatile = 0;
constexpr int kXidRemapFailed = 64;

class Source final : public DeviceSource {
 public:
  Source(std::shared_ptr<const Nvml> nvml, Duration poll_interval)
      : nvml_(std::move(nvml)), poll_interval_(poll_interval) {}
  ~Source() override {
    if (set_) nvml_->events_free(set_);
  }

  std::string name() const override { return "nvml"; }

  Status Open() override {
    KINTSUGI_ASSIGN_OR_RETURN(const std::vector<void*> handles, nvml_->Devices());
    KINTSUGI_RETURN_IF_ERROR(nvml_->Check(nvml_->events_create(&set_), "nvmlEventSetCreate"));
    for (void* handle : handles) {
      unsigned long long supported = 0;
      KINTSUGI_RETURN_IF_ERROR(
          nvml_->Check(nvml_->supported_events(handle, &supported), "nvmlDeviceGetSupportedEventTypes"));
      const unsigned long long wanted = supported & (kXidCritical | kGpuUnavailable | kRecoveryActionChanged);
      if (wanted != 0)
        KINTSUGI_RETURN_IF_ERROR(
            nvml_->Check(nvml_->events_register(handle, wanted, set_), "nvmlDeviceRegisterEvents"));
      devices_.push_back({handle});
    }
    // What was so before the run is no news.
    std::vector<DeviceEvent> old;
    PollCounters(&old);
    return Status::Ok();
  }

  Status Wait(Duration limit, std::vector<DeviceEvent>* events) override {
    NvmlEventData data{};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
    const int result = nvml_->events_wait(set_, &data, static_cast<unsigned>(ms));
    if (result == 0) Take(data, events);
    if (result != 0 && result != kTimeout && result != kGpuIsLost) return nvml_->Check(result, "nvmlEventSetWait");
    const TimePoint now = SteadyClock::SteadyNow();
    if (result == kGpuIsLost || now >= next_poll_) {
      next_poll_ = now + poll_interval_;
      PollCounters(events);
    }
    return Status::Ok();
  }

 private:
  struct Device {
    void* handle = nullptr;
    int recovery = 0;
    bool remap_failed = false;
    bool lost = false;
    unsigned long long uncorrected = 0;
  };

  int IndexOf(void* handle) const {
    for (size_t i = 0; i < devices_.size(); ++i)
      if (devices_[i].handle == handle) return static_cast<int>(i);
    return -1;
  }

  void Take(const NvmlEventData& data, std::vector<DeviceEvent>* events) {
    const int device = IndexOf(data.device);
    if (data.type == kXidCritical)
      events->push_back({.number = static_cast<int>(data.data), .device = device, .text = "xid"});
    if (data.type == kGpuUnavailable)
      events->push_back({.kind = EventKind::kLost, .device = device, .text = "unavailable"});
    if (data.type == kRecoveryActionChanged && device >= 0) PollRecovery(device, events);
  }

  void PollCounters(std::vector<DeviceEvent>* events) {
    for (int i = 0; i < static_cast<int>(devices_.size()); ++i) {
      Device& device = devices_[static_cast<size_t>(i)];
      PollRecovery(i, events);
      unsigned correctable = 0, uncorrectable = 0, pending = 0, failed = 0;
      if (nvml_->remapped_rows &&
          nvml_->remapped_rows(device.handle, &correctable, &uncorrectable, &pending, &failed) == 0 && failed != 0 &&
          !std::exchange(device.remap_failed, true))
        events->push_back({.number = kXidRemapFailed, .device = i, .text = "row remapping failed"});
      unsigned long long uncorrected = 0;
      const int result =
          nvml_->total_ecc ? nvml_->total_ecc(device.handle, kUncorrected, kVolatile, &uncorrected) : kTimeout;
      if (result == kGpuIsLost && !std::exchange(device.lost, true))
        events->push_back({.kind = EventKind::kLost, .device = i, .text = "lost"});
      // What follows from such an error is said by its Xid; the count alone asks for nothing.
      if (result == 0) device.uncorrected = uncorrected;
    }
  }

  void PollRecovery(int index, std::vector<DeviceEvent>* events) {
    Device& device = devices_[static_cast<size_t>(index)];
    NvmlFieldValue field{.field = kFieldRecoveryAction};
    if (!nvml_->field_values || nvml_->field_values(device.handle, 1, &field) != 0 || field.result != 0) return;
    const auto action = static_cast<int>(field.value.as_unsigned);
    if (std::exchange(device.recovery, action) == action) return;
    events->push_back(
        {.kind = EventKind::kRecoveryAction, .number = action, .device = index, .text = "recovery action"});
  }

  const std::shared_ptr<const Nvml> nvml_;
  const Duration poll_interval_;
  void* set_ = nullptr;
  std::vector<Device> devices_;
  TimePoint next_poll_;
};

}  // namespace

std::unique_ptr<DeviceSource> NvmlSource(std::shared_ptr<const Nvml> nvml, Duration poll_interval) {
  return std::make_unique<Source>(std::move(nvml), poll_interval);
}

}  // namespace kintsugi::device
