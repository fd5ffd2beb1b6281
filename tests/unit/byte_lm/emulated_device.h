// Everything that `--device cuda` opens, over the fake device.
#pragma once

#include "integrations/examples/byte_lm/device/device_session.h"
#include "tests/support/fake_gpu/emulated_launcher.h"

namespace kintsugi::byte_lm::device {

inline Result<std::unique_ptr<DeviceSession>> OpenEmulated() {
  return DeviceSession::Open({}, [](int) { return EmulatedLauncher::Make(FAKE_GPU); });
}

}  // namespace kintsugi::byte_lm::device
