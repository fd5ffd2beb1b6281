// One question to a live run through its control socket.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace kintsugi::cli {

// `said` where the run did what it was asked for, else why not and the exit code of that. kNotFound: nobody listens
// there.
struct RunAnswer {
  std::optional<nlohmann::json> said;
  Status trouble;
  int exit_code = 0;
};
// Where the run has too many callers at once it is tried again, as long as the limit; `tell` hears so once.
RunAnswer Ask(const std::string& run_directory, const nlohmann::json& request, Duration limit,
              const std::function<void(const std::string&)>& tell = {});

// The answer; nothing when the run is not there (exit code 1) or refused (2), which has been printed then.
std::optional<nlohmann::json> AskRun(const std::string& run_directory, const nlohmann::json& request, int& exit_code,
                                     Duration limit = std::chrono::seconds(30));

}  // namespace kintsugi::cli
