#include "tools/watch/ranks.h"

#include <poll.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "runtime/process/pidfd.h"

namespace kintsugi::watch {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kUnseen = "unseen-";

}  // namespace

// "<world>-<rank>-<size>-<pid>.marks"
std::unique_ptr<WatchedRank> WatchedRank::Open(const std::string& folder, const std::string& file) {
  char world[17];
  int rank = -1, size = 0, pid = 0, end = 0;
  if (std::sscanf(file.c_str(), "%16[0-9a-f]-%d-%d-%d.marks%n", world, &rank, &size, &pid, &end) != 4) return nullptr;
  if (static_cast<size_t>(end) != file.size() || rank < 0 || size <= rank || pid <= 0) return nullptr;
  auto marks = CollectiveMarks::OpenFrom(folder + "/" + file);
  if (!marks.ok()) return nullptr;
  std::unique_ptr<WatchedRank> found(new WatchedRank);
  found->world_ = world;
  found->rank_ = Rank(rank);
  found->world_size_ = size;
  found->pid_ = pid;
  found->marks_ = std::move(marks.value());
  found->process_ = UniqueFd(PidfdOpen(pid));
  return found;
}

bool WatchedRank::IsGone() const {
  if (!process_.valid()) return true;
  pollfd ended{process_.get(), POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

std::vector<std::unique_ptr<WatchedRank>> MarkFolder::TakeNew() {
  std::vector<std::unique_ptr<WatchedRank>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string file = entry.path().filename().string();
    if (!known_.insert(file).second) continue;
    if (file.starts_with(kUnseen)) unseen_.push_back(file.substr(kUnseen.size()));
    if (auto rank = WatchedRank::Open(path_, file)) found.push_back(std::move(rank));
  }
  return found;
}

std::vector<std::string> MarkFolder::TakeUnseen() { return std::exchange(unseen_, {}); }

}  // namespace kintsugi::watch
