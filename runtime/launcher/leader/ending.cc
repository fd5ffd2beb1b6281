#include "runtime/launcher/leader/ending.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/launcher/leader/node_inbox.h"
#include "runtime/launcher/leader/node_parts.h"

namespace kintsugi {
namespace {

// Of the grace period so much is for the processes to leave once the run has ended.
constexpr int kToLeave = 10;
constexpr Duration kLastTurn = std::chrono::milliseconds(20);

std::string Told(const InexactNotes& inexact) {
  if (inexact.count == 0) return "";
  const InexactNotes::Note& first = inexact.first.front();
  return "; inexact: rank " + first.rank.ToString() + ": " + first.text +
         (inexact.count > 1 ? " and " + std::to_string(inexact.count - 1) + " more" : "");
}

// "rank 1", "ranks 0, 2".
std::string NamesOf(const std::vector<Rank>& ranks) {
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) names += (i ? ", " : "") + ranks[i].ToString();
  return names;
}

// Of a handler that does not return, say: whose.
std::string WaitsFor(const core::ControllerCore& core) {
  std::vector<Rank> late;
  for (Rank rank : core.crew().ranks())
    if (core.members()[static_cast<size_t>(rank.value())].waiting) late.push_back(rank);
  return late.empty() ? "" : ", waiting for " + NamesOf(late);
}

}  // namespace

Ending::Ending(boost::asio::io_context& io, const LauncherOptions& run, Controller& controller, RunAccount& account,
               OperatorRequests& operators, Hosts& hosts, std::shared_ptr<LogSink> log, std::function<void()> on_done)
    : run_(run),
      grace_(run.policy.grace),
      controller_(controller),
      account_(account),
      operators_(operators),
      hosts_(hosts),
      log_(std::move(log)),
      on_done_(std::move(on_done)),
      leave_(io) {
  KINTSUGI_CHECK(on_done_ != nullptr, "nobody is told that the run is over");
}

void Ending::After(Duration pause, std::function<void()> then) {
  leave_.expires_after(pause);
  leave_.async_wait([then = std::move(then), alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
    if (!error && !alive.expired()) then();
  });
}

void Ending::Stop() {
  account_.AskStop(SteadyClock::SteadyNow());
  controller_.Feed(core::OperatorStop{});
}

// A disk that does not answer, a handler that never returns, nodes that are away: the side that asked for the stop
// kills what is left of the run soon, and it ends better with a word.
void Ending::Poll(TimePoint now) {
  if (account_.awaits_ends()) return PollLeaving(now);
  const std::optional<TimePoint> asked = account_.stop_asked();
  if (!asked || account_.ended() || now < *asked + grace_ - grace_ / kToLeave) return;
  const std::string why = "the grace period of " + std::to_string(static_cast<int64_t>(ToMilliseconds(grace_))) +
                          " ms was over in phase " + std::string(core::PhaseName(controller_.core().phase())) +
                          " before anything was saved" + WaitsFor(controller_.core());
  if (account_.checkpoints().empty())
    return End({core::kExitFailed, why + "; there is no checkpoint", Step(), std::nullopt});
  const core::Checkpoint& newest = account_.checkpoints().back();
  End({core::kExitResumable, why + "; resume from " + newest.directory + " (step " + newest.step.ToString() + ")",
       newest.step, std::nullopt});
}

void Ending::End(const core::RunEnded& ended) {
  if (account_.ended()) return;  // the grace period was over before
  account_.End(ended);
  operators_.AnswerAll("the run ended before that: " + ended.text);
  if (!account_.awaits_ends()) return Conclude();
  log_->Write(LogLevel::kInfo,
              LogLine("loops_over", {{"reason", ended.text}, {"waits", "for the processes to leave by themselves"}}));
  hosts_.Leave(EndOrder(account_));
  OnLeft();
}

void Ending::Conclude() {
  account_.Conclude(run_.injections_must_strike);
  const RunResult& result = account_.result();
  log_->Write(result.exit_code == 0 ? LogLevel::kInfo : LogLevel::kWarning,
              LogLine("run_ended",
                      {{"exit", std::to_string(result.exit_code)}, {"reason", result.text + Told(result.inexact)}}));
  hosts_.Leave(EndOrder(account_));
  After(LeaveLimit(account_.stop_asked(), grace_), [this] { EndNow(account_.result().text); });
  OnLeft();
}

// Where one has failed, the others may wait for it for ever, in a collective say.
void Ending::PollLeaving(TimePoint now) {
  std::optional<TimePoint> since = account_.stop_asked();
  if (account_.result().exit_code != core::kExitSuccess && !failed_at_) failed_at_ = now;
  if (failed_at_) since = since ? std::min(*since, *failed_at_) : failed_at_;
  if (!since || now < *since + grace_) return;
  account_.Spoil("the run was asked to stop when all loops were over, and " + NamesOf(account_.Running()) +
                 " had not left within the grace period of " +
                 std::to_string(static_cast<int64_t>(ToMilliseconds(grace_))) + " ms");
  Conclude();
}

void Ending::EndNow(const std::string& why) {
  if (!account_.ended()) account_.End({core::kExitFailed, why, Step(), std::nullopt});
  if (account_.awaits_ends())
    account_.Spoil(why + ", when all loops were over and " + NamesOf(account_.Running()) + " had not left");
  account_.Conclude(run_.injections_must_strike);
  operators_.AnswerAll("the run was ended at once: " + why);
  hosts_.EndNow();
  on_done_();
}

void Ending::NeverBegin(const std::string& why) {
  KINTSUGI_CHECK(!account_.started(), "a run that has begun never begins: " + why);
  if (account_.ended()) return;  // it was asked to stop before
  account_.End({core::kExitStartup, why, Step(), std::nullopt});
  on_done_();
}

void Ending::OnLeft() {
  if (account_.awaits_ends() && account_.Running().empty()) return Conclude();
  // A node leaves once its own ranks have; until then it may have reports to tell.
  if (!account_.ended() || account_.awaits_ends() || !hosts_.left()) return;
  // One turn more, so that lines still in the pipes come out.
  After(kLastTurn, [this] { on_done_(); });
}

}  // namespace kintsugi
