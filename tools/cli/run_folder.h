// RunFolder: where a live run has its control socket and its journal. Ours where the user names none.
//
// A folder of ours has a name that nobody else has and a lock that is held as long as its run lives: process numbers
// say nothing, since runs in several pid namespaces may share /tmp. What is removed is what this object made, and, of
// others, what carries a lock that nobody holds.
// Threads: one.
// Ownership: the destructor removes the folder unless it was left (Leave).
// Errors: Make: kPermissionDenied where the base is not this user's alone; kUnavailable where nothing can be made.
#pragma once

#include <string>

#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi::cli {

class RunFolder {
 public:
  // In $XDG_RUNTIME_DIR, else in /tmp. Folders of runs that are gone are removed first, but for the newest journals.
  static Result<RunFolder> Make();
  // The user's: nothing of it is ever removed here.
  static RunFolder At(std::string path);
  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&& other) noexcept;

  const std::string& path() const { return path_; }
  // The run is over. A folder of ours goes, but for a journal in it that is worth keeping.
  void Leave(const std::string& journal, bool worth_keeping);

 private:
  RunFolder() = default;
  std::string path_;
  UniqueFd lock_;  // of a folder of ours, as long as it is there
};

}  // namespace kintsugi::cli
