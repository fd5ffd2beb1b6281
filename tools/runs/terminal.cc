#include "tools/runs/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace kintsugi::runs {
namespace {

// Standard output may be slow or stopped; here that holds up nobody but who looks.
void Print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR && errno != EAGAIN) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

int FromEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  const int value = text ? std::atoi(text) : 0;
  return value > 0 ? value : otherwise;
}

}  // namespace

Terminal::Terminal(bool screen) : screen_(screen) {
  sigemptyset(&watched_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) sigaddset(&watched_, number);
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  Enter();
}

Terminal::~Terminal() {
  Leave();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Terminal::Enter() {
  if (screen_) Print("\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J");  // the other screen, without a cursor
}

void Terminal::Leave() {
  if (screen_) Print("\x1b[?25h\x1b[?1049l");
}

ScreenSize Terminal::size() const {
  winsize found{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &found) == 0 && found.ws_col > 0 && found.ws_row > 0)
    return {found.ws_col, found.ws_row};
  return {FromEnvironment("COLUMNS", 80), FromEnvironment("LINES", 24)};
}

void Terminal::Draw(const std::vector<std::string>& lines) {
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) text += (i > 0 ? "\r\n" : "") + lines[i] + "\x1b[K";
  Print(text + "\x1b[J");
}

bool Terminal::Wait(Duration time) {
  const TimePoint until = SteadyClock::SteadyNow() + time;
  for (;;) {
    const Duration left = std::max(until - SteadyClock::SteadyNow(), Duration());
    const timespec limit{static_cast<time_t>(left.count() / 1000000000), static_cast<long>(left.count() % 1000000000)};
    const int number = ::sigtimedwait(&watched_, nullptr, &limit);
    if (number == SIGWINCH) return true;
    if (number == SIGTSTP) {
      Leave();
      ::raise(SIGSTOP);
      Enter();
      return true;
    }
    if (number > 0) return false;
    if (errno == EAGAIN) return true;
  }
}

}  // namespace kintsugi::runs
