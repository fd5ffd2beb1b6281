#include "tools/cli/certify_runner.h"

#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <fstream>

#include "runtime/launcher/leader/node_parts.h"
#include "runtime/process/child_process.h"
#include "tools/report/record_json.h"

namespace kintsugi::cli {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kLookEvery{1};
constexpr int kLooksToLeave = 10;  // for processes that have left all that is asked of them

// Ends processes: at its second signal a launcher leaves at once; who does not is killed, and its guardian clears up.
class Ending {
 public:
  using Children = std::vector<std::unique_ptr<ChildProcess>>;
  Ending(asio::io_context& io, Children& children) : timer_(io), children_(children) {}

  void Begin() {
    if (signals_ > 0) return;
    Next();
  }
  void Cancel() { timer_.cancel(); }

 private:
  void Next() {
    for (const auto& child : children_) (void)child->Kill(signals_ < 2 ? SIGINT : SIGKILL);
    if (++signals_ > 2) return;
    timer_.expires_after(signals_ == 1 ? std::chrono::milliseconds(300) : std::chrono::seconds(10));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Next();
    });
  }

  asio::steady_timer timer_;
  Children& children_;
  int signals_ = 0;
};

// Ends processes that have done all that is asked of them and do not leave.
class Leaving {
 public:
  Leaving(asio::io_context& io, const std::function<bool()>& has_all, Ending& ending)
      : timer_(io), has_all_(has_all), ending_(ending) {}

  void Watch() {
    if (!has_all_) return;
    timer_.expires_after(kLookEvery);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      if (looks_ > 0 || has_all_()) ++looks_;
      if (looks_ > kLooksToLeave) return ending_.Begin();
      Watch();
    });
  }
  void Cancel() { timer_.cancel(); }
  bool ended() const { return looks_ > kLooksToLeave; }  // how they end from now on is ours

 private:
  asio::steady_timer timer_;
  const std::function<bool()>& has_all_;
  Ending& ending_;
  int looks_ = 0;  // since they had all
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
  ProcessSpec spec;
  KINTSUGI_ASSIGN_OR_RETURN(spec.program, OwnProgram());
  spec.args = words;
  spec.environment = environment;
  KINTSUGI_ASSIGN_OR_RETURN(CertifyRun run, Await({spec}, folder, limit_seconds));
  if (Result<RunRecord> record = ReadRecord(folder / "record.json"); record.ok()) run.record = *std::move(record);
  return run;
}

Result<CertifyRun> CertifyRunner::RunPlain(const std::vector<std::string>& program, int ranks,
                                           const std::map<std::string, std::string>& environment,
                                           const std::filesystem::path& folder, double limit_seconds,
                                           const std::function<bool()>& has_all) {
  const int port = FreePort("0.0.0.0", {});
  std::vector<ProcessSpec> specs;
  for (int rank = 0; rank < ranks; ++rank) {
    ProcessSpec spec;
    spec.program = program.front();
    spec.args.assign(program.begin() + 1, program.end());
    spec.environment = environment;
    for (const char* name : {"RANK", "LOCAL_RANK"}) spec.environment[name] = std::to_string(rank);
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) spec.environment[name] = std::to_string(ranks);
    spec.environment["MASTER_ADDR"] = "127.0.0.1";
    spec.environment["MASTER_PORT"] = std::to_string(port);
    specs.push_back(std::move(spec));
  }
  return Await(specs, folder, limit_seconds, has_all);
}

Result<CertifyRun> CertifyRunner::Await(const std::vector<ProcessSpec>& specs, const std::filesystem::path& folder,
                                        double limit_seconds, const std::function<bool()>& has_all) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  std::filesystem::create_directories(folder, error);
  std::ofstream log(folder / "log");
  if (!log)
    return Status(StatusCode::kUnavailable,
                  "'" + (folder / "log").string() + "' cannot be written: name another --report");
  CertifyRun run;
  run.exit = 0;
  LineTail tail;
  Ending::Children children;
  Ending ending(io_, children);
  Leaving leaving(io_, has_all, ending);
  asio::steady_timer limit(io_);
  io_.restart();
  size_t live = specs.size();
  ChildProcess::Callbacks callbacks;
  callbacks.on_line = [&](OutputStream, std::string_view line) {
    log << line << '\n';
    tail.Add(line);
  };
  callbacks.on_exit = [&](const ExitCause& cause) {
    const int exit = cause.kind == ExitKind::kExitCode ? cause.code : -1;
    if (exit == 0 || run.exit != 0 || leaving.ended()) return;
    run.exit = exit;
    ending.Begin();  // nobody waits for one that is gone
  };
  callbacks.on_output_end = [&] {
    if (--live > 0) return;
    limit.cancel();
    ending.Cancel();
    leaving.Cancel();
    signals_.cancel();
  };
  const TimePoint begin = SteadyClock::SteadyNow();
  for (const ProcessSpec& spec : specs) {
    KINTSUGI_ASSIGN_OR_RETURN(auto child, ChildProcess::Spawn(io_, spec, callbacks));
    children.push_back(std::move(child));
  }
  signals_.async_wait([&](const boost::system::error_code& cancelled, int) {
    if (cancelled) return;
    stopped_ = run.stopped = true;
    ending.Begin();
  });
  leaving.Watch();
  limit.expires_after(std::chrono::milliseconds(static_cast<int64_t>(limit_seconds * 1000)));
  limit.async_wait([&](const boost::system::error_code& cancelled) {
    if (cancelled) return;
    run.timed_out = true;
    ending.Begin();
  });
  io_.run();
  run.seconds = ToMilliseconds(SteadyClock::SteadyNow() - begin) / 1000;
  for (const std::string& line : tail.lines()) run.last_words += line + "\n";
  return run;
}

}  // namespace kintsugi::cli
