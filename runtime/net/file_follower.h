// FileFollower: looks at files again and again, and has somebody take what is new in them.
//
// Why a thread: the disk that a file is on may not answer, and no event loop is to wait for it.
// Threads: one of its own, which calls `take`; it blocks all signals.
// Ownership: the destructor waits for the thread for at most kEndLimit; one that hangs in a disk is left behind, and calls
// `take` no more.
// Errors: none; a file that is not there is one more thing that a file can be.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace kintsugi::net {

// What tells one content of a file from the next: which file it is, how long, and when it was written.
using FileMark = std::tuple<uint64_t, uint64_t, int64_t, int64_t>;
std::vector<FileMark> MarksOf(const std::vector<std::string>& files);

class FileFollower {
 public:
  static constexpr std::chrono::seconds kLookEvery{1};
  static constexpr std::chrono::milliseconds kEndLimit{500};

  // `known`: the marks of what is in use already. `take` gives whether it took what is there now; where it did not, it
  // is asked again with the next look.
  FileFollower(std::vector<std::string> files, std::vector<FileMark> known, std::function<bool()> take);
  ~FileFollower();
  FileFollower(const FileFollower&) = delete;
  FileFollower& operator=(const FileFollower&) = delete;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace kintsugi::net
