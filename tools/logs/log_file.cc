#include "tools/logs/log_file.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/rotating_file_sink.h>

#include <exception>
#include <optional>
#include <utility>

#include "runtime/base/clock.h"

namespace kintsugi::logs {
namespace {

constexpr Duration kOpenAgainAfter = std::chrono::seconds(1);

// The file, on the queue's thread. spdlog throws where something cannot be written, and its sink is of no use then.
class RotatingFile final : public QueuedOutput {
 public:
  explicit RotatingFile(LogFileOptions options) : options_(std::move(options)) {}

  // Why it could not be opened; empty: it is.
  std::string Open() {
    try {
      sink_ = std::make_unique<spdlog::sinks::rotating_file_sink_st>(options_.file, options_.bytes_max, options_.kept);
      sink_->set_formatter(
          std::make_unique<spdlog::pattern_formatter>("%v", spdlog::pattern_time_type::local, std::string()));
      return "";
    } catch (const std::exception& error) {
      sink_.reset();
      return error.what();
    }
  }

  bool Write(int, std::string_view text, const std::atomic<bool>&) override {
    std::string why = Append(text);
    if (why.empty()) {
      if (lost_ > 0) options_.on_trouble("", std::exchange(lost_, 0));
      trouble_.clear();
      return true;
    }
    ++lost_;
    if (why != trouble_) options_.on_trouble(why, lost_);
    trouble_ = std::move(why);
    return false;
  }

  Remark OnDropped(uint64_t texts) override {
    lost_ += texts;
    return {};
  }

 private:
  std::string Append(std::string_view text) {
    const TimePoint now = SteadyClock::SteadyNow();
    if (!sink_ && not_before_ && now < *not_before_) return trouble_;
    if (!sink_) {
      not_before_ = now + kOpenAgainAfter;
      if (std::string why = Open(); !why.empty()) return why;
    }
    try {
      sink_->log(spdlog::details::log_msg({}, spdlog::level::info, {text.data(), text.size()}));
      sink_->flush();
      return "";
    } catch (const std::exception& error) {
      sink_.reset();
      not_before_ = now + kOpenAgainAfter;
      return error.what();
    }
  }

  const LogFileOptions options_;
  std::unique_ptr<spdlog::sinks::rotating_file_sink_st> sink_;  // null: it could not be opened, or written
  std::optional<TimePoint> not_before_;
  std::string trouble_;  // an unchanged reason is not repeated
  uint64_t lost_ = 0;    // lines, since it could be written last
};

}  // namespace

Result<std::unique_ptr<LogFile>> LogFile::Open(LogFileOptions options) {
  const size_t queue_bytes_max = options.queue_bytes_max;
  const std::string file = options.file;
  auto output = std::make_unique<RotatingFile>(std::move(options));
  if (const std::string why = output->Open(); !why.empty())
    return Status(StatusCode::kUnavailable,
                  "'" + file + "' cannot be written: " + why + "; name a file in a folder that this user may write to");
  return std::unique_ptr<LogFile>(new LogFile(std::move(output), queue_bytes_max));
}

}  // namespace kintsugi::logs
