// OwnerFile: ROOT/owner.json, which says whose a directory of checkpoints is.
//
// Threads: any, one at a time. Every call may block as long as the disk does.
// Errors: with the path and what the system said.
#pragma once

#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace kintsugi {

class OwnerFile {
 public:
  static constexpr const char* kName = "owner.json";
  // Touched every so often by its owner; free when it was not for so long.
  static constexpr Duration kTouchEvery = std::chrono::seconds(5);
  static constexpr Duration kFreeAfter = std::chrono::seconds(30);

  // `pid`: the process that stands in it, which lives as long as the run does.
  OwnerFile(std::string root, std::string owner, int pid);

  enum class Claim { kMine, kAnothers, kPerhaps };
  struct Answer {
    Claim claim = Claim::kMine;
    std::string whose;    // kAnothers, kPerhaps: the run, its host and process
    int64_t touched = 0;  // kPerhaps: it may be gone; the file's time, which changes when it is not
  };
  // Makes the root and takes it where it is nobody's.
  Result<Answer> TryTake();
  // Still ours; else whose.
  Result<Answer> Touch();
  // What runs before this one left unfinished (replica/save/names.h). REQUIRES: it was just taken.
  void ClearAway();
  // Also removes the root where we made it and it is empty.
  void GiveBack();

 private:
  // Errors: kNotFound where the root went away meanwhile.
  Result<Answer> TakeOnce();
  Status Write();
  std::string ToText() const;

  const std::string root_, owner_, path_;
  const int pid_;
  bool made_root_ = false;
};

}  // namespace kintsugi
