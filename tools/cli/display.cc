// Logging and live progress on the terminal.
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

constexpr const char* kClearLine = "\r\x1b[K";

// spdlog's lines, into the queue.
class QueueSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit QueueSink(std::shared_ptr<OutputPrefixer> output) : output_(std::move(output)), terminal_(isatty(2) == 1) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    std::string text(formatted.data(), formatted.size());
    if (terminal_ && message.color_range_end > message.color_range_start) {
      text.insert(message.color_range_end, "\x1b[m");
      text.insert(message.color_range_start, ColorOf(message.level));
    }
    output_->WriteText(OutputStream::kStderr, (terminal_ ? kClearLine : "") + text);
  }
  void flush_() override {}

  static const char* ColorOf(spdlog::level::level_enum level) {
    if (level >= spdlog::level::err) return "\x1b[31m\x1b[1m";
    return level == spdlog::level::warn ? "\x1b[33m\x1b[1m" : "\x1b[32m";
  }

  const std::shared_ptr<OutputPrefixer> output_;
  const bool terminal_;
};

class SpdlogSink final : public LogSink {
 public:
  SpdlogSink(spdlog::level::level_enum level, const std::string& who, std::shared_ptr<OutputPrefixer> output)
      : logger_("kintsugi", std::make_shared<QueueSink>(std::move(output))) {
    logger_.set_level(level);
    std::string escaped;  // a percent sign begins a flag
    for (char c : who) escaped += c == '%' ? "%%" : std::string(1, c);
    logger_.set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ " + escaped + " %v");
  }
  void Write(LogLevel level, std::string_view line) override {
    constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                     spdlog::level::err};
    const auto spd_level = kLevels[static_cast<size_t>(level)];
    logger_.log(spd_level, "{}", line);
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::shared_ptr<OutputPrefixer> MakeOutput(int stdout_fd) {
  OutputPrefixer::Options options;
  options.stdout_fd = stdout_fd;
  return std::make_shared<OutputPrefixer>(options);
}

Result<std::shared_ptr<LogSink>> MakeLog(const std::string& level, const std::string& who,
                                         std::shared_ptr<OutputPrefixer> output) {
  if (level == "off") return NullLogSink();
  for (const char* known : {"debug", "info", "warning", "error"})
    if (level == known)
      return std::shared_ptr<LogSink>(
          std::make_shared<SpdlogSink>(spdlog::level::from_str(level), who, std::move(output)));
  return Status(StatusCode::kInvalidArgument, "--log-level '" + level + "': debug, info, warning, error or off");
}

ProgressDisplay::ProgressDisplay(std::shared_ptr<OutputPrefixer> output, uint64_t tokens_per_sample, bool enabled)
    : output_(std::move(output)), tokens_per_sample_(tokens_per_sample), enabled_(enabled), terminal_(isatty(2) == 1) {}

ProgressDisplay::~ProgressDisplay() {
  if (enabled_ && terminal_) output_->WriteText(OutputStream::kStderr, kClearLine);
}

void ProgressDisplay::ClearLine() {
  if (isatty(2) == 1) std::fputs(kClearLine, stderr);
}

void ProgressDisplay::Show(const RunProgress& p) {
  if (!enabled_) return;
  const TimePoint now = SteadyClock::SteadyNow();
  if (!terminal_ && now - last_ < std::chrono::seconds(2)) return;
  last_ = now;
  char line[256];
  const double rate = p.samples_per_second * static_cast<double>(tokens_per_sample_ ? tokens_per_sample_ : 1);
  char loss[32] = "-";
  if (p.loss) std::snprintf(loss, sizeof loss, "%.4f", *p.loss);
  std::snprintf(line, sizeof line, "step %llu  loss %s  %.0f %s/s  ranks %d/%d  incidents %llu%s%.*s",
                static_cast<unsigned long long>(p.step.value()), loss, rate, tokens_per_sample_ ? "tokens" : "samples",
                p.ranks_ready, p.world_size, static_cast<unsigned long long>(p.incidents),
                p.phase == core::Phase::kRunning ? "" : "  ",
                p.phase == core::Phase::kRunning ? 0 : static_cast<int>(core::PhaseName(p.phase).size()),
                core::PhaseName(p.phase).data());
  output_->WriteText(OutputStream::kStderr, terminal_ ? std::string(kClearLine) + line : std::string(line) + "\n");
}

void Complain(const std::string& text) {
  ProgressDisplay::ClearLine();
  std::cerr << "kintsugi: " << text << std::endl;
}

void Complain(OutputPrefixer& output, const std::string& text) {
  output.WriteText(OutputStream::kStderr, "kintsugi: " + text + "\n");
}

namespace {

// A device or a pipe is written to where it is: a file in its place would be there for everybody.
bool IsWrittenInPlace(const std::string& file) {
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::status(file, error);
  return std::filesystem::exists(found) && !std::filesystem::is_regular_file(found);
}

}  // namespace

Status CheckWritable(const std::string& file) {
  if (file == "-") return Status::Ok();
  const Status refused{StatusCode::kUnavailable, "'" + file + "' cannot be written: is the folder there and writable?"};
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) return refused;
  if (IsWrittenInPlace(file)) return access(file.c_str(), W_OK) == 0 ? Status::Ok() : refused;
  const std::string aside = file + ".tmp";
  const bool writable = std::ofstream(aside).good();
  std::filesystem::remove(aside, error);
  return writable ? Status::Ok() : refused;
}

Status WriteText(const std::string& file, const std::string& text) {
  if (file == "-") {
    std::cout << text << std::endl;
    if (!std::cout) return {StatusCode::kUnavailable, "standard output could not be written"};
    return Status::Ok();
  }
  const bool in_place = IsWrittenInPlace(file);
  const std::string aside = in_place ? file : file + ".tmp";
  {
    std::ofstream out(aside, in_place ? std::ios::app : std::ios::trunc);
    out << text << '\n';
    out.close();
    if (!out) {
      std::error_code ignored;
      if (!in_place) std::filesystem::remove(aside, ignored);
      return {StatusCode::kUnavailable,
              "'" + file + "' could not be written: is the folder there, writable and not full?"};
    }
  }
  if (in_place) return Status::Ok();
  std::error_code error;
  std::filesystem::rename(aside, file, error);
  if (error) return {StatusCode::kUnavailable, "'" + file + "' could not be replaced: " + error.message()};
  return Status::Ok();
}

}  // namespace kintsugi::cli
