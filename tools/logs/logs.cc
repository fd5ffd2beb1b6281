#include "tools/logs/logs.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/mutex.h"
#include "tools/logs/line_fold.h"
#include "tools/logs/log_form.h"

namespace kintsugi::logs {
namespace {

using Clock = std::chrono::system_clock;  // of what is shown

constexpr const char* kClearLine = "\r\x1b[K";

// One line to standard error, clear of the progress line, and into the file.
class Sink final : public LogSink {
 public:
  Sink(bool json, std::string who, std::shared_ptr<OutputPrefixer> output)
      : json_(json), who_(std::move(who)), terminal_(isatty(2) == 1), output_(std::move(output)) {}

  std::optional<LogLevel> to_terminal = LogLevel::kInfo, to_file;  // from this level on; none: nothing
  std::shared_ptr<LogFile> file;

  bool Takes(LogLevel level) const {
    return (to_terminal && level >= *to_terminal) || (file && to_file && level >= *to_file);
  }
  void Write(LogLevel level, std::string_view line) override {
    const bool shown = to_terminal && level >= *to_terminal, kept = file && to_file && level >= *to_file;
    if (!shown && !kept) return;
    const Clock::time_point now = Clock::now();
    const std::string plain = json_ ? JsonLine(now, level, who_, line) : TextLine(now, level, who_, line);
    if (kept) file->Write(plain);
    if (!shown) return;
    const bool colored = terminal_ && !json_;
    output_->WriteText(OutputStream::kStderr,
                       terminal_ ? kClearLine + (colored ? TextLine(now, level, who_, line, true) : plain) : plain);
  }

 private:
  const bool json_;
  const std::string who_;
  const bool terminal_;
  const std::shared_ptr<OutputPrefixer> output_;
};

// Writes identical lines of a second as one (line_fold.h); its thread tells the count when the second is over.
class FoldingSink final : public LogSink {
 public:
  explicit FoldingSink(std::shared_ptr<Sink> to) : to_(std::move(to)), thread_([this] { TellCounts(); }) {}
  ~FoldingSink() override {
    {
      MutexLock lock(mutex_);
      over_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
    Unfold();
  }

  void Write(LogLevel level, std::string_view line) override {
    if (!to_->Takes(level)) return;
    MutexLock lock(mutex_);
    const TimePoint now = SteadyClock::SteadyNow();
    WriteAll(fold_.TakeDue(now));
    if (fold_.Passes(level, line, now))
      to_->Write(level, line);
    else
      changed_.NotifyAll();
  }
  // What is held back is told now.
  void Unfold() {
    MutexLock lock(mutex_);
    WriteAll(fold_.TakeDue(SteadyClock::SteadyNow() + LineFold::kWithin));
  }

 private:
  void WriteAll(const std::vector<LineFold::Line>& lines) {
    for (const auto& [level, line] : lines) to_->Write(level, line);
  }
  void TellCounts() {
    MutexLock lock(mutex_);
    while (!over_) {
      const std::optional<TimePoint> next = fold_.next();
      if (!next) {
        changed_.Wait(lock);
        continue;
      }
      const Duration left = *next - SteadyClock::SteadyNow();
      changed_.WaitFor(lock, left, [this] { return over_; });
      WriteAll(fold_.TakeDue(SteadyClock::SteadyNow()));
    }
  }

  const std::shared_ptr<Sink> to_;
  Mutex mutex_;
  CondVar changed_;
  LineFold fold_;
  bool over_ = false;
  std::thread thread_;
};

Result<std::optional<LogLevel>> ParseLevel(const std::string& name) {
  if (name == "off") return std::optional<LogLevel>();
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError})
    if (name == LevelName(level)) return std::optional<LogLevel>(level);
  return Status(StatusCode::kInvalidArgument, "--log-level '" + name + "': debug, info, warning, error or off");
}

// As LogLine writes a value.
std::string Field(std::string_view name, const std::string& value) {
  return LogLine("", {{name, value}}).substr(std::string_view("event= ").size());
}

}  // namespace

std::string FileOfNode(const std::string& file, const std::string& node) {
  const std::filesystem::path path(file);
  return (path.parent_path() / (path.stem().string() + "-node" + node + path.extension().string())).string();
}

Result<std::shared_ptr<Logs>> Logs::Open(const LogOptions& options, const LogContext& context) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::optional<LogLevel> level, ParseLevel(options.level));
  if (options.format != "text" && options.format != "json")
    return Status(StatusCode::kInvalidArgument, "--log-format '" + options.format + "': text or json");
  std::shared_ptr<Logs> logs(new Logs);
  logs->json_ = options.format == "json";
  logs->who_ = Field("node", context.node) + (context.job.empty() ? "" : " " + Field("job", context.job));
  OutputPrefixer::Options output;
  output.stdout_fd = context.stdout_fd;
  if (logs->json_) {
    output.line_of = [who = logs->who_](std::optional<Rank> rank, OutputStream stream, std::string_view line) {
      return JsonOutputLine(Clock::now(), who, rank, stream, line);
    };
    output.on_dropped = [who = logs->who_](uint64_t lines) {
      return JsonLine(Clock::now(), LogLevel::kWarning, who,
                      LogLine("output_dropped", {{"lines", std::to_string(lines)}}));
    };
  }
  logs->output_ = std::make_shared<OutputPrefixer>(output);
  const auto sink = std::make_shared<Sink>(logs->json_, logs->who_, logs->output_);
  sink->to_terminal = context.quiet && level ? std::optional(LogLevel::kError) : level;
  if (!options.file.empty()) {
    LogFileOptions file;
    file.file = context.several_nodes ? FileOfNode(options.file, context.node) : options.file;
    file.bytes_max = options.file_mib << 20;
    file.kept = static_cast<size_t>(options.files);
    // To standard error alone: the file is what is in trouble.
    file.on_trouble = [only_shown = std::make_shared<Sink>(*sink), name = file.file](const std::string& why,
                                                                                     uint64_t lost) {
      only_shown->Write(LogLevel::kWarning,
                        why.empty()
                            ? LogLine("log_file_goes_on", {{"file", name}, {"lines_lost", std::to_string(lost)}})
                            : LogLine("log_file_lost", {{"file", name}, {"why", why}}));
    };
    Result<std::unique_ptr<LogFile>> opened = LogFile::Open(std::move(file));
    if (!opened.ok()) return opened.status().Annotate("--log-file");
    logs->file_ = std::move(*opened);
    sink->file = logs->file_;
    sink->to_file = level;
  }
  const auto folding = std::make_shared<FoldingSink>(sink);
  logs->sink_ = folding;
  logs->unfold_ = [weak = std::weak_ptr(folding)] {
    if (const auto held = weak.lock()) held->Unfold();
  };
  return logs;
}

void Logs::Say(const std::string& text) {
  output_->WriteText(OutputStream::kStderr,
                     json_ ? JsonLine(Clock::now(), LogLevel::kError, who_, LogLine("said", {{"text", text}}))
                           : "kintsugi: " + text + "\n");
}

void Logs::ShowProgress(const std::string& line) {
  const bool terminal = isatty(2) == 1;
  if (json_)
    output_->WriteText(OutputStream::kStderr,
                       JsonLine(Clock::now(), LogLevel::kInfo, who_, LogLine("progress", {{"text", line}})));
  else
    output_->WriteText(OutputStream::kStderr, terminal ? kClearLine + line : line + "\n");
}

bool Logs::Flush() {
  unfold_();
  const bool shown = output_->Flush(OutputPrefixer::kFlushLimit);
  return (!file_ || file_->Flush(WriteQueue::kFlushLimit)) && shown;
}

}  // namespace kintsugi::logs
