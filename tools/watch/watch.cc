#include "tools/watch/watch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "runtime/base/log.h"
#include "tools/watch/program.h"
#include "tools/watch/ranks.h"
#include "tools/watch/world.h"

namespace kintsugi::watch {
namespace {

namespace fs = std::filesystem;

constexpr Duration kLookEvery = std::chrono::milliseconds(100);

// A folder of this command's own, in memory where there is such a place: no disk is waited for when a mark is written.
class OwnFolder {
 public:
  static Result<std::unique_ptr<OwnFolder>> Make() {
    std::error_code error;
    const std::string temporary = fs::temp_directory_path(error).string();
    for (const std::string& place : {std::string("/dev/shm"), temporary}) {
      std::string path = place + "/kintsugi-watch-XXXXXX";
      if (!place.empty() && mkdtemp(path.data()) != nullptr) return std::unique_ptr<OwnFolder>(new OwnFolder(path));
    }
    return Status(StatusCode::kUnavailable,
                  "no folder can be made in /dev/shm nor in '" + temporary + "': " + std::strerror(errno));
  }
  ~OwnFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  OwnFolder(const OwnFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit OwnFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

std::vector<std::pair<std::string, std::string>> EnvironmentOf(const std::string& package, const std::string& marks) {
  const char* const before = std::getenv("PYTHONPATH");
  const std::string site = package + "/site";
  return {{"PYTHONPATH", before && *before ? site + ":" + before : site},
          {"KINTSUGI_WATCH_MARKS", marks},
          {"KINTSUGI_WATCH_LIBRARY", package + "/watch/libkintsugi_watch.so"}};
}

// All worlds that the program has: one at a time, as a rule; another after each restart of its launcher.
class Worlds {
 public:
  Worlds(MarkFolder& folder, const WaitBounds& limits, const std::function<void(const std::string&)>& tell)
      : folder_(folder), limits_(limits), tell_(tell) {}

  bool any() const { return !worlds_.empty(); }
  void Look(TimePoint now) {
    Find();
    for (auto& [name, world] : worlds_) TellAll(world.Look(now));
  }
  void End(TimePoint now, bool failed) {
    Find();
    for (auto& [name, world] : worlds_) TellAll(world.End(now, failed));
  }

 private:
  void Find() {
    for (std::unique_ptr<WatchedRank>& rank : folder_.TakeNew()) {
      const std::string world = rank->world();
      worlds_.try_emplace(world, limits_).first->second.Add(std::move(rank));
    }
    for (const std::string& device : folder_.TakeUnseen())
      tell_(LogLine("watch", {{"text", "collectives of tensors on " + device +
                                           " are not seen: those of tensors on the cpu alone are watched"}}));
  }
  void TellAll(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) tell_(line);
  }

  MarkFolder& folder_;
  const WaitBounds limits_;
  const std::function<void(const std::string&)>& tell_;
  std::map<std::string, WatchedWorld> worlds_;
};

}  // namespace

Result<int> WatchProgram(const WatchOptions& options, const std::function<void(const std::string&)>& tell) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::unique_ptr<OwnFolder> own, OwnFolder::Make());
  KINTSUGI_ASSIGN_OR_RETURN(WatchedProgram program,
                            WatchedProgram::Start(options.command, EnvironmentOf(options.package, own->path())));
  MarkFolder folder(own->path());
  Worlds worlds(folder, options.limits, tell);
  std::optional<int> status;
  while (!(status = program.Await(kLookEvery))) worlds.Look(SteadyClock::SteadyNow());
  const bool well = WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
  worlds.End(SteadyClock::SteadyNow(), !well);
  if (!worlds.any())
    tell(LogLine(
        "watch",
        {{"text",
          "nothing was watched: no process of the program made a process group of torch.distributed, or its Python "
          "takes no PYTHONPATH (-I, -E, -S)"}}));
  return *status;
}

}  // namespace kintsugi::watch
