// What the engine around a launcher says, put into the options that its user left open.
#pragma once

#include <optional>
#include <string>

#include "tools/cli/common.h"
#include "tools/cli/meeting.h"

namespace kintsugi::cli {

// Adds --engine.
void AddEngineOption(CLI::App& app, std::string& engine);

// Which options the user gave stands in `app`: those are kept. Says in one line what was found.
// Gives the meeting, where one was needed: it lasts as long as the run.
// Errors: kInvalidArgument and those of a Meeting.
Result<std::optional<Meeting>> TakeSurroundings(const CLI::App& app, const std::string& engine, RunOptions* options);

}  // namespace kintsugi::cli
