// How a run is begun, and begun again (RunAndReport, common.h).
#pragma once

#include "runtime/base/status.h"

namespace kintsugi::cli {

// The exit code of a run that this kept from beginning. `begins_again`: the same command goes on from what was saved, so that
// a batch system is to come back to it (75) where the cause may be gone by then.
int NeverBegan(const Status& why, bool begins_again = false);

}  // namespace kintsugi::cli
