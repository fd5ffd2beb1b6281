// bench_connections: what thousands of control connections cost one controller on loopback.
//
// The real Controller with the real Server, on one thread; the ranks are real Clients in other processes. NxM: the real
// Leader with N nodes of M ranks, each node one connection that carries its ranks' messages and pages; N: N ranks with
// a connection each.
//
//   join/N       from the first connect until all N ranks are told to run: TCP, mutual proof, join, registration,
//   REBUILD to
//                ROLLBACK with ranks that answer at once
//   cpu/N        the controller thread's CPU time by wall time while all beat (or tell their pages) four times a second
//   memory/N     resident memory of the controller's process for each rank that joined; the core's own part is in it
//   storm/N      all connections are cut at once and come back: until the last rank has joined again and the run goes
//   on.
//                A rank that is given up meanwhile, or a new generation, is a false fault, and the benchmark fails
//
// Budgets: cpu 10 % of a core for 1,000 nodes of 8 or 1,000 connections; every storm in 5 s. 8,000
// direct connections have no budget of CPU: they stand beside the nodes for comparison.
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdio>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "runtime/controller/controller.h"
#include "runtime/launcher/leader/leader.h"
#include "runtime/launcher/run/generation_log.h"
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
constexpr Duration kPollInterval = std::chrono::milliseconds(10);  // a launcher's
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
                                              ": raise it (ulimit -Hn), or choose --sizes below it"});
  limit.rlim_cur = needed;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) Need({StatusCode::kResourceExhausted, "RLIMIT_NOFILE cannot be raised"});
}

// A run's controlling side on a thread of its own.
class Hub {
 public:
  virtual ~Hub() = default;
  virtual void Run() = 0;
  virtual uint16_t port() const = 0;
  virtual const std::shared_ptr<const net::Secret>& secret() const = 0;
  virtual double CpuSeconds() = 0;
  // Waits until all ranks are there and the run goes on; the second time after `Cut` of all of them.
  virtual void WaitRunning() = 0;
  // Empty: nobody was given up, and there was no incident but healed ones.
  virtual std::string Trouble() = 0;
};

class DirectHub final : public Hub, private ControllerHost {
 public:
  explicit DirectHub(int ranks) : ranks_(ranks), secret_(net::Secret::Generate().value()) {
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
  ~DirectHub() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  void Run() override {
    thread_ = std::thread([this] { io_.run(); });
  }
  uint16_t port() const override { return controller_->port(); }
  const std::shared_ptr<const net::Secret>& secret() const override { return secret_; }

  template <typename Ask>
  auto OnThread(Ask ask) {
    std::promise<decltype(ask())> answer;
    boost::asio::post(io_, [&] { answer.set_value(ask()); });
    return answer.get_future().get();
  }
  double CpuSeconds() override {
    return OnThread([] { return ThreadTimeNow(); });
  }
  // That is: so many handshakes were made in all, and every rank is connected.
  void WaitRunning() override {
    handshakes_ += static_cast<uint64_t>(ranks_);
    const TimePoint limit = SteadyClock::SteadyNow() + kWaitLimit;
    while (!OnThread([&] { return IsRunning(handshakes_); })) {
      const std::string trouble = Trouble();
      if (!trouble.empty() || SteadyClock::SteadyNow() > limit)
        Need({StatusCode::kDeadlineExceeded, "not all ranks joined: " + trouble});
      std::this_thread::sleep_for(kLook);
    }
  }
  std::string Trouble() override {
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
  uint64_t handshakes_ = 0;
};

// A leader of several nodes. What it says of its run, as the display and the log do, tells how it is.
class NodesHub final : public Hub, private LogSink {
 public:
  NodesHub(int nodes, int per_node) : secret_(net::Secret::Generate().value()) {
    LeaderOptions options;
    options.run.job = kSwarmJob;
    options.run.nodes = nodes;
    options.run.policy.world_size = nodes * per_node;
    options.run.policy.hang_factor = 0;  // these ranks do no steps
    const std::shared_ptr<LogSink> notes(static_cast<LogSink*>(this), [](LogSink*) {});
    leader_ = std::make_unique<Leader>(io_, std::move(options), secret_, nullptr,
                                       std::make_shared<GenerationLog>(notes), [this] { Note("the run ended"); });
    Need(leader_->Listen());
    leader_->OnProgress([this, ranks = nodes * per_node](const RunProgress& progress) {
      all_run_ = progress.phase == Phase::kRunning && progress.ranks_ready == ranks && leader_->NodesAway().empty();
    });
    leader_->Start();
    Poll();
  }
  ~NodesHub() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  void Run() override {
    thread_ = std::thread([this] { io_.run(); });
  }
  uint16_t port() const override { return leader_->port(); }
  const std::shared_ptr<const net::Secret>& secret() const override { return secret_; }
  double CpuSeconds() override {
    std::promise<double> answer;
    boost::asio::post(io_, [&] { answer.set_value(ThreadTimeNow()); });
    return answer.get_future().get();
  }
  // A cut is noticed at once, a run that goes on within a tenth of a second.
  void WaitRunning() override {
    const TimePoint limit = SteadyClock::SteadyNow() + kWaitLimit;
    for (const bool wanted : {false, true})
      while (all_run_ != wanted) {
        const std::string trouble = Trouble();
        if (!trouble.empty() || SteadyClock::SteadyNow() > limit)
          Need({StatusCode::kDeadlineExceeded, "not all nodes are there: " + trouble});
        std::this_thread::sleep_for(kLook);
      }
  }
  std::string Trouble() override {
    std::lock_guard lock(mutex_);
    return trouble_;
  }

 private:
  void Poll() {
    leader_->Poll();
    timer_.expires_after(kPollInterval);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Poll();
    });
  }
  void Write(LogLevel, std::string_view line) override {
    if (line.find("to=LOCK") != std::string_view::npos) Note(std::string(line));
    if (line.find("from=RUNNING") != std::string_view::npos) all_run_ = false;
  }
  void Note(const std::string& what) {
    std::lock_guard lock(mutex_);
    if (trouble_.empty()) trouble_ = what;
  }

  const std::shared_ptr<const net::Secret> secret_;
  boost::asio::io_context io_{1};
  boost::asio::steady_timer timer_{io_};
  std::unique_ptr<Leader> leader_;
  std::thread thread_;
  std::atomic<bool> all_run_ = false;
  std::mutex mutex_;
  std::string trouble_;  // guarded by mutex_
};

struct Effort {
  int runs = 3;
  double seconds = 5;
};

Figure WithRuns(Figure figure, const std::vector<double>& runs) {
  figure.more["runs"] = Rounded(runs);
  return figure;
}

// "8000": so many ranks, each directly; "1000x8": so many nodes of so many ranks.
struct Size {
  int ranks = 0;
  int per_node = 0;
  int connections() const { return per_node > 0 ? ranks / per_node : ranks; }
  std::string ToString() const {
    return per_node > 0 ? std::to_string(connections()) + "x" + std::to_string(per_node) : std::to_string(ranks);
  }
};

Size ParseSize(const std::string& text) {
  int first = 0, second = 0, end = 0;
  const int found = std::sscanf(text.c_str(), "%5d%nx%5d%n", &first, &end, &second, &end);
  const bool whole = found >= 1 && end == static_cast<int>(text.size());
  const Size size = found == 2 ? Size{first * second, second} : Size{first, 0};
  if (!whole || size.ranks < 1 || size.ranks > 99'999 || size.connections() > 9'999 || (found == 2 && second < 1))
    Need({StatusCode::kInvalidArgument,
          "--sizes " + text + ": N (direct connections) or NxM (nodes and ranks of each)"});
  return size;
}

std::unique_ptr<Hub> MakeHub(const Size& size) {
  if (size.per_node > 0) return std::make_unique<NodesHub>(size.connections(), size.per_node);
  return std::make_unique<DirectHub>(size.ranks);
}

bool Measure(const Size& measured, const Effort& effort, Figures* figures) {
  const std::string size = "/" + measured.ToString();
  const int ranks = measured.ranks;
  ::malloc_trim(0);
  const std::unique_ptr<Hub> hub = MakeHub(measured);
  const double before_kib = ResidentKib();
  const TimePoint began = SteadyClock::SteadyNow();
  std::vector<std::unique_ptr<ConnectionSwarm>> swarms;
  const int per_process = kRanksPerProcess / std::max(1, measured.per_node) * std::max(1, measured.per_node);
  for (int first = 0; first < ranks; first += per_process)
    swarms.push_back(
        std::make_unique<ConnectionSwarm>(SwarmOptions{.first_rank = first,
                                                       .ranks = std::min(per_process, ranks - first),
                                                       .ranks_per_node = measured.per_node,
                                                       .nodes = measured.per_node > 0 ? measured.connections() : 0,
                                                       .port = hub->port()},
                                          hub->secret()));
  hub->Run();
  hub->WaitRunning();
  figures->Add(AtMost("join" + size, SecondsSince(began), "s", {}));

  std::vector<double> shares;
  for (int run = 0; run < effort.runs; ++run) {
    const TimePoint begin = SteadyClock::SteadyNow();
    const double cpu = hub->CpuSeconds();
    std::this_thread::sleep_for(std::chrono::duration<double>(effort.seconds));
    shares.push_back(100 * (hub->CpuSeconds() - cpu) / SecondsSince(begin));
  }
  const bool budgeted = measured.connections() <= kNodes;
  figures->Add(WithRuns(
      AtMost("cpu" + size, Median(shares), "%", budgeted ? std::optional(kCpuBudgetPercent) : std::nullopt), shares));
  figures->Add(AtMost("memory" + size, (ResidentKib() - before_kib) / ranks, "KiB", {}));

  std::vector<double> storms;
  for (int run = 0; run < effort.runs; ++run) {
    const TimePoint cut = SteadyClock::SteadyNow();
    for (const auto& swarm : swarms) swarm->Cut();
    hub->WaitRunning();
    storms.push_back(SecondsSince(cut));
  }
  const std::string trouble = hub->Trouble();
  Figure storm = WithRuns(AtMost("storm" + size, Median(storms), "s", kStormBudgetSeconds), storms);
  storm.more["false_faults"] = trouble;
  storm.ok = storm.ok && trouble.empty();
  figures->Add(storm);
  if (!trouble.empty()) std::cerr << "false fault with " << ranks << " ranks: " << trouble << "\n";
  return trouble.empty();
}

int Main(int argc, char** argv) {
  CLI::App app("What thousands of control connections cost one controller: joins, beats, memory, reconnect storms");
  Effort effort;
  std::vector<std::string> texts = {"1000x8", "1000", "8000"};
  std::string json;
  app.add_option("--sizes", texts,
                 "N: direct connections, one rank each; NxM: N nodes of M ranks, one connection each");
  app.add_option("--runs", effort.runs, "Runs of each measurement; the median counts")->check(CLI::Range(1, 100));
  app.add_option("--seconds", effort.seconds, "Length of a run of beats")->check(CLI::Range(0.1, 600.0));
  AddJsonOption(app, &json);
  CLI11_PARSE(app, argc, argv);
  std::vector<Size> sizes;
  int connections = 0;
  for (const std::string& text : texts)
    connections = std::max(connections, sizes.emplace_back(ParseSize(text)).connections());
  RaiseDescriptorLimit(connections);
  Figures figures("connections");
  for (const Size& size : sizes) Measure(size, effort, &figures);
  return figures.Finish(JsonTarget(app, json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
