// bench_connections: what thousands of direct control connections cost one controller on loopback.
//
// The real Controller with the real Server, on one thread; the ranks are real Clients in other processes.
//
//   join/N       from the first connect until all N ranks are told to run: TCP, mutual proof, join, registration,
//   REBUILD to
//                ROLLBACK with ranks that answer at once
//   cpu/N        the controller thread's CPU time by wall time while all beat four times a second
//   memory/N     resident memory of the controller's process for each rank that joined; the core's own part is in it
//   storm/N      all connections are cut at once and come back: until the last rank has joined again and the run goes
//   on.
//                A rank that is given up meanwhile, or a new generation, is a false fault, and the benchmark fails
//
// Budgets: cpu/N 10 % of a core for 1,000 nodes (issue of load; DESIGN section 5); a storm of 8,000 in 5 s. 8,000
// direct connections have no budget of CPU: nodes pass their ranks' messages through one connection each.
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <fstream>
#include <future>
#include <thread>

#include "runtime/controller/controller.h"
#include "tests/bench/connections_swarm.h"
#include "tests/bench/figures.h"
#include "tests/bench/thread_time.h"

namespace kintsugi::bench {
namespace {

using core::Phase;

constexpr double kCpuBudgetPercent = 10;
constexpr double kStormBudgetSeconds = 5;
constexpr int kNodes = 1000;
constexpr int kRanksPerProcess = 1000;
constexpr Duration kLook = std::chrono::milliseconds(5);
constexpr Duration kWaitLimit = std::chrono::seconds(60);
constexpr rlim_t kOtherDescriptors = 100;

double ResidentKib() {
  uint64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024;
}

double SecondsSince(TimePoint begin) { return ToMilliseconds(SteadyClock::SteadyNow() - begin) / 1000; }

// A descriptor for each connection, in this process and in that of the ranks.
void RaiseDescriptorLimit(int connections) {
  const rlim_t needed =
      static_cast<rlim_t>(connections) * 4 / 3 + kOtherDescriptors;  // the server leaves a quarter free
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed)
    Need({StatusCode::kResourceExhausted, std::to_string(connections) + " connections need " + std::to_string(needed) +
                                              " descriptors, the hard limit is " + std::to_string(limit.rlim_max) +
                                              ": raise it (ulimit -Hn), or choose --ranks below it"});
  limit.rlim_cur = needed;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) Need({StatusCode::kResourceExhausted, "RLIMIT_NOFILE cannot be raised"});
}

// The controller on a thread of its own, and what happened to its run.
class Hub final : private ControllerHost {
 public:
  explicit Hub(int ranks) : ranks_(ranks), secret_(net::Secret::Generate().value()) {
    ControllerOptions options;
    options.job = kSwarmJob;
    options.policy.world_size = ranks;
    options.policy.can_spawn = false;
    options.policy.hang_factor = 0;  // these ranks do no steps
    controller_ =
        std::make_unique<Controller>(io_, options, secret_, static_cast<ControllerHost&>(*this), NullLogSink());
    Need(controller_->Listen());
    controller_->Start();
  }
  ~Hub() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  void Run() {
    thread_ = std::thread([this] { io_.run(); });
  }
  uint16_t port() const { return controller_->port(); }
  const std::shared_ptr<const net::Secret>& secret() const { return secret_; }

  template <typename Ask>
  auto OnThread(Ask ask) {
    std::promise<decltype(ask())> answer;
    boost::asio::post(io_, [&] { answer.set_value(ask()); });
    return answer.get_future().get();
  }
  double CpuSeconds() {
    return OnThread([] { return ThreadTimeNow(); });
  }
  uint64_t authenticated() {
    return OnThread([this] { return controller_->counters().authenticated; });
  }
  // Waits until so many handshakes were made in all, every rank is connected and the run goes on.
  void WaitRunning(uint64_t authenticated) {
    const TimePoint limit = SteadyClock::SteadyNow() + kWaitLimit;
    while (!OnThread([&] { return IsRunning(authenticated); })) {
      const std::string trouble = Trouble();
      if (!trouble.empty() || SteadyClock::SteadyNow() > limit)
        Need({StatusCode::kDeadlineExceeded, "not all ranks joined: " + trouble});
      std::this_thread::sleep_for(kLook);
    }
  }
  // Empty: nobody was given up, and there was no incident but healed ones.
  std::string Trouble() {
    return OnThread([this] {
      if (trouble_.empty() && controller_->core().generation() != Generation(1)) return std::string("a new generation");
      return trouble_;
    });
  }

 private:
  bool IsRunning(uint64_t authenticated) const {
    if (controller_->core().phase() != Phase::kRunning || controller_->counters().authenticated < authenticated)
      return false;
    const auto& members = controller_->core().members();
    return std::all_of(members.begin(), members.end(), [](const auto& m) { return m.connected && m.resumed; });
  }
  void Note(const std::string& what) {
    if (trouble_.empty()) trouble_ = what;
  }

  void Spawn(Rank, Incarnation) override {}
  void Kill(Rank rank, Incarnation, const std::string& why) override {
    Note("rank " + rank.ToString() + " was given up: " + why);
  }
  void OnTransition(const core::Transition& t) override {
    if (t.to == Phase::kLock) Note("an incident went on to LOCK: " + t.reason);
  }
  void OnIncident(const core::IncidentRecord&) override {}
  void OnNotice(Rank, const std::string&) override {}
  void OnEnded(const core::RunEnded& ended) override { Note("the run ended: " + ended.text); }

  const int ranks_;
  const std::shared_ptr<const net::Secret> secret_;
  boost::asio::io_context io_{1};
  std::unique_ptr<Controller> controller_;
  std::thread thread_;
  std::string trouble_;
};

struct Effort {
  int runs = 3;
  double seconds = 5;
};

Figure WithRuns(Figure figure, const std::vector<double>& runs) {
  figure.more["runs"] = Rounded(runs);
  return figure;
}

bool Measure(int ranks, const Effort& effort, Figures* figures) {
  const std::string size = "/" + std::to_string(ranks);
  ::malloc_trim(0);
  Hub hub(ranks);
  const double before_kib = ResidentKib();
  const TimePoint began = SteadyClock::SteadyNow();
  std::vector<std::unique_ptr<ConnectionSwarm>> swarms;
  for (int first = 0; first < ranks; first += kRanksPerProcess)
    swarms.push_back(std::make_unique<ConnectionSwarm>(
        SwarmOptions{.first_rank = first, .ranks = std::min(kRanksPerProcess, ranks - first), .port = hub.port()},
        hub.secret()));
  hub.Run();
  hub.WaitRunning(static_cast<uint64_t>(ranks));
  figures->Add(AtMost("join" + size, SecondsSince(began), "s", {}));

  std::vector<double> shares;
  for (int run = 0; run < effort.runs; ++run) {
    const TimePoint begin = SteadyClock::SteadyNow();
    const double cpu = hub.CpuSeconds();
    std::this_thread::sleep_for(std::chrono::duration<double>(effort.seconds));
    shares.push_back(100 * (hub.CpuSeconds() - cpu) / SecondsSince(begin));
  }
  const bool budgeted = ranks <= kNodes;
  figures->Add(WithRuns(
      AtMost("cpu" + size, Median(shares), "%", budgeted ? std::optional(kCpuBudgetPercent) : std::nullopt), shares));
  figures->Add(AtMost("memory" + size, (ResidentKib() - before_kib) / ranks, "KiB", {}));

  std::vector<double> storms;
  uint64_t handshakes = hub.authenticated();
  for (int run = 0; run < effort.runs; ++run) {
    handshakes += static_cast<uint64_t>(ranks);
    const TimePoint cut = SteadyClock::SteadyNow();
    for (const auto& swarm : swarms) swarm->Cut();
    hub.WaitRunning(handshakes);
    storms.push_back(SecondsSince(cut));
  }
  const std::string trouble = hub.Trouble();
  Figure storm = WithRuns(AtMost("storm" + size, Median(storms), "s", kStormBudgetSeconds), storms);
  storm.more["false_faults"] = trouble;
  storm.ok = storm.ok && trouble.empty();
  figures->Add(storm);
  if (!trouble.empty()) std::cerr << "false fault with " << ranks << " ranks: " << trouble << "\n";
  return trouble.empty();
}

int Main(int argc, char** argv) {
  CLI::App app(
      "What thousands of direct control connections cost one controller: joins, beats, memory, reconnect storms");
  Effort effort;
  std::vector<int> ranks = {1000, 8000};
  std::string json;
  app.add_option("--ranks", ranks, "Direct connections, one rank each")->check(CLI::Range(1, 9999));
  app.add_option("--runs", effort.runs, "Runs of each measurement; the median counts")->check(CLI::Range(1, 100));
  app.add_option("--seconds", effort.seconds, "Length of a run of beats")->check(CLI::Range(0.1, 600.0));
  AddJsonOption(app, &json);
  CLI11_PARSE(app, argc, argv);
  RaiseDescriptorLimit(*std::max_element(ranks.begin(), ranks.end()));
  Figures figures("connections");
  for (const int count : ranks) Measure(count, effort, &figures);
  return figures.Finish(JsonTarget(app, json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
