// Ending: how a run comes to its end: it is asked to stop, has a grace period, ends, and all leave.
//
// Where all loops are over the processes may have more to do (write the model out, evaluate it): they are waited for
// without a limit, and one that leaves by anything but code 0 fails the run. From then on, or from a stop that is asked
// for, the others have the grace period.
//
// Threads: one, that of the leader.
// Ownership: all that it is given outlives it.
// Errors: none: what goes wrong is the reason that the run ends with.
// Invariants: a run ends once; `on_done` comes once nobody is left, or at once where the end is not to wait.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "runtime/base/log.h"
#include "runtime/controller/controller.h"
#include "runtime/launcher/leader/hosts.h"
#include "runtime/launcher/leader/operator_requests.h"
#include "runtime/launcher/run/launcher_options.h"
#include "runtime/launcher/run/run_account.h"

namespace kintsugi {

class Ending {
 public:
  Ending(boost::asio::io_context& io, const LauncherOptions& run, Controller& controller, RunAccount& account,
         OperatorRequests& operators, Hosts& hosts, std::shared_ptr<LogSink> log, std::function<void()> on_done);

  // Save and leave, within the grace period.
  void Stop();
  // Every few milliseconds: the grace period may be over.
  void Poll(TimePoint now);
  void End(const core::RunEnded& ended);
  void EndNow(const std::string& why);
  // Before it has begun.
  void NeverBegin(const std::string& why);
  // Somebody left: perhaps the last.
  void OnLeft();

 private:
  // Once nobody is waited for any more.
  void Conclude();
  // While the processes of a run that went well are waited for.
  void PollLeaving(TimePoint now);
  // Waits, then does it, unless this is gone by then or waits for something else.
  void After(Duration pause, std::function<void()> then);

  const LauncherOptions& run_;
  const Duration grace_;
  Controller& controller_;
  RunAccount& account_;
  OperatorRequests& operators_;
  Hosts& hosts_;
  std::shared_ptr<LogSink> log_;
  const std::function<void()> on_done_;
  boost::asio::steady_timer leave_;
  std::optional<TimePoint> failed_at_;  // a process that was waited for has failed
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace kintsugi
