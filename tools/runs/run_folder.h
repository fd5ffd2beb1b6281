// RunFolder: where a live run has its control socket and its journal. Ours where the user names none; where he does, ours
// holds no more than a word of where that is, so that `kintsugi list` (run_list.h) finds every run of this user.
//
// A folder of ours has a name that nobody else has and a lock that is held as long as its run lives: process numbers
// say nothing, since runs in several pid namespaces may share /tmp. What is removed is what this object made, and, of
// others, what carries a lock that nobody holds.
// Threads: one.
// Ownership: the destructor removes the folder unless it was left (Leave).
// Errors: Make: kPermissionDenied where the base is not this user's alone; kUnavailable where nothing can be made.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi::runs {

// In a folder of ours, beside the lock: who it is of, as JSON.
inline constexpr const char* kDescriptionName = "run.json";
inline constexpr const char* kLockName = "lock";
inline constexpr const char* kFolderPrefix = "run-";

// Where folders of ours are: below $XDG_RUNTIME_DIR, else /tmp.
std::string RunBase();
// There, and where they are under another environment (a login session's, a cron job's).
std::vector<std::string> RunBases();
// Whether the base is there, and this user's alone.
bool IsOwn(const std::string& base);

// A file of ours: a pipe, a device or a link that somebody put in its place is not opened, and nobody waits at it.
UniqueFd OpenFile(const std::string& path, int flags);
// What stands in one, "" where it is none, or longer than a word of a run can be.
std::string ReadFile(const std::string& path);
// Takes away the folder of a run that is over. kFailedPrecondition: its run lives, or it is none of ours.
Status RemoveRun(const std::string& folder);

class RunFolder {
 public:
  // In $XDG_RUNTIME_DIR, else in /tmp. Folders of runs that are gone are removed first, but for the newest journals.
  static Result<RunFolder> Make();
  // The user's: nothing of it is ever removed here. That it cannot be listed is no reason not to run.
  static RunFolder At(std::string path);
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&& other) noexcept;

  const std::string& path() const { return path_; }
  // Says whose it is, one JSON object; for the list alone, so that no failure is told.
  void Describe(const std::string& json) const;
  // The run is over. A folder of ours goes, but for a journal in it that is worth keeping.
  void Leave(const std::string& journal, bool worth_keeping);

 private:
  RunFolder() = default;
  std::string path_;
  std::string ours_;  // path_, or what says where it is; empty: there is none
  UniqueFd lock_;     // of a folder of ours, as long as it is there
};

}  // namespace kintsugi::runs
