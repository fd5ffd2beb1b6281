// RestartPolicy: whether a run that has ended is begun again by its launcher, and after what pause. Pure.
//
// Only an end that nobody asked for and that left a checkpoint (exit code 75) is worth another start: a user who asked
// wants the processors, and what failed would fail again. The pause doubles from one short start to the next.
// Threads: none.
// Errors: none.
// Invariants: at most `at_most` starts after the first.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/core/controller_types.h"

namespace kintsugi {

class RestartPolicy {
 public:
  static constexpr Duration kShortestPause = std::chrono::seconds(1);
  static constexpr Duration kLongestPause = std::chrono::minutes(1);
  // A start that lasted so long was no failed one: the next pause is the shortest again.
  static constexpr Duration kLasted = std::chrono::minutes(5);

  explicit RestartPolicy(int at_most) : at_most_(at_most) {}

  struct Decision {
    std::optional<Duration> after;  // nothing: not again
    std::string why_not;            // empty where nobody would expect it: success, or no restarts were wanted
  };
  Decision OnEnd(int exit_code, bool asked, Duration lasted) {
    if (at_most_ == 0 || exit_code == core::kExitSuccess) return {};
    if (asked) return {std::nullopt, "it was asked to end"};
    if (exit_code != core::kExitResumable)
      return {std::nullopt, "exit code " + std::to_string(exit_code) + ": it would end like this again"};
    if (lasted >= kLasted) pause_ = kShortestPause;
    const Decision decision = Again(pause_);
    pause_ = std::min(2 * pause_, kLongestPause);
    return decision;
  }
  // A start that nobody came to has waited already: who comes up meanwhile must find another one.
  Decision OnNobodyCame() { return at_most_ == 0 ? Decision() : Again(kShortestPause); }
  int restarts() const { return restarts_; }

 private:
  Decision Again(Duration pause) {
    if (restarts_ == at_most_)
      return {std::nullopt,
              "it was begun again " + std::to_string(restarts_) + " times, as often as --restarts allows"};
    ++restarts_;
    return {pause, ""};
  }

  const int at_most_;
  int restarts_ = 0;
  Duration pause_ = kShortestPause;
};

}  // namespace kintsugi
