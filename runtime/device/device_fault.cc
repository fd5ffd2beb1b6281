#include "runtime/device/device_fault.h"

#include <algorithm>
#include <array>

namespace kintsugi::device {
namespace {

// Ascending by number.
constexpr std::array<XidRow, 37> kXids{{
    {13, Scope::kProcess, Action::kRestartProcess, "exception in a kernel"},
    {31, Scope::kProcess, Action::kRestartProcess, "memory management fault"},
    {43, Scope::kNone, Action::kNothing, "processing stopped; another Xid says why"},
    {45, Scope::kNone, Action::kNothing, "preemptive clean-up; another Xid says why"},
    {46, Scope::kDevice, Action::kReplaceDevice, "the device does not stop processing"},
    {48, Scope::kNone, Action::kNothing, "double-bit memory error; 63 and 64, 94 and 95 say what follows"},
    {62, Scope::kDevice, Action::kReplaceDevice, "power management unit halted"},
    {63, Scope::kNone, Action::kNothing, "row remapping recorded; applied at the next reset"},
    {64, Scope::kDevice, Action::kReplaceDevice, "row remapping failed"},
    {74, Scope::kDevice, Action::kReplaceDevice, "NVLink error"},
    {79, Scope::kNode, Action::kReplaceNode, "the device has fallen off the bus"},
    {92, Scope::kNone, Action::kWatch, "high rate of single-bit memory errors"},
    {94, Scope::kProcess, Action::kRestartProcess, "contained memory error"},
    {95, Scope::kDevice, Action::kReplaceDevice, "uncontained memory error"},
    {109, Scope::kDevice, Action::kReplaceDevice, "context switch timed out"},
    {110, Scope::kDevice, Action::kReplaceDevice, "security fault"},
    {119, Scope::kDevice, Action::kReplaceDevice, "the system processor (GSP) timed out"},
    {120, Scope::kDevice, Action::kReplaceDevice, "error of the system processor (GSP)"},
    {121, Scope::kNone, Action::kWatch, "corrected error of the C2C link"},
    {136, Scope::kDevice, Action::kReplaceDevice, "NVLink training failed"},
    {137, Scope::kNone, Action::kNothing, "NVLink privilege error; often the death of a peer"},
    {140, Scope::kDevice, Action::kReplaceDevice, "memory error that was not recovered"},
    {143, Scope::kDevice, Action::kReplaceDevice, "the device could not be initialised"},
    {144, Scope::kDevice, Action::kReplaceDevice, "NVLink 5 error (SAW)"},
    {145, Scope::kDevice, Action::kReplaceDevice, "NVLink 5 error (RLW)"},
    {146, Scope::kDevice, Action::kReplaceDevice, "NVLink 5 error (TLW)"},
    {147, Scope::kDevice, Action::kReplaceDevice, "NVLink 5 error (TREX)"},
    {148, Scope::kDevice, Action::kReplaceDevice, "NVLink 5 error (NVLPW)"},
    {149, Scope::kDevice, Action::kReplaceDevice, "NVLink 5 error (NETIR)"},
    {150, Scope::kDevice, Action::kReplaceDevice, "NVLink 5 error (MSE)"},
    {154, Scope::kNone, Action::kNothing, "the recovery action changed; its value says what follows"},
    {155, Scope::kDevice, Action::kReplaceDevice, "NVLink went down"},
    {156, Scope::kDevice, Action::kReplaceDevice, "a resource was retired"},
    {157, Scope::kNone, Action::kWatch, "retiring a resource failed"},
    {158, Scope::kDevice, Action::kReplaceDevice, "the device timed out"},
    {171, Scope::kNone, Action::kNothing, "uncorrectable error in DRAM; 94 and 95 say what follows"},
    {172, Scope::kNone, Action::kNothing, "uncorrectable error in SRAM; 94 and 95 say what follows"},
}};

static_assert(std::is_sorted(kXids.begin(), kXids.end(),
                             [](const XidRow& a, const XidRow& b) { return a.xid < b.xid; }));

}  // namespace

std::span<const XidRow> XidTable() { return kXids; }

Verdict ClassifyXid(int xid) {
  for (const XidRow& row : XidTable())
    if (row.xid == xid)
      return {row.scope, row.action, true, "Xid " + std::to_string(xid) + ", " + std::string(row.meaning)};
  return {Scope::kDevice, Action::kReplaceDevice, false,
          "Xid " + std::to_string(xid) + ", which this version does not know: the device is not trusted any more"};
}

Verdict ClassifyRecoveryAction(int action) {
  constexpr std::array<std::string_view, 6> kNames = {"none",      "reset",           "reboot",
                                                      "drain P2P", "drain and reset", "recover IMEX"};
  const bool known = action >= 0 && action < static_cast<int>(kNames.size());
  Verdict verdict{Scope::kDevice, Action::kReplaceDevice, known,
                  "recovery action " + (known ? "'" + std::string(kNames[static_cast<size_t>(action)]) + "'"
                                              : std::to_string(action) + ", which this version does not know")};
  if (action == 0) verdict.scope = Scope::kNone, verdict.action = Action::kNothing;
  if (action == 2 || action == 5) verdict.scope = Scope::kNode, verdict.action = Action::kReplaceNode;
  return verdict;
}

Verdict ClassifyLostDevice() { return {Scope::kNode, Action::kReplaceNode, true, "the driver has lost the device"}; }

std::string_view ActionName(Action action) {
  constexpr std::array<std::string_view, 5> kNames = {"nothing", "watch", "restart-process", "replace-device",
                                                      "replace-node"};
  return kNames[static_cast<size_t>(action)];
}

}  // namespace kintsugi::device
