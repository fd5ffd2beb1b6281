// What `kintsugi --version` says: version, commit, compiler, what was built in, and which protocol and forms it speaks.
#pragma once

#include <string>

namespace kintsugi::cli {

std::string VersionText();
// Version and commit alone.
std::string ShortVersion();

}  // namespace kintsugi::cli
