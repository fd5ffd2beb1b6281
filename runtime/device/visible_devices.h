// VisibleDevices: which of a node's devices its processes see, in the order in which they number them.
//
// What: CUDA_VISIBLE_DEVICES as CUDA reads it (CUDA C++ Programming Guide, "CUDA Environment Variables"): numbers or names with commas between
// them, up to the first that is neither; "" is none, and without the variable all are seen. Numbers are those of NVML, which is CUDA's order where
// CUDA_DEVICE_ORDER=PCI_BUS_ID.
// Threads: one owner. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/export.h"

namespace kintsugi::device {

class KINTSUGI_EXPORT VisibleDevices {
 public:
  // `said`: the variable; `count`: of NVML's devices, nullopt where nobody counted; `number_of`: of "GPU-...", -1: not known.
  VisibleDevices(const std::optional<std::string>& said, std::optional<int> count,
                 const std::function<int(const std::string&)>& number_of);

  int size() const { return static_cast<int>(words_.size()); }
  // Of the device that NVML calls so, or -1.
  int PositionOf(int number) const;
  // The variable for a process that is to find the device at `position` at `wanted`: the two change places.
  // REQUIRES: both are below size().
  std::string Swapped(int position, int wanted) const;

 private:
  std::vector<std::string> words_;  // as the variable has them
  std::vector<int> numbers_;        // -1: not known
};

}  // namespace kintsugi::device
