// SaveLease: who saves into a directory. One run at a time: two would remove each other's unfinished checkpoints and
// move `latest` to and fro.
//
// The owner's name stands in ROOT/owner.json (owner_file.h), which is touched every few seconds. A helper process
// ("kintsugi-owner" in ps) does all that touches the disk: a disk that does not answer holds up neither the run nor the
// end of its launcher, which a thread that hangs in the kernel would.
// Threads: one owner; one of its own, which waits for what the helper has to say.
// Errors: Take: kFailedPrecondition names the run that has the directory; kUnavailable: it cannot be made or written,
// or did not answer within kTakeLimit.
// Ownership: the destructor gives the directory back, for at most a second, and ends the helper.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "runtime/base/log.h"
#include "runtime/base/result.h"

namespace kintsugi {

class SaveLease {
 public:
  // `owner`: the run, the same for every leader that it has.
  static Result<std::unique_ptr<SaveLease>> Take(const std::string& root, const std::string& owner,
                                                 std::shared_ptr<LogSink> log);
  // When a leader takes over: the lease of its predecessor, without waiting; a directory that another run has meanwhile
  // is a line in the log.
  static Result<std::unique_ptr<SaveLease>> GoOn(const std::string& root, const std::string& owner,
                                                 std::shared_ptr<LogSink> log);
  ~SaveLease();
  SaveLease(const SaveLease&) = delete;
  SaveLease& operator=(const SaveLease&) = delete;

  // Another leader of the same run has it from now on.
  void HandOver() { gives_back_ = false; }

 private:
  class Helper;
  explicit SaveLease(std::unique_ptr<Helper> helper);
  static Result<std::unique_ptr<SaveLease>> Start(const std::string& root, const std::string& owner, bool takes,
                                                  std::shared_ptr<LogSink> log);

  std::unique_ptr<Helper> helper_;
  bool gives_back_ = true;
};

}  // namespace kintsugi
