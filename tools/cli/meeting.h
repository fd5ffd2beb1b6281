// Meeting: a folder on a file system that all hosts of a run share, where node 0 leaves what the others need to find
// it: its address, and the secret of the run. For engines that tell every process its place but not where node 0
// listens.
//
// Threads: one.
// Ownership: node 0 removes the folder when its Meeting goes.
// Errors: kUnavailable names the folder, and how to do without it.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace kintsugi::cli {

class Meeting {
 public:
  // `run`: the same on all hosts of this start, and on no other. Below $KINTSUGI_MEETING_DIR, else
  // ~/.kintsugi/meetings.
  static Result<Meeting> At(const std::string& run);
  Meeting(Meeting&&) noexcept;
  Meeting& operator=(Meeting&& other) noexcept;
  ~Meeting();

  // Node 0: what the others read from now on. A fresh secret; a folder of the same name that somebody left is replaced.
  Status Call(const std::string& rendezvous);
  // Another node: waits until node 0 has called.
  Status Come(Duration patience);

  // After either.
  const std::string& rendezvous() const { return rendezvous_; }
  std::string secret_file() const { return (folder_ / "secret").string(); }

 private:
  explicit Meeting(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
  std::string rendezvous_;
  bool mine_ = false;
};

}  // namespace kintsugi::cli
