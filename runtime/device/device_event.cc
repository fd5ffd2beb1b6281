#include "runtime/device/device_event.h"

#include <charconv>

namespace kintsugi::device {
namespace {

// The number at the start of `text`, if there is one.
std::optional<int> Number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || value < 0) return std::nullopt;
  return value;
}

std::optional<int> WholeNumber(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

Verdict Classify(const DeviceEvent& event) {
  switch (event.kind) {
    case EventKind::kXid:
      return ClassifyXid(event.number);
    case EventKind::kRecoveryAction:
      return ClassifyRecoveryAction(event.number);
    case EventKind::kLost:
      break;
  }
  return ClassifyLostDevice();
}

std::optional<DeviceEvent> ParseSimulatedLine(std::string_view line) {
  if (line.empty() || line.size() > kDeviceLineBytesMax) return std::nullopt;
  DeviceEvent event{.text = std::string(line), .source = "simulated"};
  bool has_kind = false;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    at = end + 1;
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = word.substr(0, equals);
    const auto value = WholeNumber(word.substr(equals + 1));
    if (!value) return std::nullopt;
    if (key == "device") {
      event.device = *value;
    } else if (key == "pid") {
      event.pid = *value;
    } else if ((key == "xid" || key == "recovery" || key == "lost") && !has_kind) {
      has_kind = true;
      event.kind = key == "xid" ? EventKind::kXid : key == "recovery" ? EventKind::kRecoveryAction : EventKind::kLost;
      event.number = *value;
    } else {
      return std::nullopt;
    }
  }
  return has_kind ? std::optional(std::move(event)) : std::nullopt;
}

std::string SimulatedLine(const DeviceEvent& event) {
  const char* kind = event.kind == EventKind::kXid              ? "xid="
                     : event.kind == EventKind::kRecoveryAction ? "recovery="
                                                                : "lost=";
  std::string line = kind + std::to_string(event.number);
  if (event.device >= 0) line += " device=" + std::to_string(event.device);
  if (event.pid > 0) line += " pid=" + std::to_string(event.pid);
  return line;
}

std::optional<DeviceEvent> ParseKernelLine(std::string_view line) {
  constexpr std::string_view kMark = "NVRM: Xid (PCI:", kPid = "pid=";
  const size_t at = line.find(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(at + kMark.size());
  const size_t close = rest.find("): ");
  if (close == std::string_view::npos || close == 0) return std::nullopt;
  const std::string_view after = rest.substr(close + 3);
  const auto xid = Number(after);
  if (!xid) return std::nullopt;
  DeviceEvent event{.number = *xid,
                    .pci = std::string(rest.substr(0, close)),
                    .text = std::string(line.substr(at, std::min(line.find('\n', at), at + kDeviceLineBytesMax) - at)),
                    .source = "kernel log"};
  // "pid='<unknown>'" is no number.
  if (const size_t pid = after.find(kPid); pid != std::string_view::npos)
    event.pid = Number(after.substr(pid + kPid.size())).value_or(0);
  return event;
}

}  // namespace kintsugi::device
