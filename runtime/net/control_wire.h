// How the control socket's own refusals look on the wire, apart from the answers of the run behind it.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace kintsugi::net {

// {"transport_error":{"code":"...","message":"..."}}
std::string TransportError(const Status& status);

// The Status that such a line carries; ok for any other line.
Status ParseTransportError(const std::string& line);

}  // namespace kintsugi::net
