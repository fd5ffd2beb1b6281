#include "tools/cli/watch.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <iostream>
#include <optional>

#include "tools/cli/common.h"
#include "tools/cli/talk_request.h"
#include "tools/runs/run_list.h"
#include "tools/runs/watch_screen.h"

namespace kintsugi::cli {
namespace {

using nlohmann::json;

// A launcher that is busy says nothing for a moment; one who watches sees for how long.
constexpr Duration kWatchedAnswersWithin = std::chrono::seconds(2);

RunAnswer AskFor(const char* command, const std::string& run_dir) {
  return Ask(run_dir, {{"command", command}}, kWatchedAnswersWithin);
}

std::string TimeOfDay() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[16];
  std::strftime(text, sizeof text, "%H:%M:%S", &parts);
  return text;
}

bool WantsColor() {
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

}  // namespace

void Watch(const std::string& run_dir, double every_s, int& exit_code) {
  const bool screen = isatty(STDOUT_FILENO) == 1;
  runs::WatchView view;
  RunAnswer first = AskFor("status", run_dir);
  if (!first.said) {
    Complain(first.trouble.message());
    exit_code = core::kExitFailed;
    return;
  }
  view.status = std::move(*first.said);
  bool ended = false;
  {
    runs::Terminal terminal(screen);
    TimePoint answered = SteadyClock::SteadyNow();
    for (;;) {
      view.clock = TimeOfDay();
      if (screen) {
        if (RunAnswer incidents = AskFor("incidents", run_dir); incidents.said)
          view.incidents = (*incidents.said)["incidents"];
        terminal.Draw(runs::WatchScreen(view, terminal.size(), WantsColor()));
      } else {
        std::cout << view.clock << "  " << runs::WatchLine(view.status)
                  << (view.trouble.empty() ? "" : "  " + view.trouble) << std::endl;
        if (!std::cout) break;
      }
      if (!terminal.Wait(Duration(static_cast<int64_t>(every_s * 1e9)))) break;
      RunAnswer answer = AskFor("status", run_dir);
      ended = answer.trouble.code() == StatusCode::kNotFound;  // nobody listens there
      if (ended) break;
      const TimePoint now = SteadyClock::SteadyNow();
      view.trouble.clear();
      if (answer.said) {
        view.status = std::move(*answer.said);
        answered = now;
      } else {
        view.trouble =
            "no answer for " + runs::AgeWords(std::chrono::duration_cast<std::chrono::seconds>(now - answered).count());
      }
    }
  }
  if (screen) std::cout << runs::WatchLine(view.status) << "\n";  // what was seen last stays
  if (ended) std::cout << "the run has ended" << std::endl;
}

}  // namespace kintsugi::cli
