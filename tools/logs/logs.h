// Logs: all that a launcher prints and logs, behind one object: lines of the log to standard error and into a file, what
// the ranks print, the progress line, last words. Each waits in a bounded queue with a thread of its own, so that no
// reader and no disk holds up the run.
//
// Threads: any.
// Ownership: shared by those who write.
// Errors: Open: kInvalidArgument for an option, kUnavailable for a file that cannot be written.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/process/output_prefixer.h"
#include "tools/logs/log_file.h"

namespace kintsugi::logs {

struct LogOptions {
  std::string level = "info";   // debug, info, warning, error or off
  std::string format = "text";  // or json
  std::string file;             // empty: none
  uint64_t file_mib = 64;       // when it is rotated
  int files = 5;                // older ones that are kept
};

// Whose lines these are, and where else they go.
struct LogContext {
  std::string node, job;
  bool several_nodes = false;  // the file's name then holds the node's: run.log is run-node1.log
  bool quiet = false;          // nothing but errors to standard error; the file has all
  int stdout_fd = 1;           // where the ranks' standard output goes
};

class Logs {
 public:
  static Result<std::shared_ptr<Logs>> Open(const LogOptions& options, const LogContext& context);

  // Each line begins with its time, its level, and the node and job that it is of; those that are alike within one second
  // are one with `repeated=N`. Lives as long as somebody holds it.
  std::shared_ptr<LogSink> sink() const { return sink_; }
  const std::shared_ptr<OutputPrefixer>& output() const { return output_; }
  bool json() const { return json_; }

  // Last words, to standard error: "kintsugi: TEXT", or an event "said" in JSON.
  void Say(const std::string& text);
  // The state of the run, not kept in any file: one line that is written over at a terminal.
  void ShowProgress(const std::string& line);
  bool Flush();

 private:
  Logs() = default;

  bool json_ = false;
  std::string who_;
  std::shared_ptr<OutputPrefixer> output_;
  std::shared_ptr<LogFile> file_;  // null: none
  std::shared_ptr<LogSink> sink_;
  std::function<void()> unfold_;
};

// "run.log" of node 1 is "run-node1.log".
std::string FileOfNode(const std::string& file, const std::string& node);

}  // namespace kintsugi::logs
