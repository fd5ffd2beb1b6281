// bench_overhead: what the agent costs a training step when nothing is wrong.
//
// Two ranks of byte_lm, with a batch that makes a step about 20 ms, in blocks with (A) and without (B) the agent, in the
// order A B B A, so that a drift of the machine cancels out: each such group gives one difference, and the interval is
// Student's over the groups. B runs the same stages over the same Gloo groups with no call of the agent.
// The budget is on CPU time, which a busy machine blurs less: the agent's threads plus the markers, <= 0.2 % of the wall
// time. The gate's barrier and the exchange of mirrored objects, timed in a loop between ranks that wait for nothing else,
// stand beside it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tests/bench/lone_agent.h"
#include "tests/bench/overhead_rank.h"
#include "tests/support/directory_store.h"

namespace kintsugi::bench {
namespace {

constexpr double kBudgetPercent = 0.2;
constexpr int kMarkerRuns = 9;
constexpr int kMarkerSteps = 5'000;

struct Options {
  RankOptions rank;
  double step_ms = 20;
  int groups = 6;
  bool worker = false;
  std::string folder;
  std::string json;
};

// Two-sided 95 % of Student's t with n - 1 degrees of freedom.
double Student95(size_t n) {
  constexpr std::array kTable = {12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179};
  if (n < 2) return std::nan("");
  return n - 2 < kTable.size() ? kTable[n - 2] : 2.1;
}

std::vector<RankFigures> ReadAll(const RankOptions& options) {
  std::vector<RankFigures> all;
  for (int rank = 0; rank < options.world_size; ++rank) all.push_back(ReadRank(options.folder, rank));
  return all;
}

void Await(pid_t child, const std::string& what) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    Need({StatusCode::kInternal, what + " ended with status " + std::to_string(status)});
}

std::vector<RankFigures> Without(RankOptions options) {
  const TemporaryDirectory folder;
  options.folder = folder.path();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < options.world_size; ++rank) {
    const pid_t child = fork();
    if (child < 0) Need({StatusCode::kResourceExhausted, "cannot fork a rank"});
    if (child == 0) {
      RunWithoutAgent(options, Rank(rank));
      _exit(0);
    }
    ranks.push_back(child);
  }
  for (const pid_t child : ranks) Await(child, "a rank without the agent");
  return ReadAll(options);
}

std::vector<RankFigures> With(RankOptions options) {
  const TemporaryDirectory folder;
  options.folder = folder.path();
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::vector<std::string> words = {
      (self.parent_path() / "kintsugi").string(), "run", "--quiet", "--nproc", std::to_string(options.world_size),
      "--save-dir", "", "--silence", "10", "--", self.string(), "--worker", "--folder", folder.path().string(),
      "--batch", std::to_string(options.batch), "--steps", std::to_string(options.steps)};
  const pid_t child = fork();
  if (child < 0) Need({StatusCode::kResourceExhausted, "cannot fork the launcher"});
  if (child == 0) {
    std::vector<char*> args;
    for (const std::string& word : words) args.push_back(const_cast<char*>(word.c_str()));
    args.push_back(nullptr);
    execv(args[0], args.data());
    _exit(127);
  }
  Await(child, "the run with the agent");
  return ReadAll(options);
}

double StepMs(const std::vector<RankFigures>& ranks) {
  return std::accumulate(ranks.begin(), ranks.end(), 0.0, [](double s, const auto& r) { return s + r.step_ms; }) /
         static_cast<double>(ranks.size());
}

double Highest(const std::vector<RankFigures>& ranks, double RankFigures::*field) {
  double highest = 0;
  for (const RankFigures& rank : ranks) highest = std::max(highest, rank.*field);
  return highest;
}

// Everything that a step of byte_lm calls, with a gate function that returns at once.
double MarkersUs() {
  constexpr std::array kPhases = {TrainPhase::kForward, TrainPhase::kBackward, TrainPhase::kGradientSync, TrainPhase::kGate,
                                  TrainPhase::kUpdate, TrainPhase::kParamSync, TrainPhase::kBetween};
  const std::vector<uint64_t> samples(8, 1);
  std::vector<double> us;
  LoneAgent lone(GateMode::kTrainer);
  lone.Run([&](Step first) {
    Agent& agent = lone.agent();
    Step step = first;
    for (int run = 0; run < kMarkerRuns; ++run) {
      const TimePoint begin = SteadyClock::SteadyNow();
      for (int i = 0; i < kMarkerSteps; ++i) {
        step = step.Next();
        Need(agent.BeginStep(step));
        for (const TrainPhase phase : kPhases) Need(agent.EnterPhase(step, phase));
        Need(agent.Report(step, 1.0, samples));
        Need(agent.BeginUpdate(step));
        Need(agent.EndUpdate(step));
      }
      us.push_back(static_cast<double>((SteadyClock::SteadyNow() - begin).count()) / 1e3 / kMarkerSteps);
    }
  });
  return Median(us);
}

void Measure(const Options& options, Figures& figures) {
  RankOptions rank = options.rank;
  if (rank.batch == 0) {
    RankOptions trial = rank;
    trial.batch = 8;
    trial.steps = 50;
    const double ms = StepMs(Without(trial));
    rank.batch = std::max<int64_t>(1, std::llround(static_cast<double>(trial.batch) * options.step_ms / ms));
  }
  std::vector<double> differences, with_ms, without_ms, agent, launcher;
  for (int group = 0; group < options.groups; ++group) {
    double with = 0, without = 0;
    for (const bool with_agent : {true, false, false, true}) {
      const auto ranks = with_agent ? With(rank) : Without(rank);
      const double ms = StepMs(ranks);
      (with_agent ? with : without) += ms / 2;
      (with_agent ? with_ms : without_ms).push_back(ms);
      if (!with_agent) continue;
      agent.push_back(100 * Highest(ranks, &RankFigures::agent_cpu_share));
      launcher.push_back(100 * Highest(ranks, &RankFigures::launcher_cpu_share));
    }
    differences.push_back(100 * (with - without) / without);
  }
  const auto count = static_cast<double>(differences.size());
  const double mean = std::accumulate(differences.begin(), differences.end(), 0.0) / count;
  double squares = 0;
  for (const double d : differences) squares += (d - mean) * (d - mean);
  const double half = Student95(differences.size()) * std::sqrt(squares / std::max(count - 1, 1.0) / count);

  Figure step = AtMost("step", Median(with_ms), "ms", {});
  step.baseline = Median(without_ms);
  step.more = {{"batch", rank.batch}, {"runs", Rounded(with_ms)}, {"baseline_runs", Rounded(without_ms)}};
  figures.Add(step);
  Figure wall = AtMost("wall-clock-overhead", Median(differences), "%", {});
  wall.more = {{"mean", mean}, {"interval_95", {mean - half, mean + half}}, {"runs", Rounded(differences)}};
  figures.Add(wall);

  const double markers_us = MarkersUs();
  const double markers_percent = markers_us / (Median(with_ms) * 1e3) * 100;
  Figure cpu = AtMost("agent-cpu-and-markers", Median(agent) + markers_percent, "%", kBudgetPercent);
  cpu.more = {{"runs", Rounded(agent)}};
  figures.Add(cpu);
  figures.Add(AtMost("agent-cpu", Median(agent), "%", {}));
  figures.Add(AtMost("markers-per-step", markers_us, "us", {}));
  figures.Add(AtMost("launcher-cpu", Median(launcher), "%", {}));

  RankOptions probe = rank;
  probe.steps = 10;
  probe.probes = 5000;
  const auto probed = Without(probe);
  figures.Add(AtMost("gate-barrier", Highest(probed, &RankFigures::barrier_us), "us", {}));
  figures.Add(AtMost("mirror-exchange", Highest(probed, &RankFigures::mirror_us), "us", {}));
}

int Main(int argc, char** argv) {
  Options options;
  options.rank.batch = 0;
  CLI::App app{"What the agent costs a training step when nothing is wrong"};
  app.add_option("--groups", options.groups, "Groups of four blocks: with, without, without, with the agent")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--steps", options.rank.steps, "Measured steps of a block")->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--step-ms", options.step_ms, "Step time that the batch is chosen for")->check(CLI::Range(1.0, 10000.0))
      ->capture_default_str();
  app.add_option("--batch", options.rank.batch, "Windows per rank and step; default: whatever takes --step-ms");
  app.add_option("--folder", options.folder)->group("");
  app.add_flag("--worker", options.worker)->group("");
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  options.rank.folder = options.folder;
  if (options.worker) {
    RunWithAgent(options.rank);
    return 0;
  }
  Figures figures("overhead");
  Measure(options, figures);
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
