// The name of this host, as gethostname has it.
//
// Errors: none; "unknown" where the kernel does not say.
#pragma once

#include <unistd.h>

#include <string>

namespace kintsugi {

inline std::string HostName() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace kintsugi
