// What `kintsugi run --help` shows: the options that people need. The rest is in groups below them with --help-all.
//
// Threads: one.
#pragma once

#include <CLI/CLI.hpp>

namespace kintsugi::cli {

// What no group is for is shown under "Other" at the end of --help-all, and a test fails.
void GroupRunOptions(CLI::App& run);

}  // namespace kintsugi::cli
