// What `kintsugi --version` says: version, commit, compiler, what was built in, and which protocol and forms it speaks.
#pragma once

#include <string>

namespace kintsugi::cli {

std::string VersionText();

}  // namespace kintsugi::cli
