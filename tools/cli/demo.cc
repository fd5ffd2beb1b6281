// kintsugi demo: the main job. Trains twice, undisturbed and with faults, and compares the two bit for bit.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/cli/common.h"
#include "tools/report/compare.h"
#include "tools/report/record_json.h"
#include "tools/report/report.h"

namespace kintsugi::cli {
namespace {

constexpr uint64_t kContext = 64;  // bytes of one window of byte_lm

struct DemoOptions {
  RunOptions run;
  uint64_t steps = 200;
  uint64_t seed = 1;
  int tp = 1;
  uint64_t ballast_mib = 0;
  std::vector<std::string> data;
};

RunOptions TrainerRun(const DemoOptions& demo, const std::string& program, bool faulted) {
  RunOptions run = demo.run;
  run.tokens_per_sample = kContext;
  run.json.clear();
  run.report.clear();
  run.command = {program, "--steps", std::to_string(demo.steps), "--seed", std::to_string(demo.seed), "--tp",
                 std::to_string(demo.tp)};
  if (demo.ballast_mib > 0) run.command.insert(run.command.end(), {"--ballast-mib", std::to_string(demo.ballast_mib)});
  for (const std::string& path : demo.data) run.command.insert(run.command.end(), {"--data", path});
  if (!faulted) {
    run.inject.clear();
    run.command.insert(run.command.end(), {"--samples", "0"});
  }
  return run;
}

void Tell(bool quiet, const std::string& text) {
  if (quiet) return;
  ProgressDisplay::ClearLine();
  std::cerr << text << std::endl;
}

void TellIncidents(bool quiet, const RunRecord& record) {
  for (const ReportedIncident& incident : record.incidents) {
    std::string ranks;
    for (Rank rank : incident.ranks) ranks += (ranks.empty() ? "" : ", ") + rank.ToString();
    char text[400];
    std::snprintf(text, sizeof text,
                  "  incident %llu: %s on rank %s at step %llu%s%s: detected %.1f ms, parked %.1f ms, rebuilt %.1f ms, "
                  "repaired %.1f ms, all ranks stepping again %.1f ms after the fault (rung %s, %.1f MiB streamed)",
                  static_cast<unsigned long long>(incident.id), incident.fault.c_str(), ranks.c_str(),
                  static_cast<unsigned long long>(incident.struck_step.value_or(incident.step).value()),
                  incident.struck_phase.empty() ? "" : ", ", incident.struck_phase.c_str(),
                  incident.detected_ms.value_or(-1), incident.parked_ms.value_or(-1), incident.rebuilt_ms.value_or(-1),
                  incident.repaired_ms.value_or(-1), incident.resumed_ms.value_or(-1), incident.path.c_str(),
                  static_cast<double>(incident.bytes_streamed) / (1024.0 * 1024.0));
    Tell(quiet, text);
  }
}

std::string Verdict(bool identical, const RunComparison& same, const RunOutcome& faulted) {
  if (identical)
    return "IDENTICAL: after " + std::to_string(faulted.record.incidents.size()) +
           " incident(s) the run ended with the bits of the undisturbed one (digest " + faulted.record.final_digest + ")";
  if (faulted.result.exit_code != 0)
    return "DIFFERENT: the disturbed run ended with exit code " + std::to_string(faulted.result.exit_code) + ": " +
           faulted.result.text;
  if (!same.same_final_state) return "DIFFERENT: final digests differ";
  return same.same_losses ? "DIFFERENT: samples differ" : "DIFFERENT: losses differ";
}

// Beside this command in a build, below libexec in an installation.
Result<std::string> FindTrainer() {
  namespace fs = std::filesystem;
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path places[] = {here / "byte_lm", here.parent_path() / "libexec/kintsugi/byte_lm"};
  std::error_code error;
  for (const fs::path& place : places)
    if (fs::exists(place, error)) return place.string();
  return Status(StatusCode::kFailedPrecondition, "the trainer that is demonstrated is neither '" + places[0].string() +
                                                     "' nor '" + places[1].string() +
                                                     "': install the whole package, or build with ./tools/demo");
}

Status Demonstrate(DemoOptions& demo, int& exit_code) {
  if (demo.run.inject.empty())
    demo.run.inject = {"kill:" + std::to_string(demo.run.nproc > 2 ? 2 : demo.run.nproc - 1) + "@" +
                       std::to_string(demo.steps / 2 + 1) + ":update"};
  if (demo.run.inject.size() == 1 && demo.run.inject.front() == "none") demo.run.inject.clear();
  if (!demo.run.report.empty()) KINTSUGI_RETURN_IF_ERROR(CheckReportFolder(demo.run.report));
  KINTSUGI_ASSIGN_OR_RETURN(const std::string program, FindTrainer());
  const bool quiet = demo.run.quiet;

  Tell(quiet, "1/2  the undisturbed run: " + std::to_string(demo.run.nproc) + " ranks, " + std::to_string(demo.steps) +
                  " steps");
  RunOptions undisturbed = TrainerRun(demo, program, false);
  undisturbed.log.level = "warning";
  KINTSUGI_ASSIGN_OR_RETURN(const RunOutcome reference, ExecuteRun(undisturbed));
  if (reference.result.exit_code != 0) {
    exit_code = reference.result.exit_code;
    return {StatusCode::kFailedPrecondition, "the undisturbed run failed: " + reference.result.text};
  }
  std::string faults;
  for (const std::string& spec : demo.run.inject) faults += " " + spec;
  Tell(quiet, "2/2  the same run with faults:" + (faults.empty() ? " none" : faults));
  RunOptions disturbed = TrainerRun(demo, program, true);
  disturbed.journal_dir = demo.run.report;
  if (demo.run.json == "-") disturbed.json = "-";  // keeps the ranks' output off standard output
  KINTSUGI_ASSIGN_OR_RETURN(const RunOutcome faulted, ExecuteRun(disturbed));
  TellIncidents(quiet, faulted.record);

  const RunRecord &a = reference.record, &b = faulted.record;
  const RunComparison same = Compare(b, a);
  const bool all_struck = faulted.result.fired.size() == demo.run.inject.size();
  const bool identical = faulted.result.exit_code == 0 && same.identical;
  nlohmann::ordered_json json{{"reference", SummaryJson(a)},
                              {"faulted", SummaryJson(b)},
                              {"bit_identical", identical},
                              {"same_losses", same.same_losses},
                              {"same_samples", same.same_samples},
                              {"same_final_digest", same.same_final_state},
                              {"faults_ordered", demo.run.inject.size()},
                              {"faults_struck", faulted.result.fired.size()}};
  if (!demo.run.json.empty()) KINTSUGI_RETURN_IF_ERROR(WriteText(demo.run.json, json.dump()));
  if (!demo.run.report.empty()) {
    KINTSUGI_RETURN_IF_ERROR(WriteReport(demo.run.report, b, &a));
    Tell(quiet, "report: " + demo.run.report + "/index.html");
  }
  exit_code = identical && all_struck ? 0 : core::kExitFailed;
  if (!all_struck)
    Tell(false, "NOT SHOWN: " + std::to_string(demo.run.inject.size() - faulted.result.fired.size()) +
                    " of the ordered faults did not strike");
  Tell(false, Verdict(identical, same, faulted));
  return Status::Ok();
}

}  // namespace

void AddDemo(CLI::App& app, int& exit_code) {
  auto demo = std::make_shared<DemoOptions>();
  demo->run.nproc = 4;
  demo->run.save_dir = "";
  CLI::App* command = app.add_subcommand(
      "demo", "Train a byte-level GPT on real text twice, once with faults, and compare the two bit for bit");
  AddRunOptions(*command, demo->run);
  command->add_option("--steps", demo->steps, "Optimizer updates")->check(CLI::Range(2, 1000000))->capture_default_str();
  command->add_option("--seed", demo->seed, "Of weights, shuffling and dropout")->capture_default_str();
  command->add_option("--tp", demo->tp, "Tensor-parallel ranks, 1 or 2")->check(CLI::IsMember({1, 2}))->capture_default_str();
  command->add_option("--ballast-mib", demo->ballast_mib, "Extra registered state per rank, for transfer measurements");
  command->add_option("--data", demo->data, "Files or folders to train on; default: the licence texts of this system")
      ->take_all();
  command->callback([demo, &exit_code] {
    exit_code = core::kExitFailed;
    const Status shown = Demonstrate(*demo, exit_code);
    if (shown.ok()) return;
    Complain(shown.message());
    if (shown.code() == StatusCode::kInvalidArgument) exit_code = core::kExitUsage;
    if (exit_code == 0) exit_code = core::kExitFailed;
  });
}

}  // namespace kintsugi::cli
