// DeviceEvent: one thing that a source says about a device, and its two forms as text.
//
// What: the simulated source reads lines of our own, "xid=94 device=1 pid=4711" (or recovery=N, lost=1); the kernel log
// has lines of NVIDIA's driver, "NVRM: Xid (PCI:0000:3b:00): 94, pid=4711, name=python, ...". Both come from outside:
// what does not parse is nothing.
// Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/export.h"
#include "runtime/device/device_fault.h"

namespace kintsugi::device {

enum class EventKind : uint8_t { kXid, kRecoveryAction, kLost };

struct DeviceEvent {
  EventKind kind = EventKind::kXid;
  int number = 0;      // the Xid, or the recovery action
  int device = -1;     // index on this node; -1: not known
  int pid = 0;         // of the process that met it; 0: not known
  std::string pci;     // "0000:3b:00", where the source has it
  std::string text;    // as the source had it
  std::string source;  // "nvml", "kernel log", "simulated"

  bool operator==(const DeviceEvent&) const = default;
};

inline constexpr size_t kDeviceLineBytesMax = 512;

KINTSUGI_EXPORT Verdict Classify(const DeviceEvent& event);

// The lines of the simulated source.
KINTSUGI_EXPORT std::optional<DeviceEvent> ParseSimulatedLine(std::string_view line);
KINTSUGI_EXPORT std::string SimulatedLine(const DeviceEvent& event);

// A record of /dev/kmsg ("6,1234,98765,-;NVRM: Xid ..."), or the message alone.
KINTSUGI_EXPORT std::optional<DeviceEvent> ParseKernelLine(std::string_view line);

}  // namespace kintsugi::device
