#include "tools/runs/run_list.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/base/unique_fd.h"
#include "runtime/journal/files.h"
#include "runtime/journal/options.h"
#include "tools/runs/run_folder.h"

namespace kintsugi::runs {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

enum class Lock { kNone, kHeld, kFree };

// A shared lock, so that two who look do not see each other; one that takes over a folder for good waits for none.
Lock LookAtLock(const fs::path& folder) {
  const UniqueFd fd = OpenFile(folder / kLockName, O_RDONLY);
  if (!fd.valid()) return Lock::kNone;
  return ::flock(fd.get(), LOCK_SH | LOCK_NB) == 0 ? Lock::kFree : Lock::kHeld;
}

json Described(const fs::path& folder) {
  const std::string text = ReadFile(folder / kDescriptionName);
  const auto parsed = JsonDocument::Parse(text);
  return parsed.ok() && parsed->Root().IsObject() ? parsed->Root().Copy() : json::object();
}

int64_t NumberOf(const json& object, const char* name, int64_t otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

std::string TextOf(const json& object, const char* name, const std::string& otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

// "run-4711-abcdef"
int64_t PidOf(const std::string& name) {
  int64_t pid = 0;
  const char* begin = name.data() + std::string_view(kFolderPrefix).size();
  std::from_chars(begin, name.data() + name.size(), pid);
  return pid;
}

int64_t WrittenMs(const fs::path& folder) {
  struct stat found {};
  if (::stat(folder.c_str(), &found) != 0) return 0;
  return static_cast<int64_t>(found.st_mtim.tv_sec) * 1000 + found.st_mtim.tv_nsec / 1000000;
}

std::optional<FoundRun> LookAt(const fs::path& folder) {
  const Lock lock = LookAtLock(folder);
  if (lock == Lock::kNone) return std::nullopt;  // none of ours
  const json said = Described(folder);
  FoundRun run;
  run.folder = folder.string();
  run.run_dir = TextOf(said, "run_dir", run.folder);
  run.job = TextOf(said, "job", "");
  run.node = TextOf(said, "node", "0");
  run.pid = NumberOf(said, "pid", PidOf(folder.filename().string()));
  run.ranks = NumberOf(said, "ranks", 0);
  run.began_ms = NumberOf(said, "began_unix_ms", WrittenMs(folder));
  run.program = TextOf(said, "program", "");
  if (lock == Lock::kHeld) return run;
  // One that ends in order takes its socket along.
  std::error_code error;
  const bool left = !journal::FilesIn(folder.string()).empty() && !fs::exists(folder / "control.sock", error);
  run.state = left && run.run_dir == run.folder ? RunState::kEnded : RunState::kGone;
  return run;
}

int64_t Ready(const json& status) {
  const auto ranks = status.find("ranks");
  if (ranks == status.end() || !ranks->is_array()) return 0;
  return std::count_if(ranks->begin(), ranks->end(),
                       [](const json& rank) { return TextOf(rank, "life", "") == "ready"; });
}

}  // namespace

std::string_view RunStateName(RunState state) {
  constexpr std::string_view kNames[] = {"live", "ended", "gone"};
  return kNames[static_cast<size_t>(state)];
}

std::vector<FoundRun> FindRuns(const std::vector<std::string>& bases) {
  std::vector<FoundRun> runs;
  for (const std::string& base : bases) {
    if (!IsOwn(base)) continue;
    std::error_code error;
    for (fs::directory_iterator at(base, error), end; !error && at != end; at.increment(error)) {
      if (at->path().filename().string().rfind(kFolderPrefix, 0) != 0) continue;
      if (auto run = LookAt(at->path())) runs.push_back(std::move(*run));
    }
  }
  std::sort(runs.begin(), runs.end(), [](const FoundRun& a, const FoundRun& b) {
    return std::pair(a.began_ms, a.folder) > std::pair(b.began_ms, b.folder);
  });
  return runs;
}

std::string StateWords(const FoundRun& run) {
  if (run.state == RunState::kEnded) return "ended";
  if (run.state == RunState::kGone) return "stale";
  return run.status.is_object() ? TextOf(run.status, "phase", "?") : "SILENT";
}

std::string AgeWords(int64_t seconds) {
  char text[64];
  const auto n = [](int64_t value) { return static_cast<long long>(value); };
  seconds = std::max<int64_t>(seconds, 0);
  if (seconds < 120)
    std::snprintf(text, sizeof text, "%lld s", n(seconds));
  else if (seconds < 7200)
    std::snprintf(text, sizeof text, "%lld min", n(seconds / 60));
  else if (seconds < 172800)
    std::snprintf(text, sizeof text, "%lld h %02lld min", n(seconds / 3600), n(seconds / 60 % 60));
  else
    std::snprintf(text, sizeof text, "%lld d %lld h", n(seconds / 86400), n(seconds / 3600 % 24));
  return text;
}

ordered_json ListJson(const std::vector<FoundRun>& runs, int64_t now_ms) {
  ordered_json list = ordered_json::array();
  for (const FoundRun& run : runs) {
    const bool answers = run.status.is_object();
    const auto number = [](int64_t value) { return value > 0 ? ordered_json(value) : ordered_json(nullptr); };
    list.push_back(
        {{"job", run.job},
         {"node", run.node},
         {"pid", number(run.pid)},
         {"state", RunStateName(run.state)},
         {"answers", answers},
         {"phase", answers ? ordered_json(StateWords(run)) : ordered_json(nullptr)},
         {"step", answers ? ordered_json(NumberOf(run.status, "step", 0)) : ordered_json(nullptr)},
         {"ranks", number(run.ranks)},
         {"ranks_ready", answers ? ordered_json(Ready(run.status)) : ordered_json(nullptr)},
         {"incidents", answers ? ordered_json(NumberOf(run.status, "incidents", 0)) : ordered_json(nullptr)},
         {"began_unix_ms", number(run.began_ms)},
         {"age_s",
          run.began_ms > 0 ? ordered_json(std::max<int64_t>(now_ms - run.began_ms, 0) / 1000) : ordered_json(nullptr)},
         {"program", run.program},
         {"run_dir", run.run_dir}});
  }
  return list;
}

std::string ListTable(const std::vector<FoundRun>& runs, int64_t now_ms) {
  std::vector<std::vector<std::string>> rows{
      {"JOB", "NODE", "PID", "STATE", "STEP", "RANKS", "INCIDENTS", "AGE", "RUN FOLDER"}};
  for (const FoundRun& run : runs) {
    const bool answers = run.status.is_object();
    const std::string of = run.ranks > 0 ? std::to_string(run.ranks) : "?";
    rows.push_back({run.job.empty() ? "?" : run.job, run.node, run.pid > 0 ? std::to_string(run.pid) : "?",
                    StateWords(run), answers ? std::to_string(NumberOf(run.status, "step", 0)) : "-",
                    answers ? std::to_string(Ready(run.status)) + "/" + of : of,
                    answers ? std::to_string(NumberOf(run.status, "incidents", 0)) : "-",
                    run.began_ms > 0 ? AgeWords((now_ms - run.began_ms) / 1000) : "?", run.run_dir});
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string table;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) table += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    table += row.back() + "\n";
  }
  return table;
}

}  // namespace kintsugi::runs
