// DevicePool: which of a node's devices a rank's process gets, and which devices nobody gets any more.
//
// What: rank i of the node begins on device i; more ranks than devices share them in turn. An excluded device is left
// for one that no rank uses; where there is none, for the healthy one that the fewest use only if ranks share devices
// anyway; else there is no device, and the rank cannot be started on this node.
// Threads: one owner. Pure.
// Units: indexes of devices and of ranks on this node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/export.h"

namespace kintsugi::device {

class KINTSUGI_EXPORT DevicePool {
 public:
  DevicePool(int devices, int ranks);

  // The device of a process of this rank that is about to start; it keeps the one it has while that is healthy.
  std::optional<int> Assign(int rank);
  // What the rank's process has now.
  int DeviceOf(int rank) const { return device_of_[static_cast<size_t>(rank)]; }
  // Where it began.
  int HomeOf(int rank) const { return rank % devices(); }
  std::vector<int> RanksOn(int device) const;

  // `why` is kept for messages. False when it was excluded before or does not exist.
  bool Exclude(int device, const std::string& why);
  bool IsExcluded(int device) const { return !why_[static_cast<size_t>(device)].empty(); }
  // "device 0 (Xid 95, uncontained memory error)", of all that are excluded.
  std::string Excluded() const;
  int devices() const { return static_cast<int>(why_.size()); }

 private:
  std::vector<std::string> why_;  // by device; empty: healthy
  std::vector<int> device_of_;    // by rank
};

}  // namespace kintsugi::device
