// One question to a live run through its control socket.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/base/clock.h"

namespace kintsugi::cli {

// The answer; nothing when the run is not there (exit code 1) or refused (2), which has been printed then.
std::optional<nlohmann::json> AskRun(const std::string& run_directory, const nlohmann::json& request, int& exit_code,
                                     Duration limit = std::chrono::seconds(30));

}  // namespace kintsugi::cli
