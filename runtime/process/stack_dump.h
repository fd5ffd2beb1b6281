// StackDump: what the threads of another process are doing, as lines of text: eu-stack of elfutils, where it is
// installed.
//
// Why a program: to look into a process that does not answer somebody must stop and read it, which takes as long as its
// symbols take to load; a library would hold up the caller's only thread for that.
// Threads: everything, the callbacks included, runs on the one thread that runs the io_context.
// Ownership: the destructor ends the dump and drops the callbacks. The io_context must outlive the object.
// Errors: Start: kNotFound where eu-stack is not installed, else as ChildProcess::Spawn.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/export.h"
#include "runtime/base/result.h"

namespace boost::asio {
class io_context;
}

namespace kintsugi {

// Of the names of files that hold such lines.
inline constexpr std::string_view kStacksFilePrefix = "stacks-";

class KINTSUGI_EXPORT StackDump {
 public:
  // `on_line` for each of the first lines, then `on_done` once: at the end, or after `limit`.
  static Result<std::unique_ptr<StackDump>> Start(boost::asio::io_context& io, pid_t pid, Duration limit,
                                                  std::function<void(std::string_view)> on_line,
                                                  std::function<void()> on_done);
  ~StackDump();
  pid_t pid() const;  // of the program that looks

 private:
  class Impl;
  explicit StackDump(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace kintsugi
