// Whether this processor can run the instructions that the compute sources were built with.
#pragma once

#include "runtime/base/status.h"

namespace kintsugi::byte_lm {

// kFailedPrecondition names the build option to change.
Status CheckCpu();

}  // namespace kintsugi::byte_lm
