// Recorder: what a controller's driver tells of everything that goes into its core, so that the run can be replayed.
//
// Threads: one, the driver's; the bytes are written by another (FileWriter). A beat or tick is counted, any other input
// encoded; neither makes a system call.
// Errors: Open's are returned. Later ones end the recording with one warning and nothing else: a full disk, a disk that
// is too slow, the limit of the file's size. The run never notices.
// Invariants: what is in the file is everything up to some input, without a gap.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/journal/digest.h"
#include "runtime/journal/encoder.h"
#include "runtime/journal/file_writer.h"
#include "runtime/journal/frame.h"
#include "runtime/journal/options.h"

namespace kintsugi::journal {

class Recorder {
 public:
  static Result<std::unique_ptr<Recorder>> Open(const RecorderOptions& options, const core::Policy& policy, Term term,
                                                std::shared_ptr<LogSink> log);
  ~Recorder();

  // The clock that the core is to be given: whole microseconds, as the journal has them.
  static TimePoint Now();

  // After the core took the input, with what came out.
  void Started(TimePoint now, const std::vector<core::ControllerAction>& actions);
  void Stepped(const core::ControllerEvent& event, TimePoint now, const std::vector<core::ControllerAction>& actions);
  // A check of the core failed in this event.
  void Threw(const core::ControllerEvent& event, TimePoint now);
  void SetInjections(Rank rank, const std::vector<std::string>& injections);

  bool recording() const { return recording_; }

 private:
  Recorder(const RecorderOptions& options, std::shared_ptr<LogSink> log) : options_(options), log_(std::move(log)) {}
  void Put(Input input, const std::vector<core::ControllerAction>& actions);
  void Append(std::string_view payload);
  void Flush(bool whatever = false);
  void Stop(EndReason why, const std::string& text);

  const RecorderOptions options_;
  std::shared_ptr<LogSink> log_;
  Encoder encoder_;
  FrameWriter frames_;
  ActionDigest digest_;
  std::string pending_;  // frames that the writer does not have yet
  uint64_t bytes_ = 0;   // all frames so far
  TimePoint last_;
  TimePoint flushed_;
  bool recording_ = true;
  std::unique_ptr<FileWriter> writer_;
};

}  // namespace kintsugi::journal
