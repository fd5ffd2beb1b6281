// StackLog: where the threads of a process stood that is about to be killed: the first lines into the log, where they are
// read at once, and all of them into a file of its own, where hundreds hide nothing.
//
// Threads: one, which runs the io_context; the file's disk is not waited for.
// Ownership: of the text until it is written.
// Errors: none: what cannot be written is lost, and the log has the first lines.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/ids.h"
#include "runtime/base/log.h"
#include "runtime/process/write_queue.h"

namespace kintsugi {

class StackLog {
 public:
  // `directory`: where the file is made; empty: none is.
  StackLog(const RankIncarnation& who, const std::string& directory, std::shared_ptr<LogSink> log);

  void Add(std::string_view line);
  // All lines were added.
  void Close();

 private:
  const RankIncarnation who_;
  const std::string path_;  // empty: nothing is written
  const std::shared_ptr<LogSink> log_;
  std::string text_;
  int lines_ = 0;
  std::unique_ptr<WriteQueue> file_;
};

}  // namespace kintsugi
