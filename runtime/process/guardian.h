// Guardian: a tiny helper process that outlives its launcher by a moment and leaves nothing of its workers behind.
//
// Why it is needed: the kernel kills a worker when its launcher dies (PR_SET_PDEATHSIG), but not the worker's own
// children. The helper, "kintsugi-guard" in ps, holds one end of a socket; when the other end closes without a word,
// the launcher is gone, and it kills every process group that was registered and not released, then whatever carries
// the run's mark in its environment, and ends. When the launcher ends in order the Guardian object does the same
// (normally there is nothing left to kill) and ends its helper.
//
// Threads: one owner; Start may be called while other threads run, but is cheapest early (the helper is a fork).
// Ownership: the destructor kills what is still watched or marked, and ends and reaps the helper.
// Errors: kUnavailable when the helper cannot be reached or started again; a helper that was killed is replaced at the
//   next Watch or Mend and learns all groups anew.
// Invariants: the helper is in a session of its own, ignores all signals that can be ignored, and holds no descriptor
//   and no directory of the launcher's.
// Limits: kMaxGroups groups at a time. SIGKILL to launcher and helper at the same instant leaves only PR_SET_PDEATHSIG.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <set>
#include <string>

#include "runtime/base/export.h"
#include "runtime/base/result.h"
#include "runtime/base/unique_fd.h"

namespace kintsugi {

class KINTSUGI_EXPORT Guardian {
 public:
  static constexpr size_t kMaxGroups = 4096;

  // `environment_mark`: "NAME=VALUE" that all workers of the run have in their environment and nobody else has; empty:
  // only process groups are killed.
  static Result<std::unique_ptr<Guardian>> Start(std::string environment_mark = {});
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // From here on the group is killed if this process dies.
  Status Watch(pid_t process_group);

  // The group has ended or is about to be reaped: its number may soon belong to others.
  void Release(pid_t process_group);

  // Replaces a helper that has ended, and tells the new one everything. True: it had. kUnavailable: it has, and no
  // other can be started now; asking again may help.
  Result<bool> Mend();

  // The helper's pid, for messages and tests.
  pid_t pid() const { return pid_; }

 private:
  explicit Guardian(std::string environment_mark) : environment_mark_(std::move(environment_mark)) {}
  Status StartHelper();
  bool Tell(char order, pid_t process_group);
  Status Replace();
  void EndHelper();

  const std::string environment_mark_;
  UniqueFd socket_;
  pid_t pid_ = -1;
  std::set<pid_t> groups_;
};

}  // namespace kintsugi
