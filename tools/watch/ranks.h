// WatchedRank: one process of the program that is in a process group, as its marks show it; MarkFolder finds them.
//
// Threads: one.
// Ownership: its mapping and the handle of its process.
// Errors: none: what cannot be read is not there.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/collective_marks.h"
#include "runtime/base/ids.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi::watch {

class WatchedRank {
 public:
  // Null: the file is none of ours, or another build's.
  static std::unique_ptr<WatchedRank> Open(const std::string& folder, const std::string& file);

  const std::string& world() const { return world_; }
  Rank rank() const { return rank_; }
  int world_size() const { return world_size_; }
  pid_t pid() const { return pid_; }
  CollectiveMarks& marks() const { return *marks_; }
  // Its process is gone.
  bool IsGone() const;
  // It came to its own end, then; 0: not yet, or a signal took it.
  uint64_t ended_ns() const { return marks_->memory().ended_ns; }

 private:
  WatchedRank() = default;

  std::string world_;
  Rank rank_;
  int world_size_ = 0;
  pid_t pid_ = 0;
  std::unique_ptr<CollectiveMarks> marks_;
  UniqueFd process_;  // invalid: it was gone before it was looked at
};

class MarkFolder {
 public:
  explicit MarkFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // Those that have come since the last call.
  std::vector<std::unique_ptr<WatchedRank>> TakeNew();
  // Kinds of devices whose collectives are not seen, that were met since the last call.
  std::vector<std::string> TakeUnseen();

 private:
  const std::string path_;
  std::set<std::string> known_;
  std::vector<std::string> unseen_;
};

}  // namespace kintsugi::watch
