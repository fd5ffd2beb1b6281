// kintsugi list: the runs of this user on this host.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>

#include "tools/cli/common.h"
#include "tools/cli/run_choice.h"
#include "tools/runs/run_folder.h"

namespace kintsugi::cli {

namespace {

// What is over is removed, and told; what cannot be is complained of.
int RemoveOver(const std::vector<runs::FoundRun>& found, const std::function<bool(const runs::FoundRun&)>& is_meant) {
  int exit_code = core::kExitSuccess;
  for (const runs::FoundRun& run : found) {
    if (!is_meant(run)) continue;
    const Status removed = runs::RemoveRun(run.folder);
    if (removed.ok())
      std::cout << "removed " << run.folder << " (" << (run.job.empty() ? "?" : run.job) << ")\n";
    else {
      Complain(removed.message());
      exit_code = core::kExitFailed;
    }
  }
  std::cout << std::flush;
  return exit_code;
}

int RemoveNamed(const std::vector<std::string>& names) {
  const std::vector<runs::FoundRun> found = runs::FindRuns(runs::RunBases());
  int exit_code = core::kExitSuccess;
  for (const std::string& name : names) {
    const auto is_meant = [&name](const runs::FoundRun& run) {
      return run.folder == name || run.run_dir == name || run.job == name;
    };
    if (std::none_of(found.begin(), found.end(), is_meant)) {
      Complain("'" + name + "' is no run of this user on this host: kintsugi list shows their folders and jobs");
      exit_code = core::kExitFailed;
    } else {
      exit_code = std::max(exit_code, RemoveOver(found, is_meant));
    }
  }
  return exit_code;
}

}  // namespace

void AddRemove(CLI::App& app, int& exit_code) {
  auto names = std::make_shared<std::vector<std::string>>();
  CLI::App* command =
      app.add_subcommand("rm", "Remove what runs that are over have left in this host's folder of runs");
  command->add_option("runs", *names, "Folders, or jobs, as kintsugi list shows them")->required();
  command->footer(
      "A run that lives is refused. A --run-dir of the user's stays, and so do checkpoints, reports and logs.\n"
      "Exit codes: 0 all are removed, 1 some are not, 2 wrong usage.");
  command->callback([names, &exit_code] { exit_code = RemoveNamed(*names); });
}

void AddList(CLI::App& app, int& exit_code) {
  auto prune = std::make_shared<bool>(false);
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("list", "List this user's runs on this host, and what earlier ones left");
  CLI::Option* json = command->add_flag("--json", *as_json, "As a JSON array");
  command->add_flag("--prune", *prune, "Remove what is ended or stale, journals too, and say so")->excludes(json);
  command->footer(
      "STATE is the run's phase (RUNNING: it trains), SILENT where its launcher lives and does not answer, 'ended' of "
      "a\n"
      "run that left its journal to be replayed, 'stale' where the launcher was killed. What "
      "is\n"
      "stale goes when the next run starts, the newest journals later, or with --prune. Exit code: 0.");
  command->callback([as_json, prune, &exit_code] {
    if (*prune) {
      exit_code = RemoveOver(runs::FindRuns(runs::RunBases()),
                             [](const runs::FoundRun& run) { return run.state != runs::RunState::kLive; });
      return;
    }
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
