// RankFiles: what each rank prints, in a file of its own below one folder: rank-2.log, and spares-node-0.log of processes
// that have no rank yet. Standard output and error in one file, line after line as they came; what is there is appended
// to. A line of our own marks where a process began and how it ended:
//
//   --- kintsugi: rank 2, life 2, process 4711 began at 2026-11-23T05:01:02+00:00 (job J)
//
// Threads: all functions from any thread; files are written by a WriteQueue's thread, so that a disk that does not answer
//   holds up nobody. Beyond the queue's bound the oldest lines are dropped and counted.
// Errors: Open: kUnavailable with the place and the reason. Later ones (a full disk, a folder that is gone) lose lines
//   and are said in the log once, and once when it goes on: each file is tried again.
// Units: bytes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/export.h"
#include "runtime/base/ids.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/result.h"
#include "runtime/process/write_queue.h"

namespace kintsugi {

class KINTSUGI_EXPORT RankFiles {
 public:
  struct Options {
    std::string directory;
    std::string job;   // as the marks name it
    std::string node;  // of the file of spares
    size_t queue_bytes_max = 16 * 1024 * 1024;
  };

  // Makes the folder where it is missing, and tries out that it can be written: one block, through to the disk.
  static Result<std::shared_ptr<RankFiles>> Open(Options options, std::shared_ptr<LogSink> log);
  ~RankFiles();

  void OnBegan(Rank rank, Incarnation life, pid_t process);
  // Its end, which is marked below its last lines: those may still be in its pipes.
  void OnEnded(Rank rank, Incarnation life, std::string_view cause);
  void OnOutputEnd(Rank rank);
  // One line without its newline.
  void OnLine(Rank rank, std::string_view line);
  void OnSpareLine(std::string_view line);

  bool Flush(std::chrono::milliseconds limit) { return queue_.Flush(limit); }
  // Lines that were dropped or could not be written.
  uint64_t lost() const { return queue_.dropped(); }

 private:
  class Folder;
  RankFiles(const Options& options, std::unique_ptr<Folder> folder);
  void Mark(Rank rank, const std::string& text);

  const std::string job_;
  Mutex mutex_;
  std::map<Rank, std::string> ends_ KINTSUGI_GUARDED_BY(mutex_);  // marks that wait for the last lines
  WriteQueue queue_;
};

}  // namespace kintsugi
