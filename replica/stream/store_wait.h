// Waits on a Store that something else than the store may end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "callbacks/handlers/store.h"

namespace kintsugi {

// Gets `key`, looking at `stopped` every 50 ms: kCancelled when it says so, else what Store::Get gives.
Result<std::vector<uint8_t>> GetUnlessStopped(Store& store, const std::string& key, TimePoint deadline,
                                              const std::function<bool()>& stopped);

}  // namespace kintsugi
