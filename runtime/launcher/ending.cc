#include "runtime/launcher/ending.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/launcher/node_inbox.h"
#include "runtime/launcher/node_parts.h"

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

}  // namespace

Ending::Ending(boost::asio::io_context& io, Duration grace, Controller& controller, RunAccount& account,
               OperatorDesk& desk, Hosts& hosts, std::shared_ptr<LogSink> log, std::function<void()> on_done)
    : grace_(grace),
      controller_(controller),
      account_(account),
      desk_(desk),
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
  const std::optional<TimePoint> asked = account_.stop_asked();
  if (!asked || account_.ended() || now < *asked + grace_ - grace_ / kToLeave) return;
  const std::string why = "the grace period of " + std::to_string(static_cast<int64_t>(ToMilliseconds(grace_))) +
                          " ms was over in phase " + std::string(core::PhaseName(controller_.core().phase())) +
                          " before anything was saved";
  if (account_.checkpoints().empty())
    return End({core::kExitFailed, why + "; there is no checkpoint", Step(), std::nullopt});
  const core::Checkpoint& newest = account_.checkpoints().back();
  End({core::kExitResumable, why + "; resume from " + newest.directory + " (step " + newest.step.ToString() + ")",
       newest.step, std::nullopt});
}

void Ending::End(const core::RunEnded& ended) {
  if (account_.ended()) return;  // the grace period was over before
  account_.End(ended);
  desk_.AnswerAll("the run ended before that: " + ended.text);
  log_->Write(ended.exit_code == 0 ? LogLevel::kInfo : LogLevel::kWarning,
              LogLine("run_ended", {{"exit", std::to_string(ended.exit_code)},
                                    {"reason", ended.text + Told(account_.result().inexact)}}));
  hosts_.Leave(EndOrder(account_));
  After(LeaveLimit(account_.stop_asked(), grace_), [this] { EndNow(account_.result().text); });
  OnLeft();
}

void Ending::EndNow(const std::string& why) {
  if (!account_.ended()) account_.End({core::kExitFailed, why, Step(), std::nullopt});
  desk_.AnswerAll("the run was ended at once: " + why);
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
  // A node leaves once its own ranks have; until then it may have reports to tell.
  if (!account_.ended() || !hosts_.left()) return;
  // One turn more, so that lines still in the pipes come out.
  After(kLastTurn, [this] { on_done_(); });
}

}  // namespace kintsugi
