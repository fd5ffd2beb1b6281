#include "runtime/process/output_prefixer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

namespace kintsugi {
namespace {

// A pipe that poll calls writable takes this much without blocking.
constexpr size_t kPieceBytes = 4096;
constexpr int kPollMs = 100;
// Foreground colours that are readable on light and on dark ground.
constexpr std::array<const char*, 6> kColors = {"\x1b[36m", "\x1b[33m", "\x1b[35m", "\x1b[32m", "\x1b[34m", "\x1b[31m"};
constexpr const char* kColorOff = "\x1b[0m";

bool WantsColor(OutputPrefixer::Color color, int fd) {
  if (color != OutputPrefixer::Color::kAuto) return color == OutputPrefixer::Color::kAlways;
  const char* const no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* const terminal = std::getenv("TERM");
  if (terminal != nullptr && std::string_view(terminal) == "dumb") return false;
  return ::isatty(fd) == 1;
}

// Two descriptors of others' making: pipes, terminals, files.
class Descriptors final : public QueuedOutput {
 public:
  explicit Descriptors(const OutputPrefixer::Options& options)
      : fds_{options.stdout_fd, options.stderr_fd}, on_dropped_(options.on_dropped) {}

  bool Write(int place, std::string_view text, const std::atomic<bool>& given_up) override {
    if (closed_[place]) return false;
    if (WriteAll(fds_[place], text, given_up)) return true;
    if (!given_up) closed_[place] = true;
    return false;
  }

  Remark OnDropped(uint64_t texts) override {
    return {static_cast<int>(OutputStream::kStderr), on_dropped_ ? on_dropped_(texts) : Words(texts)};
  }

 private:
  static std::string Words(uint64_t texts) {
    return "[kintsugi] " + std::to_string(texts) +
           " lines of output dropped: they came faster than they could be written\n";
  }

  // False when the output is closed or broken, or was given up.
  static bool WriteAll(int fd, std::string_view bytes, const std::atomic<bool>& given_up) {
    while (!bytes.empty()) {
      pollfd ready{fd, POLLOUT, 0};
      const int count = ::poll(&ready, 1, kPollMs);
      if (count < 0 && errno != EINTR) return false;
      if (given_up) return false;
      if (count <= 0) continue;
      const ssize_t size = ::write(fd, bytes.data(), std::min(bytes.size(), kPieceBytes));
      if (size >= 0) {
        bytes.remove_prefix(static_cast<size_t>(size));
      } else if (errno != EAGAIN && errno != EINTR) {
        return false;
      }
    }
    return true;
  }

  const int fds_[2];
  const std::function<std::string(uint64_t)> on_dropped_;
  bool closed_[2] = {false, false};
};

}  // namespace

OutputPrefixer::OutputPrefixer(const Options& options)
    : colored_{WantsColor(options.color, options.stdout_fd), WantsColor(options.color, options.stderr_fd)},
      line_of_(options.line_of),
      queue_(std::make_unique<Descriptors>(options), options.queue_bytes_max) {}

OutputPrefixer::~OutputPrefixer() = default;

std::string OutputPrefixer::Prefixed(std::optional<Rank> rank, OutputStream stream, std::string_view line) const {
  std::string prefix = rank ? "[rank " + rank->ToString() + "]" : "[spare]";
  if (rank && colored_[static_cast<int>(stream)]) {
    const size_t color = static_cast<size_t>(std::max(rank->value(), 0)) % kColors.size();
    prefix = kColors[color] + prefix + kColorOff;
  }
  return prefix.append(" ").append(line).append("\n");
}

void OutputPrefixer::WriteLine(std::optional<Rank> rank, OutputStream stream, std::string_view line) {
  queue_.Put(static_cast<int>(stream), line_of_ ? line_of_(rank, stream, line) : Prefixed(rank, stream, line));
}

void OutputPrefixer::WriteText(OutputStream stream, std::string_view text) {
  queue_.Put(static_cast<int>(stream), std::string(text));
}

bool OutputPrefixer::Flush(std::chrono::milliseconds limit) { return queue_.Flush(limit); }

uint64_t OutputPrefixer::dropped() const { return queue_.dropped(); }

}  // namespace kintsugi
