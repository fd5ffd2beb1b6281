// bench_snapshot: what in-memory snapshots cost a training step.
//
// Four ranks of byte_lm in blocks with (A) and without (B) snapshots, in the order A B B A, so that a drift of the
// machine cancels out. The budget is on CPU time: the threads that copy, send and receive, on the rank that has the
// most to do. With an interval of 1 a snapshot is under way all the time: an upper bound. --every auto shows what it
// settles at.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tests/bench/overhead_rank.h"
#include "tests/support/directory_store.h"

namespace kintsugi::bench {
namespace {

// What `auto` promises, with room for what is learnt before the first interval is chosen.
constexpr double kAutoBudgetPercent = 2;

struct Options {
  RankOptions rank;
  std::string every = "auto";
  int groups = 3;
  bool worker = false;
  std::string folder;
  std::string json;
};

std::vector<RankFigures> Block(RankOptions options, const std::string& every) {
  const TemporaryDirectory folder;
  options.folder = folder.path();
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::vector<std::string> words = {(self.parent_path() / "kintsugi").string(),
                                          "run",
                                          "--quiet",
                                          "--nproc",
                                          std::to_string(options.world_size),
                                          "--save-dir",
                                          "",
                                          "--silence",
                                          "10",
                                          "--snapshot-every",
                                          every,
                                          "--",
                                          self.string(),
                                          "--worker",
                                          "--folder",
                                          folder.path().string(),
                                          "--batch",
                                          std::to_string(options.batch),
                                          "--steps",
                                          std::to_string(options.steps),
                                          "--mib",
                                          std::to_string(options.ballast_mib)};
  const pid_t child = fork();
  if (child < 0) Need({StatusCode::kResourceExhausted, "cannot fork the launcher"});
  if (child == 0) {
    std::vector<char*> args;
    for (const std::string& word : words) args.push_back(const_cast<char*>(word.c_str()));
    args.push_back(nullptr);
    execv(args[0], args.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    Need({StatusCode::kInternal,
          "a run with --snapshot-every " + every + " ended with status " + std::to_string(status)});
  std::vector<RankFigures> all;
  for (int rank = 0; rank < options.world_size; ++rank) all.push_back(ReadRank(folder.path(), rank));
  return all;
}

double StepMs(const std::vector<RankFigures>& ranks) {
  double sum = 0;
  for (const RankFigures& rank : ranks) sum += rank.step_ms;
  return sum / static_cast<double>(ranks.size());
}

void Measure(const Options& options, Figures& figures) {
  std::vector<double> with_ms, without_ms, differences, copying;
  for (int group = 0; group < options.groups; ++group) {
    double with = 0, without = 0;
    for (const bool snapshots : {true, false, false, true}) {
      const auto ranks = Block(options.rank, snapshots ? options.every : "0");
      const double ms = StepMs(ranks);
      (snapshots ? with : without) += ms / 2;
      (snapshots ? with_ms : without_ms).push_back(ms);
      double highest = 0;
      for (const RankFigures& rank : ranks) highest = std::max(highest, 100 * rank.snapshot_cpu_share);
      if (snapshots) copying.push_back(highest);
    }
    differences.push_back(100 * (with - without) / without);
  }
  Figure step = AtMost("step", Median(with_ms), "ms", {});
  step.baseline = Median(without_ms);
  step.more = {{"every", options.every},
               {"mib", options.rank.ballast_mib},
               {"runs", Rounded(with_ms)},
               {"baseline_runs", Rounded(without_ms)}};
  figures.Add(step);
  Figure wall = AtMost("wall-clock-overhead", Median(differences), "%", {});
  wall.more = {{"runs", Rounded(differences)}};
  figures.Add(wall);
  Figure cpu = AtMost("snapshot-cpu", Median(copying), "%",
                      options.every == "auto" ? std::optional(kAutoBudgetPercent) : std::nullopt);
  cpu.more = {{"runs", Rounded(copying)}};
  figures.Add(cpu);
}

int Main(int argc, char** argv) {
  Options options;
  options.rank.world_size = 4;
  CLI::App app{"What in-memory snapshots cost a training step"};
  app.add_option("--groups", options.groups, "Groups of four blocks: with, without, without, with snapshots")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--steps", options.rank.steps, "Measured steps of a block")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--every", options.every, "Steps between snapshots, or 'auto'")->capture_default_str();
  app.add_option("--mib", options.rank.ballast_mib, "Further registered state of each rank")->capture_default_str();
  app.add_option("--batch", options.rank.batch, "Windows per rank and step")->capture_default_str();
  app.add_option("--folder", options.folder)->group("");
  app.add_flag("--worker", options.worker)->group("");
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  options.rank.folder = options.folder;
  if (options.worker) {
    RunWithAgent(options.rank);
    return 0;
  }
  Figures figures("snapshot");
  Measure(options, figures);
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
