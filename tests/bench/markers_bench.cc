// bench_markers: what BeginUpdate + EndUpdate cost when nothing is wrong, without the gate's own barrier.
//
//   gate-off       the pair alone                       budget 0.2 us
//   trainer-gate   with a gate function that returns at once: the pair and what surrounds the barrier
// and the proof that a pair neither allocates (operator new counts) nor calls the system: a child process that a seccomp
// filter kills at its first system call goes through the loop; another one, which makes a call, must be killed.
#include <benchmark/benchmark.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/bench/allocation_counter.h"
#include "tests/bench/figures.h"
#include "tests/bench/lone_agent.h"

namespace kintsugi::bench {
namespace {

constexpr double kBudgetUs = 0.2;
// A marker pair of MindIO TTP, measured on this kind of machine.
constexpr double kMindIoPairUs = 2.3;
constexpr const char* kMindIoSource = "MindIO TTP's pair of markers, measured on this kind of machine";
constexpr uint64_t kProofPairs = 1'000'000;

struct Options {
  int runs = 9;
  std::string json;
};

// ---- the pair ----------------------------------------------------------------------------------------------------

inline bool Pair(Agent& agent, Step step) { return agent.BeginUpdate(step).ok() && agent.EndUpdate(step).ok(); }

[[gnu::noinline]] bool Empty(Agent& agent, Step step) {
  benchmark::DoNotOptimize(&agent);
  return step.value() != 0;
}

struct Measured {
  std::vector<double> pair_us, empty_us;
  uint64_t allocations = 0;
  uint64_t pairs = 0;
  bool no_call = false;
};

class Collector final : public benchmark::BenchmarkReporter {
 public:
  explicit Collector(Measured& measured) : measured_(measured) {}
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      const double us = run.GetAdjustedRealTime() / 1000;
      (run.run_name.function_name == "pair" ? measured_.pair_us : measured_.empty_us).push_back(us);
    }
  }

 private:
  Measured& measured_;
};

// ---- the proofs --------------------------------------------------------------------------------------------------

// From here on the calling process dies of any system call but exit_group.
bool ForbidSystemCalls() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
  const sock_fprog program{sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Whether `body` made no system call, and returned true, in a child process.
template <typename Body>
bool MakesNoCall(Body body) {
  const pid_t child = fork();
  if (child < 0) Need({StatusCode::kResourceExhausted, std::string("fork: ") + std::strerror(errno)});
  if (child == 0) {
    if (!ForbidSystemCalls()) _exit(2);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
    Need({StatusCode::kPermissionDenied, "seccomp filters are not allowed here, so system calls cannot be ruled out"});
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool ProveNoCall(Agent& agent, Step first) {
  // The agent's page is private here: what the child does to it stays in the child.
  const bool quiet = MakesNoCall([&] {
    Step step = first;
    for (uint64_t i = 0; i < kProofPairs; ++i, step = step.Next())
      if (!Pair(agent, step)) return false;
    return true;
  });
  const bool planted = MakesNoCall([] { return syscall(SYS_getppid) >= 0; });
  if (planted) Need({StatusCode::kInternal, "the filter let a system call pass: it proves nothing"});
  return quiet;
}

// ------------------------------------------------------------------------------------------------------------------

Measured Measure(GateMode gate, int runs) {
  Measured measured;
  LoneAgent lone(gate);
  lone.Run([&](Step first) {
    Agent& agent = lone.agent();
    Step step = first.Next();
    measured.no_call = ProveNoCall(agent, step);

    benchmark::ClearRegisteredBenchmarks();
    benchmark::RegisterBenchmark("pair",
                                 [&](benchmark::State& state) {
                                   const uint64_t before = AllocationsOfThisThread();
                                   for (auto _ : state) {
                                     if (!Pair(agent, step)) std::abort();
                                     step = step.Next();
                                   }
                                   measured.allocations += AllocationsOfThisThread() - before;
                                   measured.pairs += static_cast<uint64_t>(state.iterations());
                                 })
        ->Repetitions(runs);
    benchmark::RegisterBenchmark("empty",
                                 [&](benchmark::State& state) {
                                   Step number(1);
                                   for (auto _ : state) {
                                     if (!Empty(agent, number)) std::abort();
                                     number = number.Next();
                                   }
                                 })
        ->Repetitions(runs);
    Collector collector(measured);
    benchmark::RunSpecifiedBenchmarks(&collector);
  });
  if (measured.pair_us.empty() || measured.empty_us.empty()) Need({StatusCode::kInternal, "nothing was measured"});
  return measured;
}

void AddFigures(Figures& figures, const std::string& name, const Measured& measured) {
  Figure pair = AtMost("pair/" + name, Median(measured.pair_us), "us", kBudgetUs);
  pair.baseline = kMindIoPairUs;
  pair.more = {{"baseline_source", kMindIoSource}, {"runs", Rounded(measured.pair_us)}};
  figures.Add(pair);
  Figure empty = AtMost("pair/" + name + "/vs-empty-function", pair.value, "us", {});
  empty.baseline = Median(measured.empty_us);
  empty.more["baseline_source"] = "one call of an empty function, same run";
  figures.Add(empty);
  Figure allocated = AtMost("allocations/" + name, static_cast<double>(measured.allocations), "count", 0);
  allocated.more["pairs"] = measured.pairs;
  figures.Add(allocated);
  Figure calls = AtMost("system-calls/" + name, measured.no_call ? 0 : 1, "count", 0);
  calls.more["pairs"] = kProofPairs;
  calls.more["how"] = "1: a child under a seccomp filter was killed by its first one";
  figures.Add(calls);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"What BeginUpdate + EndUpdate cost without an incident"};
  app.add_option("--runs", options.runs, "Repetitions")->check(CLI::Range(1, 1000))->capture_default_str();
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  int none = 1;
  benchmark::Initialize(&none, argv);
  Figures figures("markers");
  AddFigures(figures, "gate-off", Measure(GateMode::kOff, options.runs));
  AddFigures(figures, "trainer-gate", Measure(GateMode::kTrainer, options.runs));
  return figures.Finish(JsonTarget(app, options.json));
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
