#include "runtime/core/repeats.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// So often may one rank die or fail, or all hang, at one step.
constexpr int kTimesAtOneStep = 3;
// So often may trainers fail at one step, whichever rank it was; and collectives, with nobody to blame.
constexpr int kFailuresAtOneStep = 9;
// So many incidents, one after another, may one exception be thrown at one place.
constexpr int kIncidentsRunning = 3;
// So often may a handler fail on one rank in one process, where the next one's fails too; and on all ranks together.
constexpr int kHandlerFailures = 3;
constexpr int kHandlerFailuresOfAll = 9;
// So often is a rank asked to come out of a hang at one step where another may be the cause.
constexpr int kAskedAtOneStep = 2;

constexpr const char* kNotTheHardware = "this is no fault of the hardware, the program or its data is";

std::string Times(int count) { return std::to_string(count) + " times"; }

}  // namespace

Repeats::OfRank& Repeats::At(Rank rank) {
  KINTSUGI_CHECK(rank.value() >= 0 && static_cast<size_t>(rank.value()) < ranks_.size(),
                 "rank " + rank.ToString() + " is outside the world");
  return ranks_[static_cast<size_t>(rank.value())];
}

void Repeats::GiveUpHope(std::string why) {
  KINTSUGI_CHECK(!why.empty(), "hope is given up for no reason");
  hopeless_ = std::move(why);
}

void Repeats::Died(Rank rank, Step step, const std::string& cause) {
  const int times = At(rank).deaths.Note(step);
  if (times < kTimesAtOneStep) return;
  GiveUpHope("rank " + rank.ToString() + " died " + Times(times) + " at step " + step.ToString() + " (last: " + cause +
             "): " + kNotTheHardware);
}

// Of several exceptions in one incident the one counts that the incidents before it had, else the lowest rank's.
void Repeats::CountStreak(const std::map<Rank, FaultReport>& failures) {
  const auto same = std::find_if(failures.begin(), failures.end(),
                                 [this](const auto& failure) { return failure.second.signature == streak_of_; });
  const auto counted = streak_of_.empty() || same == failures.end() ? failures.begin() : same;
  const std::string signature = failures.empty() ? "" : counted->second.signature;
  streak_ = signature.empty() ? 0 : signature == streak_of_ ? streak_ + 1 : 1;
  streak_of_ = signature;
  if (streak_ < kIncidentsRunning) return;
  GiveUpHope("the same exception ended " + std::to_string(streak_) + " incidents running (last: rank " +
             counted->first.ToString() + " at step " + counted->second.step.ToString() + ": " + counted->second.text +
             "): " + kNotTheHardware);
}

void Repeats::CountFailures(bool alone, bool first) {
  const std::map<Rank, FaultReport> failures = std::exchange(failures_, {});
  if (!hopeless_.empty()) return;
  if (first) CountStreak(alone ? failures : std::map<Rank, FaultReport>());
  if (!hopeless_.empty() || !alone) return;
  for (const auto& [rank, report] : failures) {
    const int of_rank = At(rank).failures.Note(report.step);
    const int of_all = failures_at_step_.Note(report.step);
    const bool one = of_rank >= kTimesAtOneStep;
    if (!one && of_all < kFailuresAtOneStep) continue;
    const std::string who =
        one ? "rank " + rank.ToString() + " failed " + Times(of_rank) : "ranks failed " + Times(of_all);
    return GiveUpHope(who + " at step " + report.step.ToString() + " (last: " +
                      (one ? "" : "rank " + rank.ToString() + ": ") + report.text + "): " + kNotTheHardware);
  }
}

bool Repeats::Damaged(Rank rank, Step step) {
  Row& damages = At(rank).damages;
  if (damages.Note(step) < kTimesAtOneStep) return false;
  damages.Clear();
  return true;
}

void Repeats::StandsStillTogether(const std::string& text) {
  KINTSUGI_CHECK(hangs_.times() > 0, "a hang of all that was not counted: " + text);
  if (hangs_.times() < kTimesAtOneStep) return;
  GiveUpHope(text + ", " + Times(hangs_.times()) + ": this is a deadlock in the program");
}

bool Repeats::WasAsked(Rank rank, Step step, bool certain) {
  return At(rank).hangs.Note(step) > (certain ? 1 : kAskedAtOneStep);
}

void Repeats::HandlerFailed(Rank rank, std::string_view handler, const std::string& text, bool replaceable) {
  const int of_rank = ++At(rank).handlers[std::string(handler)];
  const int of_all = ++handlers_[std::string(handler)];
  const bool one = of_rank > kHandlerFailures || (of_rank == kHandlerFailures && !replaceable);
  if (!hopeless_.empty() || (!one && of_all < kHandlerFailuresOfAll)) return;
  GiveUpHope("the " + std::string(handler) + " handler " +
             (one ? "of rank " + rank.ToString() + " failed " + Times(of_rank)
                  : "failed " + Times(of_all) + " on several ranks") +
             " (last: " + (one ? "" : "rank " + rank.ToString() + ": ") + text + "): " + kNotTheHardware);
}

void Repeats::HandlersHeld() {
  handlers_.clear();
  for (OfRank& rank : ranks_) rank.handlers.clear();
}

bool Repeats::Retried(Step step, const std::string& cause) {
  const int times = retries_.Note(step);
  if (times < kFailuresAtOneStep) return false;
  GiveUpHope("a collective failed " + Times(times) + " at step " + step.Next().ToString() +
             " with no rank to blame (last: " + cause + ")");
  return true;
}

}  // namespace kintsugi::core
