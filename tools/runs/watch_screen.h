// What `kintsugi status --watch` shows, from the run's own answers: a screen of a given size, or one plain line. Pure.
//
// Units: columns and rows of characters; every column that is drawn holds one character of ASCII, so that width is length.
// Errors: none: what an answer lacks is left out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/runs/terminal.h"

namespace kintsugi::runs {

struct WatchView {
  nlohmann::json status;     // the answer to "status"
  nlohmann::json incidents;  // the list in the answer to "incidents"; null: not asked
  std::string clock;         // the time of day, for the corner
  std::string trouble;       // in place of news: "no answer for 4 s"; empty: none
};

// As many lines as the screen has rows, or fewer; none is longer than it has columns, colours not counted.
std::vector<std::string> WatchScreen(const WatchView& view, ScreenSize size, bool colored);

// "job J  RUNNING  step 12  loss 2.3456  ranks 4/4  incidents 0  goodput 97.1 %"
std::string WatchLine(const nlohmann::json& status);

}  // namespace kintsugi::runs
