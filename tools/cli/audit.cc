// kintsugi audit: does a torch program that was stopped and resumed go on as the one that never was? The work is done in Python
// (integrations/python/kintsugi/audit), since Python's processes are looked at; here the words are understood and it is started.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "tools/cli/common.h"
#include "tools/cli/python.h"
#include "tools/report/page_frame.h"

namespace kintsugi::cli {
namespace {

namespace fs = std::filesystem;

struct AuditOptions {
  std::string resume;
  std::optional<uint64_t> stop_at;  // none: one behind the checkpoint in the middle
  std::string signal = "KILL";
  int runs = 0;  // 0: as many as are needed
  std::string report = "kintsugi-audit";
  std::string json;
  bool quiet = false;
  bool in_place = false;
  std::optional<uint64_t> seed;
  double limit_seconds = 3600;
  bool module = false;
  std::vector<std::string> program;
};

constexpr const char* kAuditStyle = R"css(
.audit td:nth-child(2){width:auto}.audit td:nth-child(6){width:auto}.audit td:last-child{width:45%;padding-right:0}
.kept{margin:3rem 0 0;padding:1.2rem 0 0;border-top:1px solid var(--gold);font-size:1.125rem}
)css";

// The program that a file's first line names, as the kernel reads it; "" where it names none. `/usr/bin/env python3` names python3.
std::string NamedByFirstLine(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line) || !line.starts_with("#!")) return "";
  std::istringstream words(line.substr(2));
  std::string word;
  words >> word;
  if (fs::path(word).filename() == "env") words >> word;
  return word;
}

fs::path FindProgram(const std::string& name) {
  std::error_code error;
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((fs::path(folder) / name).c_str(), X_OK) == 0) return fs::path(folder) / name;
  return name;
}

bool IsPython(const std::string& program) { return fs::path(program).filename().string().starts_with("python"); }

// The interpreter that the program is run by: named first, or by the first line of what is (torchrun). Any other program starts its own, and the
// comparison is done by the first one of PATH.
std::string InterpreterOf(const std::vector<std::string>& command) {
  if (IsPython(command.front())) return command.front();
  if (const std::string named = NamedByFirstLine(FindProgram(command.front())); IsPython(named)) return named;
  return ByPython(true, {""}).front();
}

Status CheckAudit(const AuditOptions& options) {
  const auto refuse = [](const std::string& why) { return Status(StatusCode::kInvalidArgument, why); };
  if (options.stop_at && options.resume.empty())
    return refuse(
        "--stop-at without --resume: name the command that goes on, --resume \"torchrun train.py --resume last\"");
  if (options.stop_at && *options.stop_at == 0) return refuse("--stop-at 0: the first step is 1");
  if (options.resume.empty() && options.runs == 1)
    return refuse("--runs 1 without --resume compares nothing; take 2 or more");
  return Status::Ok();
}

nlohmann::json AuditWords(const AuditOptions& options) {
  const std::string head = PageHead("Kintsugi audit", kAuditStyle);
  nlohmann::json words = {{"program", ByPython(options.module, options.program)},
                          {"resume", options.resume},
                          {"stop_at", nullptr},
                          {"signal", options.signal},
                          {"runs", options.runs > 0         ? options.runs
                                   : options.resume.empty() ? 2
                                                            : 1},
                          {"report", options.report},
                          {"json", options.json},
                          {"quiet", options.quiet},
                          {"in_place", options.in_place},
                          {"seed", nullptr},
                          {"limit", options.limit_seconds},
                          {"head", head},
                          {"masthead", Masthead()}};
  if (options.stop_at) words["stop_at"] = *options.stop_at;
  if (options.seed) words["seed"] = *options.seed;
  return words;
}

// Returns only where it could not be started.
Status StartAudit(const AuditOptions& options) {
  KINTSUGI_RETURN_IF_ERROR(CheckAudit(options));
  KINTSUGI_ASSIGN_OR_RETURN(const std::string folder, PackagePart("audit"));
  const std::vector<std::string> program = ByPython(options.module, options.program);
  const std::string interpreter = InterpreterOf(program);
  const std::string words = AuditWords(options).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  execlp(interpreter.c_str(), interpreter.c_str(), "-B", folder.c_str(), words.c_str(), static_cast<char*>(nullptr));
  return {StatusCode::kFailedPrecondition, "'" + interpreter + "' cannot be started: " + std::strerror(errno)};
}

}  // namespace

void AddAudit(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<AuditOptions>();
  CLI::App* command = app.add_subcommand(
      "audit",
      "Stop and resume a torch program, unchanged, as its user does, and name the first step, tensor and cause in "
      "which\n"
      "it differs from a run that was never stopped. Without --resume: is the program deterministic at all?");
  command->add_option("--resume", o->resume, "The command that goes on from the program's own checkpoint, as one text");
  command->add_option(
      "--stop-at", o->stop_at,
      "Stop behind so many steps of the first optimizer; else one step behind the checkpoint in the middle");
  command
      ->add_option("--stop-signal", o->signal, "KILL: all processes at once; TERM: what was started, as schedulers do")
      ->check(CLI::IsMember({"KILL", "TERM"}))
      ->capture_default_str();
  command
      ->add_option("--runs", o->runs,
                   "Undisturbed runs to compare; 2 where nothing is resumed, else 1 beside the stopped one")
      ->check(CLI::Range(1, 100));
  command->add_option("--seed", o->seed,
                      "Seed what the program leaves unseeded: Python, numpy, torch and the order of sets");
  command->add_flag("--in-place", o->in_place,
                    "Run here, not in a copy of this folder: the command places files by {run}");
  command->add_option("--limit", o->limit_seconds, "Seconds that a run may take")->capture_default_str();
  command->add_option("--report", o->report, "Folder for audit.html, audit.json and what each run printed and recorded")
      ->capture_default_str();
  command->add_option("--json", o->json, "Write the result as JSON to this file too; - for standard output")
      ->expected(0, 1)
      ->default_str("-");
  command->add_flag("--quiet", o->quiet, "No progress");
  AddPythonOption(*command, o->module);
  command->add_option("program", o->program, "Program and its arguments, after --; {run} in it is the run's name")
      ->required();
  command->positionals_at_end();
  command->footer(
      "Exit codes: 0 the resume is exact (the program is deterministic), 1 it is not, 2 wrong usage (also: --stop-at "
      "is\n"
      "beyond the end), 3 nothing could be compared: no torch, no step, no checkpoint, a run or a resume that "
      "fails.\n\n"
      "Example: kintsugi audit --stop-at 50 --resume \"torchrun train.py --resume last\" -- torchrun train.py");
  command->callback([o, &exit_code] {
    const Status status = StartAudit(*o);
    Complain(status.message());
    exit_code = status.code() == StatusCode::kInvalidArgument ? core::kExitUsage : core::kExitStartup;
  });
}

}  // namespace kintsugi::cli
