// How a run is begun, and begun again (RunAndReport, common.h).
#pragma once

#include "runtime/base/status.h"

namespace kintsugi::cli {

// The exit code of a run that this kept from beginning.
int NeverBegan(const Status& why);

}  // namespace kintsugi::cli
