// What a device's fault means: how far it reaches, and the cheapest thing that repairs it. Data and pure functions.
//
// What: one row per Xid (the numbers that NVIDIA's driver reports), and the driver's recovery actions. A number that
// the table does not know is taken for the worst that a process can still be moved away from, and its verdict says so.
// Source of the rule: NVIDIA's Xid catalogue and its GPU memory error guide. A contained memory error (94) ends only
// the process that met it and the page is out of use at once, so a new process on the same device is the cheapest
// repair; an uncontained one (95) needs a reset, which ends every process of the device.
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/export.h"

namespace kintsugi::device {

// Whom a fault reaches.
enum class Scope : uint8_t { kNone, kProcess, kDevice, kNode };

// In the order of their cost.
enum class Action : uint8_t {
  kNothing,         // known and harmless, or another report says what follows
  kWatch,           // no repair; a sign of a device that ages
  kRestartProcess,  // rung respawn, on the same device
  kReplaceDevice,   // rung respawn, on another device: this one needs a reset
  kReplaceNode,     // rung respawn elsewhere: the node needs a restart
};

struct XidRow {
  int xid;
  Scope scope;
  Action action;
  std::string_view meaning;
};

struct Verdict {
  Scope scope = Scope::kNone;
  Action action = Action::kNothing;
  bool known = true;
  std::string text;  // "Xid 94, contained memory error"
};

KINTSUGI_EXPORT std::span<const XidRow> XidTable();
KINTSUGI_EXPORT Verdict ClassifyXid(int xid);

// The driver's word on what a device needs (Xid 154, NVML field 230): 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain
// and reset, 5 recover IMEX.
KINTSUGI_EXPORT Verdict ClassifyRecoveryAction(int action);

// The device no longer answers its driver.
KINTSUGI_EXPORT Verdict ClassifyLostDevice();

KINTSUGI_EXPORT std::string_view ActionName(Action action);

}  // namespace kintsugi::device
