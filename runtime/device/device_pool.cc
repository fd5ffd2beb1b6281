#include "runtime/device/device_pool.h"

#include <algorithm>

namespace kintsugi::device {

DevicePool::DevicePool(int devices, int ranks) : why_(static_cast<size_t>(std::max(devices, 1))) {
  for (int rank = 0; rank < ranks; ++rank) device_of_.push_back(rank % DevicePool::devices());
}

std::vector<int> DevicePool::RanksOn(int device) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < device_of_.size(); ++rank)
    if (device_of_[rank] == device) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::optional<int> DevicePool::Assign(int rank) {
  int& mine = device_of_[static_cast<size_t>(rank)];
  if (!IsExcluded(mine)) return mine;
  std::optional<int> best;
  size_t fewest = 0;
  for (int device = 0; device < devices(); ++device) {
    if (IsExcluded(device)) continue;
    const size_t users = RanksOn(device).size();
    if (best && users >= fewest) continue;
    best = device;
    fewest = users;
  }
  const bool sharing = device_of_.size() > why_.size();
  if (!best || (fewest > 0 && !sharing)) return std::nullopt;
  mine = *best;
  return mine;
}

bool DevicePool::Exclude(int device, const std::string& why) {
  if (device < 0 || device >= devices() || IsExcluded(device)) return false;
  why_[static_cast<size_t>(device)] = why.empty() ? "no reason given" : why;
  return true;
}

std::string DevicePool::Excluded() const {
  std::string text;
  for (size_t device = 0; device < why_.size(); ++device)
    if (!why_[device].empty())
      text += (text.empty() ? "" : ", ") + std::string("device ") + std::to_string(device) + " (" + why_[device] + ")";
  return text;
}

}  // namespace kintsugi::device
