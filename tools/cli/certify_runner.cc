#include "tools/cli/certify_runner.h"

#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <fstream>

#include "runtime/process/child_process.h"
#include "tools/report/record_json.h"

namespace kintsugi::cli {
namespace {

namespace asio = boost::asio;

// Ends a launcher: at its second signal it leaves at once; where it does not, it is killed, and its guardian clears up.
class Ending {
 public:
  Ending(asio::io_context& io, ChildProcess& child) : timer_(io), child_(child) {}

  void Begin() {
    if (signals_ > 0) return;
    Next();
  }
  void Cancel() { timer_.cancel(); }

 private:
  void Next() {
    (void)child_.Kill(signals_ < 2 ? SIGINT : SIGKILL);
    if (++signals_ > 2) return;
    timer_.expires_after(signals_ == 1 ? std::chrono::milliseconds(300) : std::chrono::seconds(10));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Next();
    });
  }

  asio::steady_timer timer_;
  ChildProcess& child_;
  int signals_ = 0;
};

Result<std::string> OwnProgram() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status(StatusCode::kUnavailable, "/proc/self/exe cannot be read: " + error.message());
  return program.string();
}

}  // namespace

CertifyRunner::CertifyRunner() : signals_(io_, SIGINT, SIGTERM) {}

Result<CertifyRun> CertifyRunner::Run(const std::vector<std::string>& words,
                                      const std::map<std::string, std::string>& environment,
                                      const std::filesystem::path& folder, double limit_seconds) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  std::filesystem::create_directories(folder, error);
  std::ofstream log(folder / "log");
  if (!log)
    return Status(StatusCode::kUnavailable,
                  "'" + (folder / "log").string() + "' cannot be written: name another --report");
  CertifyRun run;
  LineTail tail;
  std::unique_ptr<ChildProcess> child;
  std::unique_ptr<Ending> ending;
  asio::steady_timer limit(io_);
  io_.restart();
  ProcessSpec spec;
  KINTSUGI_ASSIGN_OR_RETURN(spec.program, OwnProgram());
  spec.args = words;
  spec.environment = environment;
  ChildProcess::Callbacks callbacks;
  callbacks.on_line = [&](OutputStream, std::string_view line) {
    log << line << '\n';
    tail.Add(line);
  };
  callbacks.on_exit = [&](const ExitCause& cause) {
    if (cause.kind == ExitKind::kExitCode) run.exit = cause.code;
  };
  callbacks.on_output_end = [&] {
    limit.cancel();
    if (ending) ending->Cancel();
    signals_.cancel();
  };
  const TimePoint begin = SteadyClock::SteadyNow();
  KINTSUGI_ASSIGN_OR_RETURN(child, ChildProcess::Spawn(io_, spec, std::move(callbacks)));
  ending = std::make_unique<Ending>(io_, *child);
  signals_.async_wait([&](const boost::system::error_code& cancelled, int) {
    if (cancelled) return;
    stopped_ = run.stopped = true;
    ending->Begin();
  });
  limit.expires_after(std::chrono::milliseconds(static_cast<int64_t>(limit_seconds * 1000)));
  limit.async_wait([&](const boost::system::error_code& cancelled) {
    if (cancelled) return;
    run.timed_out = true;
    ending->Begin();
  });
  io_.run();
  run.seconds = ToMilliseconds(SteadyClock::SteadyNow() - begin) / 1000;
  for (const std::string& line : tail.lines()) run.last_words += line + "\n";
  if (Result<RunRecord> record = ReadRecord(folder / "record.json"); record.ok()) run.record = *std::move(record);
  return run;
}

}  // namespace kintsugi::cli
