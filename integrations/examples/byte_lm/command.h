// The program byte_lm, apart from what starts kernels on a device: tests hand in another launcher than the product's.
//
// Exit codes: those of the run (0, 75 or 1); 2 for a wrong option, and for `--device cuda` where something is missing.
#pragma once

#include "integrations/examples/byte_lm/device/device_session.h"

namespace kintsugi::byte_lm {

int RunCommand(int argc, char** argv, const device::CodeFactory& code);

}  // namespace kintsugi::byte_lm
