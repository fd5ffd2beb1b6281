// Newcomer: a launcher that was started anew within a run. Its promises went with the one before it, and so did the
// processes that they counted for: whom that one had promised itself to, with these ranks alive, nobody knows. So what
// it says of its ranks decides nothing against those who cannot be asked (Ballot::kForgotten), until all ranks have
// been in their loops again: from then on they are there to consent by themselves.
//
// Threads: none; pure.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/ids.h"

namespace kintsugi::core {

class Newcomer {
 public:
  bool is_one() const { return !settled_; }

  // A leader has taken it in: the next pulse tells how it found the run.
  void OnWelcome() { pulse_is_first_ = true; }
  // `started`: a process of a rank was started; before that nobody had anything to promise itself for. `running`: the
  // newest generation in which all ranks were in their loops.
  void OnPulse(bool started, Generation running) {
    settled_ = settled_ || !started || (found_ && !pulse_is_first_ && running > *found_);
    if (std::exchange(pulse_is_first_, false)) found_ = std::max(found_.value_or(running), running);
  }

 private:
  bool settled_ = false;
  bool pulse_is_first_ = false;      // since a welcome
  std::optional<Generation> found_;  // the newest that a first pulse told
};

}  // namespace kintsugi::core
