// A run with what attends it: one start, or with --restarts as many as it takes.
#include "tools/cli/restarts.h"

#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "runtime/launcher/restart_policy.h"
#include "runtime/launcher/run/late_signals.h"
#include "tools/cli/attendance.h"
#include "tools/report/record_json.h"
#include "tools/report/report.h"

namespace kintsugi::cli {
namespace {

constexpr Duration kEndLookEvery = std::chrono::milliseconds(20);

// Until `over`, so long at most. False: a signal came, now or since the run was over.
bool Pause(
    LateSignals& signals, Duration pause, const std::function<bool()>& over = [] { return false; }) {
  const TimePoint until = SteadyClock::SteadyNow() + pause;
  while (!signals.came()) {
    const TimePoint now = SteadyClock::SteadyNow();
    if (now >= until || over()) return true;
    std::this_thread::sleep_for(std::min(kEndLookEvery, until - now));
  }
  return false;
}

// Who reads metrics now and then is to learn how the run ended.
void TellEnd(observe::Observatory& observatory, LateSignals& signals, int exit_code, Duration linger, LogSink& log) {
  observatory.End(exit_code);
  if (linger <= Duration()) return;
  bool said = false;
  Pause(signals, linger, [&] {
    if (!observatory.has_reader_to_come()) return true;
    if (!std::exchange(said, true))
      log.Write(LogLevel::kInfo,
                LogLine("lingers", {{"for", "a reader of the metrics"}, {"at_most", WholeSeconds(linger)}}));
    return false;
  });
}

// A report that cannot be moved is written over; that keeps no run from going on.
void SetAside(const std::string& report, int start, LogSink& log) {
  namespace fs = std::filesystem;
  if (report.empty()) return;
  const fs::path aside = fs::path(report) / ("start-" + std::to_string(start));
  std::error_code error;
  fs::create_directories(aside, error);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(report, error))
    if (entry.is_regular_file(error)) files.push_back(entry.path());
  for (const fs::path& file : files)
    if (!error) fs::rename(file, aside / file.filename(), error);
  if (error)
    log.Write(LogLevel::kWarning,
              LogLine("report_overwritten", {{"start", std::to_string(start)}, {"why", error.message()}}));
}

void SayNoRestart(const std::string& why, LogSink& log) {
  log.Write(LogLevel::kWarning, LogLine("no_restart", {{"why", why}}));
}

// Says that start `start` is followed by another, makes room for that one's report (what is there goes into start-N
// below it) and waits. False: a signal came instead, and there is to be no other. Signals are as ever afterwards.
bool AwaitStart(const RunOptions& options, int start, Duration pause, LateSignals& signals, LogSink& log) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(pause).count();
  log.Write(LogLevel::kWarning,
            LogLine("restart", {{"start", std::to_string(start + 1)}, {"after_s", std::to_string(seconds)}}));
  SetAside(options.report, start, log);
  if (Pause(signals, pause)) {
    signals.End();
    return true;
  }
  SayNoRestart("it was asked to end", log);
  return false;
}

// Goes on from what was saved last. Ordered faults have struck, or were meant for the start that is over.
RunOptions Again(RunOptions options) {
  if (HoldsAnything(options.save_dir)) options.resume = kResumeAuto;
  options.inject.clear();
  return options;
}

// Writes what was asked for; of several starts the summary is that of the last. False: something could not be written.
bool Tell(const RunOptions& options, const NodeOutcome& outcome, bool last, logs::Logs& logs) {
  if (!outcome.run) return true;
  Status written;
  if (last && !options.json.empty()) written = WriteText(options.json, SummaryJson(outcome.run->record).dump());
  if (written.ok() && !options.report.empty()) written = WriteReport(options.report, outcome.run->record, nullptr);
  if (!written.ok()) logs.Say(written.message());
  return written.ok();
}

// A name, an interface or another host that was not there in time.
bool MayChange(const Status& why) {
  return why.code() == StatusCode::kUnavailable || why.code() == StatusCode::kDeadlineExceeded;
}

}  // namespace

int NeverBegan(const Status& why, bool begins_again) {
  if (begins_again && MayChange(why)) return core::kExitResumable;
  return why.code() == StatusCode::kInvalidArgument ? core::kExitUsage : core::kExitStartup;
}

int RunAndReport(const RunOptions& given, const AttendanceOptions& attendance) {
  RunOptions options = given;
  options.node.job = JobOf(given.node);  // that of all starts
  // Outlives the run: its last words go the same way, and the end waits for a reader for two seconds at most.
  const Result<std::shared_ptr<logs::Logs>> opened = OpenLogs(options);
  if (!opened.ok()) {
    Complain(opened.status().message());
    return NeverBegan(opened.status());
  }
  logs::Logs& logs = **opened;
  std::shared_ptr<observe::Observatory> attends;  // none: nobody looks on
  const auto complain = [&](const Status& status) {
    logs.Say(status.message());
    const int code = NeverBegan(status, !given.resume.empty());
    if (attends && NodeRank(options.node) == 0)
      attends->OnEnded(options.node.job, code, status.message(), {}, std::nullopt);
    return code;
  };
  if (attendance.restarts > 0 && given.save_dir.empty())
    return complain({StatusCode::kInvalidArgument, "--restarts goes on from what was saved: give --save-dir too"});
  const auto observatory = MakeObservatory(attendance, options, logs.sink());
  if (!observatory.ok()) return complain(observatory.status());
  attends = *observatory;
  RestartPolicy restarts(attendance.restarts);
  const auto signals = std::make_shared<LateSignals>();
  int exit_code = 0;
  for (int start = 1;; ++start) {
    const TimePoint began = SteadyClock::SteadyNow();
    const Result<NodeOutcome> outcome = ExecuteNode(options, *opened, attends, signals);
    if (!outcome.ok()) {
      const Status& why = outcome.status();
      const bool waits = MayChange(why) && !options.resume.empty() && attendance.restarts > 0;
      if (start == 1 && !waits) return complain(why);
      if (start == 1) exit_code = core::kExitResumable;
      logs.Say((start == 1 ? "the run could not be begun: "
                           : "the run could not be begun again; what was saved before is there: ") +
               why.message());
      // With the exit code of the start before. A host that is down for longer than others wait is waited for again.
      const RestartPolicy::Decision next = waits ? restarts.OnNobodyCame() : RestartPolicy::Decision();
      if (!next.why_not.empty()) SayNoRestart(next.why_not, *logs.sink());
      if (!next.after || !AwaitStart(options, start, *next.after, *signals, *logs.sink())) break;
      continue;
    }
    exit_code = outcome->exit_code;
    const auto next = restarts.OnEnd(exit_code, outcome->asked, SteadyClock::SteadyNow() - began);
    if (!Tell(options, *outcome, !next.after, logs) && exit_code == 0) exit_code = core::kExitFailed;
    if (!next.why_not.empty()) SayNoRestart(next.why_not, *logs.sink());
    if (attends && outcome->run)
      attends->OnEnded(options.node.job, exit_code, outcome->text, outcome->run->result.saves, next.after);
    if (exit_code != 0) logs.Say(outcome->text);
    if (!next.after || !AwaitStart(options, start, *next.after, *signals, *logs.sink())) break;
    options = Again(std::move(options));
  }
  (void)logs.Flush();
  if (attends)
    TellEnd(*attends, *signals, exit_code, Duration(static_cast<int64_t>(attendance.metrics_linger * 1e9)),
            *logs.sink());
  (void)logs.Flush();
  return exit_code;
}

}  // namespace kintsugi::cli
