// Terminal: a screen of its own that is drawn again and again, and given back as it was.
//
// While it lives, the signals that end a program, Ctrl-Z and a changed size are blocked and come through Wait, so that
// no handler runs and nothing is left half drawn.
// Threads: one, which had no other thread running before.
// Ownership: the destructor gives the screen and the signals back.
// Errors: none.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "runtime/base/clock.h"

namespace kintsugi::runs {

struct ScreenSize {
  int columns = 80;
  int rows = 24;
};

class Terminal {
 public:
  // `screen`: whether standard output is drawn upon; without, Wait alone is of use.
  explicit Terminal(bool screen);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Of the terminal, or of COLUMNS and LINES where it does not say.
  ScreenSize size() const;
  // The lines from the top; what does not fit is cut by the caller.
  void Draw(const std::vector<std::string>& lines);
  // Until the time is over or the size has changed (true), or until a signal asks for the end (false). Ctrl-Z stops the
  // program with the screen given back.
  bool Wait(Duration time);

 private:
  void Enter();
  void Leave();

  const bool screen_;
  sigset_t watched_{}, before_{};
};

}  // namespace kintsugi::runs
