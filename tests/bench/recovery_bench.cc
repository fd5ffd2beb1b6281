// bench_recovery: how long an incident takes, by kind of fault and size of state.
//
// Each run is a real job: `kintsugi run` around byte_lm with one injected fault; the milliseconds are the summary's, from
// the injector's stamp to the last rank reaching the point. The budgets that depend on the size of
// the state allow the transfer (repaired - rebuilt) on top.
// --ranks 4,8,16,32 shows instead how an incident grows with the ranks on this host's cores: a kill and an exception over a
// model small enough that computing a step does not hide it, each phase, and CPU time beside wall clock. CPU is what the whole
// run used, launcher and ranks, beyond a run of the same length without a fault; a kill's includes the program's new start.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/bench/figures.h"
#include "tests/support/directory_store.h"

namespace kintsugi::bench {
namespace {

// Until all ranks step together again, measured on this kind of machine (4 small ranks on loopback, medians).
struct Peer {
  const char* name;
  double milliseconds;
};
constexpr const char* kPeerSource = "measured on this kind of machine, 4 small ranks on loopback";
constexpr Peer kMindIoMemoryError{"MindIO TFT, no-op handlers", 2300};
constexpr Peer kMindIoKill{"MindIO TFT, instant respawn", 10800};
constexpr std::array kKillPeers = {kMindIoKill, Peer{"torchft 0.2.0, defaults", 5100},
                                   Peer{"torchft 0.2.0, tuned", 1700}, Peer{"torchrun", 3700},
                                   Peer{"NVRx 0.4.1", 3800}};

// A spare has to be there before it is needed: a run with one is so much longer.
constexpr int kStepsForSpares = 10, kStepsForSlowSpares = 25;
constexpr double kDetectKillMs = 20, kParkMs = 100, kExceptionMs = 200, kKillMs = 500;
constexpr std::array kPoints = {"detected", "parked", "rebuilt", "repaired", "resumed"};

struct Options {
  int runs = 7;
  int nproc = 4;
  int steps = 40;
  uint64_t ballast_mib = 256;
  std::vector<std::string> only;
  std::vector<int> ranks;  // growth instead of the scenarios
  std::string json;
};

struct Scenario {
  std::string name;
  std::string kind;   // of the injection
  std::string place;  // its phase and settings
  double silence = 1.0;
  uint64_t ballast_mib = 0;
  int spares = 0;
  std::string model;        // further words for the program
  bool slow_start = false;  // the program takes a second more to start, as an interpreter with its imports does
};

using Times = std::array<double, kPoints.size()>;

std::filesystem::path BinDirectory() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }

std::string Quoted(const std::string& text) { return "'" + text + "'"; }

// CPU time of the children that have ended.
double ChildrenCpuMs() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return 1e3 * static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-3 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// The injected fault's incident, from the record of the run; nothing where none was injected.
Json RunJob(const Options& options, const Scenario& scenario, const std::filesystem::path& folder) {
  const auto bin = BinDirectory();
  const std::string log = (folder / "log").string();
  const int longer = scenario.slow_start ? kStepsForSlowSpares : kStepsForSpares;
  const int steps = scenario.spares > 0 ? longer * options.steps : options.steps;
  const std::string slowly = scenario.slow_start ? "/bin/sh -c " + Quoted("sleep 1; exec \"$@\"") + " sh " : "";
  std::string command = Quoted((bin / "kintsugi").string()) + " run --nproc " + std::to_string(options.nproc) +
                        " --json - --log-level info --save-dir '' --silence " + std::to_string(scenario.silence) +
                        (scenario.kind.empty() ? ""
                                               : " --inject " + scenario.kind + ":2@" + std::to_string(steps / 2) +
                                                     ":" + scenario.place) +
                        " --report " + Quoted((folder / "report").string()) + " --spares " +
                        std::to_string(scenario.spares) + " -- " + slowly + Quoted((bin / "byte_lm").string()) +
                        " --samples 0 --steps " + std::to_string(steps) + " " + scenario.model;
  if (scenario.ballast_mib > 0) command += " --ballast-mib " + std::to_string(scenario.ballast_mib);
  command += " 2>" + Quoted(log);
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) Need({StatusCode::kResourceExhausted, "cannot start: " + command});
  std::array<char, 4096> piece;
  while (fread(piece.data(), 1, piece.size(), pipe) > 0) {
  }
  const int status = pclose(pipe);
  if (status == 0 && scenario.kind.empty()) return {};
  std::ifstream file(folder / "report" / "record.json");
  const Json summary = Json::parse(file, nullptr, false);
  if (status == 0 && !summary.is_discarded())
    for (const Json& incident : summary["incidents"])
      // A machine busy with other work may add an alarm of its own; it is another incident and no part of this one.
      if (incident["fault"] == scenario.kind && (scenario.spares == 0 || incident["path"] == "spare")) return incident;
  Need({StatusCode::kInternal, "the run (status " + std::to_string(status) +
                                   ") did not go through its incident; its words are in " + log + "\n" + command});
  return {};
}

Times TimesOf(const Json& incident) {
  Times times{};
  for (size_t i = 0; i < kPoints.size(); ++i) {
    const Json& value = incident[std::string(kPoints[i]) + "_ms"];
    if (value.is_null())
      Need({StatusCode::kInternal, std::string("not reached: ") + kPoints[i] + " in " + incident.dump()});
    times[i] = value.get<double>();
  }
  return times;
}

std::vector<double> Column(const std::vector<Times>& runs, size_t point) {
  std::vector<double> values;
  for (const Times& times : runs) values.push_back(times[point]);
  return values;
}

// Budgets that the issue sets for a scenario's points; parked and resumed are checked on what they allow for.
void AddFigures(Figures& figures, const Scenario& scenario, const std::vector<Times>& runs) {
  for (size_t i = 0; i < kPoints.size(); ++i) {
    const bool kill_known = scenario.kind == "kill" && i == 0;
    Figure figure = AtMost(scenario.name + "/" + kPoints[i], Median(Column(runs, i)), "ms",
                           kill_known ? std::optional(kDetectKillMs) : std::nullopt);
    figure.more["runs"] = Rounded(Column(runs, i));
    if (i + 1 == kPoints.size()) {
      const Peer& peer = scenario.kind == "kill" || scenario.kind == "freeze" ? kMindIoKill : kMindIoMemoryError;
      figure.baseline = peer.milliseconds;
      figure.more["baseline_source"] = std::string(peer.name) + ", " + kPeerSource;
    }
    figures.Add(figure);
  }
  std::vector<double> parking, stepping, transfer, after;
  for (const auto& [detected, parked, rebuilt, repaired, resumed] : runs) {
    parking.push_back(parked - detected);
    transfer.push_back(repaired - rebuilt);
    after.push_back(resumed - repaired);
    stepping.push_back(resumed - (repaired - rebuilt));
  }
  figures.Add(AtMost(scenario.name + "/parked-after-detected", Median(parking), "ms", kParkMs));
  figures.Add(AtMost(scenario.name + "/transfer", Median(transfer), "ms", std::nullopt));
  // Digests of the whole state, rollback, and the step's own beginning.
  figures.Add(AtMost(scenario.name + "/resumed-after-repaired", Median(after), "ms", std::nullopt));
  std::optional<double> budget;
  if (scenario.kind == "kill" && !(scenario.slow_start && scenario.spares == 0)) budget = kKillMs;
  if (scenario.kind == "throw") budget = kExceptionMs;
  Figure figure = AtMost(scenario.name + "/resumed-without-transfer", Median(stepping), "ms", budget);
  figure.more["runs"] = Rounded(stepping);
  figures.Add(figure);
}

std::vector<Scenario> Scenarios(const Options& options) {
  std::vector<Scenario> all;
  for (const uint64_t ballast : {uint64_t{0}, options.ballast_mib}) {
    const std::string state = ballast == 0 ? "/small" : "/" + std::to_string(ballast) + "MiB";
    all.push_back({"kill" + state, "kill", "update", 1.0, ballast});
    all.push_back({"kill-adopt" + state, "kill", "backward", 1.0, ballast});    // its memory was held: nothing moves
    all.push_back({"kill-spare" + state, "kill", "update", 1.0, ballast, 1});   // a warm process waits
    all.push_back({"throw" + state, "throw", "update", 1.0, ballast});          // torn: repaired from its replica
    all.push_back({"throw-retry" + state, "throw", "backward", 1.0, ballast});  // nothing is lost
    all.push_back({"freeze-0.3s" + state, "freeze", "update", 0.3, ballast});
    all.push_back({"freeze-1s" + state, "freeze", "update", 1.0, ballast});
    all.push_back({"uce-patch" + state, "uce", "backward", 1.0, ballast});
    all.push_back({"uce-rebuild" + state, "uce", "backward,level=high", 1.0, ballast});
  }
  all.push_back({"kill-slow-start/small", "kill", "update", 1.0, 0, 0, "", true});
  all.push_back({"kill-slow-start-spare/small", "kill", "update", 1.0, 0, 1, "", true});
  if (options.only.empty()) return all;
  std::erase_if(all, [&](const Scenario& s) {
    return std::none_of(options.only.begin(), options.only.end(),
                        [&](const std::string& word) { return s.name.find(word) != std::string::npos; });
  });
  if (all.empty()) Need({StatusCode::kInvalidArgument, "no scenario's name contains what --only asks for"});
  return all;
}

// ---- growth with the ranks ---------------------------------------------------------------------------------------

struct Growth {
  double total_ms = 0, cpu_ms = 0;
  std::map<std::string, double> phases;
};

Growth GrowthOf(const Json& incident) {
  Growth growth;
  growth.total_ms = incident["resumed_ms"].get<double>();
  for (const Json& span : incident["phases"])
    growth.phases[span["phase"].get<std::string>()] +=
        (span["end_ns"].get<double>() - span["start_ns"].get<double>()) / 1e6;
  return growth;
}

void AddGrowth(Figures& figures, const std::string& name, const std::vector<Growth>& runs) {
  const auto add = [&](const std::string& what, const auto& value) {
    std::vector<double> values;
    for (const Growth& run : runs) values.push_back(value(run));
    Figure figure = AtMost(name + "/" + what, Median(values), "ms", std::nullopt);
    figure.more["runs"] = Rounded(values);
    figures.Add(figure);
  };
  add("resumed", [](const Growth& run) { return run.total_ms; });
  add("cpu", [](const Growth& run) { return run.cpu_ms; });
  for (const auto& phase : runs.front().phases)
    add(phase.first, [&](const Growth& run) {
      const auto at = run.phases.find(phase.first);
      return at == run.phases.end() ? 0.0 : at->second;
    });
}

int ShowGrowth(const Options& options) {
  const std::string small = "--layers 1 --width 32 --heads 2 --context 32 --batch 1";
  const std::vector<Scenario> faults = {{"kill", "kill", "update", 10.0, 0, 0, small},
                                        {"exception", "throw", "backward", 10.0, 0, 0, small}};
  Figures figures("recovery");
  const TemporaryDirectory folder;
  for (const int ranks : options.ranks) {
    Options of = options;
    of.nproc = ranks;
    std::map<std::string, std::vector<Growth>> runs;
    for (int run = 0; run < options.runs; ++run) {
      double before = ChildrenCpuMs();
      RunJob(of, {"quiet", "", "", 10.0, 0, 0, small}, folder.path());
      const double quiet = ChildrenCpuMs() - before;
      for (const Scenario& fault : faults) {
        before = ChildrenCpuMs();
        Growth growth = GrowthOf(RunJob(of, fault, folder.path()));
        growth.cpu_ms = ChildrenCpuMs() - before - quiet;
        runs[fault.name].push_back(growth);
      }
    }
    for (const Scenario& fault : faults)
      AddGrowth(figures, std::to_string(ranks) + "-ranks/" + fault.name, runs[fault.name]);
  }
  return figures.Finish(options.json);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"How long an incident takes, by kind of fault and size of state"};
  app.add_option("--runs", options.runs, "Runs of each scenario")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--nproc", options.nproc, "Ranks")->check(CLI::Range(4, 64))->capture_default_str();
  app.add_option("--steps", options.steps, "Steps of a run; the fault strikes in the middle")
      ->check(CLI::Range(4, 100000))
      ->capture_default_str();
  app.add_option("--ballast-mib", options.ballast_mib, "The larger state")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--only", options.only, "Only scenarios whose name contains this word; repeatable");
  app.add_option("--ranks", options.ranks, "How it grows with the ranks, instead of the scenarios: 4,8,16,32")
      ->delimiter(',')
      ->check(CLI::Range(4, 64));
  AddJsonOption(app, &options.json);
  CLI11_PARSE(app, argc, argv);
  options.json = JsonTarget(app, options.json);
  if (!options.ranks.empty()) return ShowGrowth(options);

  Figures figures("recovery");
  const TemporaryDirectory folder;
  std::map<std::string, std::vector<Times>> runs;
  const std::vector<Scenario> scenarios = Scenarios(options);
  // Round by round, so that a machine that grows busier meets every scenario alike.
  for (int run = 0; run < options.runs; ++run)
    for (const Scenario& scenario : scenarios)
      runs[scenario.name].push_back(TimesOf(RunJob(options, scenario, folder.path())));
  for (const Scenario& scenario : scenarios) AddFigures(figures, scenario, runs[scenario.name]);
  const auto kill = runs.find("kill/small");
  for (const Peer& peer : kKillPeers) {
    if (kill == runs.end()) break;
    Figure figure =
        AtMost(std::string("kill/small/resumed vs ") + peer.name, Median(Column(kill->second, 4)), "ms", {});
    figure.baseline = peer.milliseconds;
    figure.more["baseline_source"] = kPeerSource;
    figures.Add(figure);
  }
  return figures.Finish(options.json);
}

}  // namespace
}  // namespace kintsugi::bench

int main(int argc, char** argv) { return kintsugi::bench::Main(argc, argv); }
