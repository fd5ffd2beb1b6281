// The answer to `kintsugi status`: what can be seen of a run, as one line of JSON. Pure.
#pragma once

#include <string>

#include "runtime/launcher/run/run_status.h"

namespace kintsugi {

std::string_view LifeName(core::ControllerCore::Life life);

std::string StatusLine(const RunStatus& status);

}  // namespace kintsugi
