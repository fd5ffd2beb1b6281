#include "runtime/journal/recorder.h"

#include <utility>

namespace kintsugi::journal {
namespace {

constexpr size_t kGatheredMax = 4096;
// What a controller that is killed may leave unwritten.
constexpr Duration kFlushEvery = std::chrono::milliseconds(250);
// The last record must fit too.
constexpr uint64_t kReserveBytes = 64;

}  // namespace

TimePoint Recorder::Now() {
  return TimePoint(std::chrono::duration_cast<std::chrono::microseconds>(SteadyClock::SteadyNow().since_epoch()));
}

Result<std::unique_ptr<Recorder>> Recorder::Open(const RecorderOptions& options, const core::Policy& policy, Term term,
                                                 std::shared_ptr<LogSink> log) {
  std::unique_ptr<Recorder> recorder(new Recorder(options, log));
  const auto failed = [log](const Status& why) {
    log->Write(LogLevel::kWarning,
               LogLine("journal_stopped", {{"why", why.message()}, {"hint", "the run goes on unrecorded"}}));
  };
  KINTSUGI_ASSIGN_OR_RETURN(recorder->writer_, FileWriter::Open(options.path, options.waiting_bytes_max, failed));
  recorder->pending_ = kMagic;
  recorder->Append(recorder->encoder_.Begin({kVersion, Build(), policy, term}));
  recorder->Flush();
  return recorder;
}

Recorder::~Recorder() {
  if (!recording_ || !writer_) return;  // never opened: nothing to end
  Append(encoder_.TakeQuiet());
  Append(encoder_.End(EndReason::kEnded));
  Flush(true);
}

void Recorder::Started(TimePoint now, const std::vector<core::ControllerAction>& actions) {
  Put({now, Start{}}, actions);
}

void Recorder::Stepped(const core::ControllerEvent& event, TimePoint now,
                       const std::vector<core::ControllerAction>& actions) {
  if (recording_) Put({now, event}, actions);
}

void Recorder::Threw(const core::ControllerEvent& event, TimePoint now) {
  Put({.now = now, .what = event, .threw = true}, {});
  Flush();
}

void Recorder::SetInjections(Rank rank, const std::vector<std::string>& injections) {
  Put({last_, ArmedInjections{rank, injections}}, {});
}

void Recorder::Put(Input input, const std::vector<core::ControllerAction>& actions) {
  if (!recording_) return;
  digest_.Add(actions);
  input.actions = static_cast<uint32_t>(actions.size());
  input.digest = digest_.value();
  last_ = input.now;
  if (encoder_.Gather(input)) {
    if (encoder_.gathered() < kGatheredMax && input.now - flushed_ < kFlushEvery) return;
    Append(encoder_.TakeQuiet());
  } else {
    Append(encoder_.TakeQuiet());
    Append(encoder_.Encode(input));
  }
  flushed_ = input.now;
  Flush();
}

void Recorder::Append(std::string_view payload) {
  if (!recording_ || payload.empty()) return;
  if (payload.size() > kPayloadBytesMax ||
      bytes_ + kMagic.size() + kFrameHeaderBytes + payload.size() + kReserveBytes > options_.bytes_max)
    return Stop(EndReason::kFull, "it has reached its limit of " + std::to_string(options_.bytes_max) + " bytes");
  bytes_ += kFrameHeaderBytes + payload.size();
  frames_.Append(payload, &pending_);
}

void Recorder::Flush(bool whatever) {
  if (!recording_ || pending_.empty()) return;
  // The frames stay where they were refused: what is in the file has no gap.
  if (writer_->Write(std::move(pending_), whatever)) return pending_.clear();
  if (!whatever) Stop(EndReason::kTooSlow, "the disk does not keep up");
}

void Recorder::Stop(EndReason why, const std::string& text) {
  recording_ = false;
  frames_.Append(encoder_.End(why), &pending_);
  // Where writing has failed, the reason was said then.
  if (!writer_->Write(std::exchange(pending_, {}), true)) return;
  log_->Write(
      LogLevel::kWarning,
      LogLine("journal_stopped", {{"file", options_.path}, {"why", text}, {"hint", "the run goes on unrecorded"}}));
}

}  // namespace kintsugi::journal
