#include "tools/cli/run_choice.h"

#include <algorithm>
#include <future>

#include "tools/cli/common.h"
#include "tools/cli/talk_request.h"
#include "tools/runs/run_folder.h"

namespace kintsugi::cli {
namespace {

using nlohmann::json;

constexpr Duration kAnswerWithin = std::chrono::seconds(2);

json StatusOf(const std::string& run_dir) {
  return Ask(run_dir, {{"command", "status"}}, kAnswerWithin).said.value_or(json());
}

}  // namespace

std::vector<runs::FoundRun> LookForRuns() {
  std::vector<runs::FoundRun> found = runs::FindRuns(runs::RunBases());
  // At once: one that stands still holds up no other's answer.
  std::vector<std::future<json>> answers;
  for (const runs::FoundRun& run : found)
    answers.push_back(run.state == runs::RunState::kLive ? std::async(std::launch::async, StatusOf, run.run_dir)
                                                         : std::future<json>());
  for (size_t i = 0; i < found.size(); ++i)
    if (answers[i].valid()) found[i].status = answers[i].get();
  return found;
}

bool ChooseRun(std::string* run_dir, int& exit_code) {
  if (!run_dir->empty()) return true;
  std::vector<runs::FoundRun> live = runs::FindRuns(runs::RunBases());
  std::erase_if(live, [](const runs::FoundRun& run) { return run.state != runs::RunState::kLive; });
  if (live.size() == 1) {
    *run_dir = live.front().run_dir;
    return true;
  }
  if (live.empty()) {
    Complain("no run of this user lives on this host: name its folder with --run if it is another's");
    exit_code = core::kExitFailed;
    return false;
  }
  std::string folders;
  for (const runs::FoundRun& run : live) folders += "\n  --run " + run.run_dir + "  (" + run.job + ")";
  Complain(std::to_string(live.size()) + " runs live here; name one:" + folders);
  exit_code = core::kExitUsage;
  return false;
}

}  // namespace kintsugi::cli
