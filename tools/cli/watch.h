// kintsugi status --watch.
#pragma once

#include <string>

namespace kintsugi::cli {

// Looks every so many seconds until the run ends or the user does not want to any more. Exit code 0, or 1 where the run
// is not there from the beginning, which has been printed then.
void Watch(const std::string& run_dir, double every_s, int& exit_code);

}  // namespace kintsugi::cli
