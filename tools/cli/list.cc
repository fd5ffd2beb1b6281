// kintsugi list: the runs of this user on this host.
#include <chrono>
#include <iostream>

#include "tools/cli/common.h"
#include "tools/cli/run_choice.h"

namespace kintsugi::cli {

void AddList(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("list", "List this user's runs on this host, and what earlier ones left");
  command->add_flag("--json", *as_json, "As a JSON array");
  command->footer(
      "STATE is the run's phase (RUNNING: it trains), SILENT where its launcher lives and does not answer, 'ended' of "
      "a\n"
      "run that left its journal to be replayed, 'stale' where the launcher was killed. Nothing is removed here: what "
      "is\n"
      "stale goes when the next run starts. Exit code: 0.");
  command->callback([as_json] {
    const std::vector<runs::FoundRun> found = LookForRuns();
    const auto now =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    if (*as_json)
      std::cout << runs::ListJson(found, now).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                << std::endl;
    else if (found.empty())
      std::cout << "no runs of this user on this host" << std::endl;
    else
      std::cout << runs::ListTable(found, now) << std::flush;
  });
}

}  // namespace kintsugi::cli
