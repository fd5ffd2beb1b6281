#include "runtime/process/output_prefixer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <mutex>
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

}  // namespace

// The queue and the thread that empties it.
class OutputPrefixer::Writer {
 public:
  explicit Writer(const Options& options)
      : fds_{options.stdout_fd, options.stderr_fd}, queue_bytes_max_(options.queue_bytes_max) {}

  void Put(OutputStream stream, std::string text) {
    const std::lock_guard lock(mutex_);
    queued_bytes_ += text.size();
    queue_.push_back({stream, std::move(text)});
    // The newest item stays whatever its size: a queue that can hold nothing would print nothing.
    while (queued_bytes_ > queue_bytes_max_ && queue_.size() > 1) {
      queued_bytes_ -= queue_.front().text.size();
      queue_.pop_front();
      ++dropped_;
      ++untold_;
    }
    changed_.notify_all();
  }

  bool Flush(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return queue_.empty() && !writing_; });
  }

  uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

  // Nothing more will come. False when the thread did not end within `limit` and hangs in a write.
  bool Stop(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    if (changed_.wait_for(lock, limit, [this] { return ended_; })) return true;
    given_up_ = true;
    return changed_.wait_for(lock, std::chrono::milliseconds(3 * kPollMs), [this] { return ended_; });
  }

  // The thread's main function.
  void Run() {
    // A closed pipe must not raise SIGPIPE; blocked here it stays with this thread and dies with it.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock(mutex_);
    while (TakeNext(lock)) {
      const Item item = std::move(current_);
      const int index = static_cast<int>(item.stream);
      const bool skip = closed_[index] || given_up_;
      lock.unlock();
      const bool written = !skip && WriteAll(fds_[index], item.text);
      lock.lock();
      writing_ = false;
      if (!written) ++dropped_;
      if (!written && !given_up_) closed_[index] = true;
      changed_.notify_all();
    }
    ended_ = true;
    changed_.notify_all();
  }

 private:
  struct Item {
    OutputStream stream;
    std::string text;
  };

  bool TakeNext(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [this] { return !queue_.empty() || stopping_; });
    if (queue_.empty()) return false;
    if (untold_ > 0) {
      current_ = {OutputStream::kStderr, "[kintsugi] " + std::to_string(std::exchange(untold_, 0)) +
                                             " lines of output dropped: they came faster than they could be written\n"};
    } else {
      current_ = std::move(queue_.front());
      queued_bytes_ -= current_.text.size();
      queue_.pop_front();
    }
    writing_ = true;
    return true;
  }

  bool GivenUp() {
    const std::lock_guard lock(mutex_);
    return given_up_;
  }

  // False when the output is closed or broken, or when Stop gave up.
  bool WriteAll(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      pollfd ready{fd, POLLOUT, 0};
      const int count = ::poll(&ready, 1, kPollMs);
      if (count < 0 && errno != EINTR) return false;
      if (GivenUp()) return false;
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
  const size_t queue_bytes_max_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Item> queue_;
  Item current_{};
  size_t queued_bytes_ = 0;
  uint64_t dropped_ = 0;
  uint64_t untold_ = 0;
  bool closed_[2] = {false, false};
  bool writing_ = false;
  bool stopping_ = false;
  bool given_up_ = false;
  bool ended_ = false;
};

OutputPrefixer::OutputPrefixer(const Options& options)
    : colored_{WantsColor(options.color, options.stdout_fd), WantsColor(options.color, options.stderr_fd)},
      writer_(std::make_shared<Writer>(options)),
      thread_([writer = writer_] { writer->Run(); }) {}

OutputPrefixer::~OutputPrefixer() {
  // A thread that an output blocks for good must not block the end of the run.
  if (writer_->Stop(kFlushLimit)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void OutputPrefixer::WriteLine(Rank rank, OutputStream stream, std::string_view line) {
  const std::string prefix = "[rank " + rank.ToString() + "]";
  std::string text;
  if (colored_[static_cast<int>(stream)]) {
    const size_t color = static_cast<size_t>(std::max(rank.value(), 0)) % kColors.size();
    text = kColors[color] + prefix + kColorOff;
  } else {
    text = prefix;
  }
  text += ' ';
  text += line;
  text += '\n';
  writer_->Put(stream, std::move(text));
}

void OutputPrefixer::WriteText(OutputStream stream, std::string_view text) { writer_->Put(stream, std::string(text)); }

bool OutputPrefixer::Flush(std::chrono::milliseconds limit) { return writer_->Flush(limit); }

uint64_t OutputPrefixer::dropped() const { return writer_->dropped(); }

}  // namespace kintsugi
