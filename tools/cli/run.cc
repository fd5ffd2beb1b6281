// kintsugi run: starts ranks, watches and repairs them, says how it went.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "replica/aoa/program_text.h"
#include "replica/formats/save_as.h"
#include "replica/layout/strict.h"
#include "runtime/base/warning_signals.h"
#include "runtime/core/step_rules.h"
#include "runtime/launcher/node/node_launcher.h"
#include "tools/cli/answer.h"
#include "tools/cli/attendance.h"
#include "tools/cli/checkpoint_progress.h"
#include "tools/cli/common.h"
#include "tools/cli/engine.h"
#include "tools/cli/python.h"
#include "tools/cli/restarts.h"
#include "tools/cli/run_help.h"
#include "tools/cli/version.h"
#include "tools/report/report.h"
#include "tools/runs/run_folder.h"

namespace kintsugi::cli {
namespace {

Duration Seconds(double seconds) { return Duration(static_cast<int64_t>(seconds * 1e9)); }

Status Usage(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

// The journal's place: in the report, which outlives the run, else in the run's folder.
std::string JournalPath(const RunOptions& options, const std::string& run_directory) {
  if (options.journal_mib == 0) return "";
  const std::string& report = options.report.empty() ? options.journal_dir : options.report;
  if (report.empty()) return run_directory + "/" + journal::kFileName;
  std::error_code error;
  return std::filesystem::absolute(report, error).string() + "/" + journal::kFileName;
}

}  // namespace

Result<core::Policy> MakePolicy(const RunOptions& options) {
  core::Policy policy;
  policy.world_size = WorldSize(options);
  policy.node_ranks = options.node.nodes > 1 ? policy.world_size / options.node.nodes : 0;
  policy.max_respawns = options.max_respawns;
  policy.silence = Seconds(options.silence);
  policy.hang_factor = options.hang_factor;
  policy.hang_least = Seconds(options.hang_least);
  policy.step_timeout = Seconds(options.step_timeout);
  policy.join_timeout = Seconds(options.join_timeout);
  policy.grace = Seconds(options.grace);
  policy.save_every = options.save_every;
  if (options.keep_every > 0 && options.save_every > 0 && options.keep_every % options.save_every != 0 &&
      options.save_every % options.keep_every != 0)
    return Usage("--keep-every " + std::to_string(options.keep_every) + " and --save-every " +
                 std::to_string(options.save_every) +
                 ": most of those steps have no checkpoint; make the first a multiple of the second");
  policy.verify_every = options.verify_every;
  policy.adopts = !options.no_adopt;
  policy.shrinks = options.shrink != "never";
  KINTSUGI_RETURN_IF_ERROR(TakeSnapshotEvery(options.snapshot_every, &policy));
  const Result<core::Veto> veto = core::Veto::Parse(options.veto);  // what is no rule the ranks refuse by name
  if (veto.ok() && veto->back > 0 && policy.snapshot_every == 0 && !policy.snapshot_auto)
    return Usage("--veto " + options.veto + ": back:" + std::to_string(veto->back) +
                 " goes back to an in-memory snapshot, and none is made: add --snapshot-every " +
                 std::to_string(veto->back));
  std::error_code error;
  if (!options.save_dir.empty()) policy.save_directory = std::filesystem::absolute(options.save_dir, error).string();
  // Known to the first leader.
  const bool leads_first =
      options.node.controllers.empty() ? NodeRank(options.node) == 0 : options.node.controller_rank == 0;
  policy.begins_again = !options.resume.empty();
  if (options.resume == kResumeAuto && options.save_dir.empty())
    return Usage("--resume auto looks into --save-dir, which is empty");
  const bool says_how = !options.resume_aoa.empty() || !options.resume_strict.empty();
  if (options.resume == kResumeAuto && leads_first) {
    KINTSUGI_RETURN_IF_ERROR(TakeNewest(policy.save_directory, says_how, &policy));
  } else if (!options.resume.empty() && leads_first) {
    KINTSUGI_RETURN_IF_ERROR(TakeResume(std::filesystem::absolute(options.resume, error).string(), says_how, &policy));
  }
  KINTSUGI_RETURN_IF_ERROR(policy.Validate());
  return policy;
}

namespace {

// For CLI11: a reference to an AOA program that is there.
std::string IsProgram(const std::string& reference) {
  const aoa::ProgramReference program = aoa::ParseReference(reference);
  return program.ships ? "" : CLI::ExistingFile(program.file);
}

}  // namespace

void AddSignalOption(CLI::App& app, RunOptions& o) {
  app.add_option(
         "--signal", o.signals,
         "Further signals by which this run is told to save and leave, with commas between them: ALRM,RTMIN+3.\n"
         "Ranks leave them to their launcher while they train, where the program has no handler of its own")
      ->check([](const std::string& list) {
        const auto numbers = ParseSignals(list);
        return numbers.ok() ? std::string() : numbers.status().message();
      });
}

void AddRunOptions(CLI::App& app, RunOptions& o) {
  app.add_option("--nproc,--nproc-per-node,--nproc_per_node", o.nproc, "Ranks to start on this host")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--replicas", o.replicas,
                 "Copies of every shard of optimizer state, told to the program (KINTSUGI_REPLICAS); default: the\n"
                 "program's own choice")
      ->check(CLI::Range(1, 4096));
  app.add_option("--inject", o.inject,
                 "Fault to strike, KIND:RANK@STEP[:PHASE][,key=value]; repeatable.\n" + std::string(InjectionGrammar()))
      ->take_all();
  app.add_flag(
      "--inject-must-strike", o.inject_must_strike,
      "A run that would end with 0 although an ordered fault has not struck ends with 3: no such step, or no such\n"
      "phase in this program. Without it the log and the summary say so");
  app.add_option("--report", o.report, "Folder for summary.json, trace.json and index.html");
  app.add_option("--max-respawns,--max-restarts,--max_restarts", o.max_respawns, "How often one rank may be replaced")
      ->capture_default_str();
  app.add_option(
         "--shrink", o.shrink,
         "Where ranks are lost for good and the program offers smaller worlds: auto goes on in the largest that\n"
         "every shard is held in, never does as if nothing were offered")
      ->check(CLI::IsMember({"auto", "never"}))
      ->capture_default_str();
  app.add_flag(
      "--no-adopt", o.no_adopt,
      "Do not hold the state memory (Agent::AllocateState) of a process that is gone for the one that replaces\n"
      "it: state is then always streamed from a replica, and no host has a rank's state in memory twice");
  app.add_option(
         "--spares", o.spares,
         "Processes on each host that are started beforehand and take the place of a rank whose process is gone;\n"
         "each holds what the program takes up before it joins. 0: a new process is started then")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_flag(
      "--warm", o.warm,
      "For programs in Python: one process on each host imports what the ranks have imported, and forks the\n"
      "replacement of one that is gone: it starts in a fraction of a second and, unlike --spares, takes no memory\n"
      "for a model. Where forking is not safe (threads, an initialised device) the log says so, and a new\n"
      "process is started");
  app.add_option(
         "--preload", o.preload,
         "For programs in Python: modules, with commas between them (torch,kintsugi.torch), that one process on each\n"
         "host imports at the start; all ranks are forked from it: one import on a host in the place of one for\n"
         "each rank. Includes --warm")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--devices", o.devices,
                 "Devices of each host. They are watched (NVML, the kernel's log); a rank whose device fails gets one\n"
                 "that no other has, and finds it where it looked before (CUDA_VISIBLE_DEVICES). 'auto': those that NVML\n"
                 "finds and CUDA_VISIBLE_DEVICES leaves, if any; 0: one for each rank, not watched")
      ->transform(CLI::Validator(
          [](std::string& text) {
            if (text == "auto") return text = std::to_string(kVisibleDevices), std::string();
            return CLI::Range(0, 4096)(text);
          },
          "N or auto"))
      ->default_str("auto");
  app.add_option("--save-every", o.save_every, "Save a checkpoint every N steps; 0: never")->capture_default_str();
  app.add_option("--verify-every", o.verify_every,
                 "Compare the replicas of every shard each N steps, and before every save; 0: in recovery only")
      ->capture_default_str();
  app.add_option("--veto", o.veto,
                 "Steps are refused by these rules, before anything changes: nan (a loss or gradient is not\n"
                 "finite), spike:N (a loss N standard deviations above the usual), norm:X (of all gradients); as in\n"
                 "nan,spike:6,norm:1e3. What is refused twice by the same numbers is left out, most:N (10) times in a run;\n"
                 "with back:M the M steps before it are, too (with --snapshot-every)");
  app.add_option(
         "--snapshot-every", o.snapshot_every,
         "Keep a copy of every rank's state in its own and in a partner's memory each N steps, to go back to where\n"
         "no replica is left; 'auto': as often as takes 1 % of a rank's time; 0: never")
      ->capture_default_str();
  app.add_option("--save-dir", o.save_dir, "Root of checkpoints, periodic and dying-gasp; empty: no saves")
      ->capture_default_str();
  app.add_option("--keep", o.keep,
                 "Complete checkpoints that stay in the save folder, of every format: the newest N; default: 2")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()).description("1 or more"));
  app.add_option(
         "--keep-every", o.keep_every,
         "Checkpoints whose step is a multiple of M stay for good, beside the newest; with --save-every a multiple\n"
         "of it. Nobody removes them but you")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62).description("1 or more"));
  CLI::Option* format =
      app.add_option(
             "--save-format", o.save_format,
             "Write every checkpoint in these formats too, below the save folder, one folder for each: safetensors,\n"
             "torch, dcp, megatron, as in dcp,safetensors (kintsugi ckpt convert --help lists them). A Python run's\n"
             "model is under its own names in the first three: model.safetensors, the rest of the state in\n"
             "optimizer.safetensors; 'model' of a .pt file; plain names of dcp")
          ->check([](const std::string& list) {
            const auto formats = formats::FormatsToSave(list);
            return formats.ok() ? std::string() : formats.status().message();
          });
  app.add_option(
         "--save-aoa", o.save_aoa,
         "Other names, shapes or types for what --save-format writes: a file of AOA statements. Names are those\n"
         "that ranks register (a Python run's 'model/..'); one that none registers ends the run before its first step")
      ->needs(format)
      ->check(IsProgram);
  app.add_option(
         "--save-only", o.save_only,
         "model: --save-format writes the model alone, under the names that its library looks for (no 'model/'),\n"
         "without optimizer states; such a folder is for readers, a run resumes from --save-dir (or from here, where\n"
         "--resume-aoa or --resume-strict say how)")
      ->needs(format)
      ->check(CLI::IsMember({"model"}));
  app.add_option(
         "--max-shard-size", o.max_shard_size,
         "Largest file of Hugging Face shards that --save-format writes, as 5GB; by default one for each writer,\n"
         "of 256 MiB at least")
      ->needs(format);
  app.add_option(
         "--save-with", o.save_with,
         "Files that go with every checkpoint, as they are when it is made: a model's configuration, a tokenizer;\n"
         "repeatable. They are those of the host of the rank that publishes")
      ->take_all()
      ->check(CLI::ExistingFile);
  CLI::Option* resume = app.add_option(
      "--resume", o.resume,
      "Go on from the newest complete checkpoint in this root, also with other ranks or another layout than saved it;\n"
      "or from a checkpoint of another format that knows its step, or a folder of such. auto: from the newest in\n"
      "--save-dir, or from the beginning where nothing was saved yet");
  app.add_option(
         "--resume-aoa", o.resume_aoa,
         "What is stored has other names, shapes or types: a file of AOA statements, one a line or as JSON, or\n"
         "a program that ships (kintsugi ckpt convert --help)")
      ->needs(resume)
      ->check(IsProgram);
  app.add_option(
         "--resume-strict", o.resume_strict,
         "With another layout: what tensors are that only the checkpoint or only the program has: raise_all (an\n"
         "error, the default), raise_unexpected, log_unexpected, log_all, return_unexpected, return_all,\n"
         "ignore_all, assume_ok_unexpected")
      ->needs(resume)
      ->check([](const std::string& name) {
        return layout::StrictHandlingFromName(name) ? std::string() : "'" + name + "' is no strict mode";
      });
  app.add_option(
         "--resume-shapes", o.resume_shapes,
         "Names of tensors (* and ?, with commas) that may be stored with another global shape: what both have is\n"
         "taken, the rest is zero. For a table that was padded to another number of rows")
      ->needs(resume);
  app.add_option(
         "--resume-read", o.resume_read,
         "Who reads the shards that several ranks hold, at a resume and whenever a checkpoint is loaded again: each\n"
         "rank for itself (each), one rank each, which then sends it to the others over the links between ranks\n"
         "(once), or auto, the default: once where the checkpoint lies on a network file system and the ranks on\n"
         "several hosts, else each")
      ->check(CLI::IsMember({"auto", "each", "once"}));
  app.add_option(
         "--grace", o.grace,
         "Seconds to finish the step, save and leave after SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU (by which batch\n"
         "systems warn) or SIGHUP (a terminal that hangs up; under nohup it stays ignored). Whatever does not answer "
         "by\n"
         "then, a disk too, is left; a second signal ends at once")
      ->capture_default_str();
  AddSignalOption(app, o);
  app.add_option("--step-timeout", o.step_timeout, "Longest healthy step in seconds; other limits derive from it")
      ->capture_default_str();
  app.add_option("--silence", o.silence, "Seconds without a sign of life that make a fault (0.3 or more)")
      ->capture_default_str();
  app.add_option("--hang-factor", o.hang_factor,
                 "A rank whose step has not moved for so many learnt step times hangs; 0: never looked for")
      ->capture_default_str();
  app.add_option("--hang-least", o.hang_least,
                 "Shortest such time in seconds; at least twice --silence, at most --step-timeout")
      ->capture_default_str();
  app.add_option("--join-timeout", o.join_timeout, "Seconds from a program's start to its being ready")
      ->capture_default_str();
  app.add_option("--json", o.json, "Write the summary as JSON to this file; - for standard output")
      ->expected(0, 1)
      ->default_str("-");
  app.add_option("--run-dir", o.run_dir, "Folder of the control socket for status, inject and save");
  app.add_option(
         "--journal-mib", o.journal_mib,
         "Record every decision for `kintsugi replay`, up to so many MiB, in the report's folder or the run's;\n"
         "0: do not")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--bind", o.bind, "Address the controller listens on")->capture_default_str();
  app.add_option("--port", o.port, "Port the controller listens on; 0: any free one")->check(CLI::Range(0, 65535));
  app.add_option(
      "--ports", o.ports,
      "Ports that may be listened on, A-B, for hosts behind a firewall: the controller, MASTER_PORT, and connections\n"
      "between ranks over Gloo (KINTSUGI_PORTS); beside them the rendezvous and, above it, one port for each node.\n"
      "A hundred for each rank of a host are plenty. Default: any");
  AddLogOptions(app, o.log);
  app.add_option(
      "--output-dir", o.output_dir,
      "Keep what each rank prints in a file of its own below this folder, rank-N.log: appended to, a line marks\n"
      "where a process began and how it ended. With --quiet it is there alone");
  app.add_option("--tokens-per-sample", o.tokens_per_sample, "For the progress line: tokens instead of samples");
  app.add_flag("--quiet", o.quiet, "No progress, no output of the ranks");
}

namespace {

// A run that is about to begin.
struct PreparedRun {
  LauncherOptions launcher;
  std::shared_ptr<LogSink> log;
  runs::RunFolder folder = runs::RunFolder::At("");
};

// A folder that was asked for must be there when it is needed. One that nobody named is only missed when a run ends
// early.
Status CheckSaves(const RunOptions& options, core::Policy* policy, LogSink& log) {
  if (options.save_dir.empty() || options.node.controller_rank >= 0) return Status::Ok();
  const bool asked = options.save_every > 0 || options.save_dir != kDefaultSaveDir;
  // The first leader tries it out when it takes the folder for this run (SaveLease).
  if (asked && NodeRank(options.node) == 0 && options.node.controllers.empty()) return Status::Ok();
  const Status writable = CheckSaveRoot(options.save_dir);
  if (writable.ok() || asked) return writable;
  policy->save_directory.clear();
  log.Write(LogLevel::kWarning,
            LogLine("no_saves", {{"why", writable.message()},
                                 {"hint", "a run that must end early is lost: name another --save-dir"}}));
  return Status::Ok();
}

// For `kintsugi list`, also of a run that does not answer, or is gone.
void Describe(const RunOptions& options, const LauncherOptions& launcher, const runs::RunFolder& folder) {
  std::error_code error;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const nlohmann::ordered_json description{
      {"job", launcher.job},
      {"node", NodeName(options.node)},
      {"pid", getpid()},
      {"ranks", WorldSize(options)},
      {"nodes", options.node.nodes},
      {"began_unix_ms", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
      {"program", launcher.program},
      {"run_dir", std::filesystem::absolute(launcher.run_directory, error).string()}};
  folder.Describe(description.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

std::string ShortNumber(double number) {
  char text[40];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

// What the nodes of a run compare when they meet. Saves and limits are the first leader's and go for all: a node with others would do
// what it was not told to. What a rank finds in its environment must be the same on all ranks.
void SetTerms(const RunOptions& o, const core::Policy& policy, LauncherOptions* launcher) {
  launcher->version = ShortVersion();
  if (o.node.controller_rank >= 0) return;  // it has no ranks, and the run's options are its own
  const auto number = [](uint64_t value) { return std::to_string(value); };
  if (o.node.controllers.empty())
    launcher->alike = {"--save-every=" + number(o.save_every),
                       "--verify-every=" + number(o.verify_every),
                       "--snapshot-every=" + o.snapshot_every,
                       "--silence=" + ShortNumber(o.silence),
                       "--step-timeout=" + ShortNumber(o.step_timeout),
                       "--hang-factor=" + ShortNumber(o.hang_factor),
                       "--hang-least=" + ShortNumber(o.hang_least),
                       "--max-respawns=" + std::to_string(o.max_respawns),
                       "--no-adopt=" + std::string(o.no_adopt ? "given" : ""),
                       "--shrink=" + o.shrink};
  // Where nobody named it, it lies where each launcher was started, and the first leader's is meant.
  if (o.save_dir != kDefaultSaveDir) launcher->alike.push_back("--save-dir=" + policy.save_directory);
  for (const std::string& rank_option :
       {"--replicas=" + (o.replicas ? std::to_string(*o.replicas) : ""),
        "--keep=" + (o.keep ? std::to_string(*o.keep) : ""), "--keep-every=" + number(o.keep_every),
        "--save-format=" + o.save_format, "--save-only=" + o.save_only, "--max-shard-size=" + o.max_shard_size,
        "--resume-strict=" + o.resume_strict, "--resume-shapes=" + o.resume_shapes, "--resume-read=" + o.resume_read,
        "--veto=" + o.veto})
    launcher->alike.push_back(rank_option);
  launcher->own = {"--save-dir=" + policy.save_directory,
                   "--join-timeout=" + ShortNumber(o.join_timeout),
                   "--grace=" + ShortNumber(o.grace),
                   "--node-wait=" + ShortNumber(o.node.wait),
                   "--spare-after=" + ShortNumber(o.node.spare_after),
                   "--shrink-after=" + ShortNumber(o.node.shrink_after),
                   "--resume=" + o.resume,
                   "--spares=" + std::to_string(o.spares),
                   "--ports=" + o.ports,
                   "program=" + (o.command.empty() ? std::string() : o.command.front())};
}

// A program that its ranks will read.
Status CheckProgram(const std::string& file) {
  const std::string place = "AOA program '" + file + "'";
  const auto program = aoa::ReadProgram(file, ReadInput, {.place = place});
  if (!program.ok()) return program.status().Annotate(place);
  return aoa::CheckStatements(program->statements, /*macros=*/nullptr).Annotate(place);
}

Result<std::unique_ptr<PreparedRun>> Prepare(const RunOptions& options, const logs::Logs& logs) {
  const bool starts_ranks = options.node.controller_rank < 0;
  if (options.command.empty() && starts_ranks)
    return Usage("no program: write it after --, as in: kintsugi run --nproc 4 -- ./byte_lm --steps 100");
  auto prepared = std::make_unique<PreparedRun>();
  LauncherOptions& launcher = prepared->launcher;
  for (const std::string& spec : options.inject) {
    KINTSUGI_ASSIGN_OR_RETURN(Injection injection, ParseInjection(spec));
    launcher.injections.push_back(std::move(injection));
  }
  launcher.injections_must_strike = options.inject_must_strike;
  KINTSUGI_ASSIGN_OR_RETURN(launcher.policy, MakePolicy(options));
  if (!options.report.empty()) KINTSUGI_RETURN_IF_ERROR(CheckReportFolder(options.report));
  if (!options.json.empty()) KINTSUGI_RETURN_IF_ERROR(CheckWritable(options.json));
  launcher.job = JobOf(options.node);
  if (starts_ranks) {
    launcher.program = options.command.front();
    launcher.args.assign(options.command.begin() + 1, options.command.end());
  }
  if (options.replicas) launcher.environment["KINTSUGI_REPLICAS"] = std::to_string(*options.replicas);
  launcher.environment["KINTSUGI_SILENCE"] = std::to_string(std::max<int64_t>(std::llround(options.silence * 1000), 1));
  if (!options.veto.empty()) launcher.environment["KINTSUGI_VETO"] = options.veto;
  launcher.environment["KINTSUGI_MAX_RESPAWNS"] = std::to_string(options.max_respawns);
  if (!options.resume_strict.empty()) launcher.environment["KINTSUGI_RESUME_STRICT"] = options.resume_strict;
  if (!options.resume_shapes.empty()) launcher.environment["KINTSUGI_RESUME_SHAPES"] = options.resume_shapes;
  if (!options.resume_read.empty()) launcher.environment["KINTSUGI_RESUME_READ"] = options.resume_read;
  for (const auto& [variable, file] :
       {std::pair{"KINTSUGI_RESUME_AOA", &options.resume_aoa}, std::pair{"KINTSUGI_SAVE_AOA", &options.save_aoa}})
    if (!file->empty()) {
      // A mistake in it is told here, not by a save hours later.
      if (starts_ranks) KINTSUGI_RETURN_IF_ERROR(CheckProgram(*file));
      std::error_code error;
      launcher.environment[variable] =
          aoa::ParseReference(*file).ships ? *file : std::filesystem::absolute(*file, error).string();
    }
  for (const std::string& file : options.save_with) {
    std::error_code error;
    launcher.environment["KINTSUGI_SAVE_WITH"] += std::filesystem::absolute(file, error).string() + "\n";
  }
  if (options.keep) launcher.environment["KINTSUGI_SAVE_KEEP"] = std::to_string(*options.keep);
  if (options.keep_every > 0) launcher.environment["KINTSUGI_SAVE_KEEP_EVERY"] = std::to_string(options.keep_every);
  if (!options.save_format.empty()) launcher.environment["KINTSUGI_SAVE_FORMAT"] = options.save_format;
  if (!options.save_only.empty()) launcher.environment["KINTSUGI_SAVE_ONLY"] = options.save_only;
  if (!options.max_shard_size.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(const uint64_t bytes, ReadByteSize("--max-shard-size", options.max_shard_size));
    launcher.environment["KINTSUGI_SAVE_FILE_BYTES"] = std::to_string(bytes);
  }
  // Ranks share this host's processors, and one thread gives one order of sums; who knows better has said so.
  for (const char* threads : {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"})
    if (std::getenv(threads) == nullptr) launcher.environment[threads] = "1";
  KINTSUGI_ASSIGN_OR_RETURN(launcher.signals, ParseSignals(options.signals));
  if (!options.signals.empty()) launcher.environment["KINTSUGI_SIGNALS"] = options.signals;
  launcher.bind_address = options.bind;
  launcher.port = static_cast<uint16_t>(options.port);
  Result<PortRange> ports = PortRange::Parse(options.ports);
  if (!ports.ok()) return ports.status().Annotate("--ports");
  launcher.ports = *ports;
  if (!ports->any()) launcher.environment["KINTSUGI_PORTS"] = ports->ToString();
  KINTSUGI_RETURN_IF_ERROR(ApplyNodeOptions(options.node, &launcher));
  KINTSUGI_RETURN_IF_ERROR(ApplyTlsOptions(options.tls, &launcher));
  SetTerms(options, launcher.policy, &launcher);
  // Last: a mistake elsewhere is not to be hidden by what follows from it.
  if (options.replicas && WorldSize(options) % *options.replicas != 0)
    return Usage("--replicas " + std::to_string(*options.replicas) + " does not divide " +
                 (options.node.nodes > 1 ? "--nnodes " + std::to_string(options.node.nodes) + " times " : "") +
                 "--nproc " + std::to_string(options.nproc));
  prepared->log = logs.sink();
  KINTSUGI_RETURN_IF_ERROR(CheckSaves(options, &launcher.policy, *prepared->log));
  launcher.adopt = !options.no_adopt;
  launcher.spares = options.spares;
  if (options.warm || !options.preload.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(launcher.warm_args, WarmArguments(options.command, options.preload));
    launcher.preloads = !options.preload.empty();
  }
  launcher.devices = options.devices;
  launcher.show_output = !options.quiet;
  launcher.output_to_stderr = options.json == "-";
  launcher.output = logs.output();
  if (!options.output_dir.empty() && starts_ranks) {
    Result<std::shared_ptr<RankFiles>> files =
        RankFiles::Open({options.output_dir, launcher.job, NodeName(options.node)}, prepared->log);
    if (!files.ok()) return files.status().Annotate("--output-dir");
    launcher.rank_files = std::move(*files);
  }
  if (options.run_dir.empty()) {
    KINTSUGI_ASSIGN_OR_RETURN(prepared->folder, runs::RunFolder::Make());
  } else {
    prepared->folder = runs::RunFolder::At(options.run_dir);
  }
  launcher.run_directory = prepared->folder.path();
  Describe(options, launcher, prepared->folder);
  prepared->log->Write(LogLevel::kInfo, LogLine("run", {{"job", launcher.job},
                                                        {"ranks", std::to_string(WorldSize(options))},
                                                        {"run_dir", launcher.run_directory}}));
  return prepared;
}

}  // namespace

namespace {

// Of several nodes, the one that leads at the end knows how the run went.
Result<NodeResult> RunNode(const RunOptions& options, PreparedRun& prepared, ProgressDisplay& display) {
  NodeLauncherOptions node;
  node.run = prepared.launcher;
  node.node_rank = NodeRank(options.node);
  node.rendezvous_host = node.run.bind_address;
  node.rendezvous_port = node.run.port;
  node.controller_wait = node.run.node_wait;
  node.controllers = ControllersOf(options.node);
  node.controller = options.node.controller_rank;
  NodeLauncher launcher(std::move(node), prepared.log);
  launcher.OnProgress([&](const RunProgress& progress) { display.Show(progress); });
  return launcher.Run();
}

Result<NodeResult> RunAlone(PreparedRun& prepared, ProgressDisplay& display) {
  Launcher launcher(prepared.launcher, prepared.log);
  launcher.OnProgress([&](const RunProgress& progress) { display.Show(progress); });
  KINTSUGI_ASSIGN_OR_RETURN(RunResult run, launcher.Run());
  return NodeResult{run.exit_code, run.text, run.asked, std::move(run)};
}

}  // namespace

Result<NodeOutcome> ExecuteNode(const RunOptions& options, std::shared_ptr<logs::Logs> logs,
                                std::shared_ptr<RunObserver> observer, std::shared_ptr<LateSignals> late_signals) {
  KINTSUGI_ASSIGN_OR_RETURN(const std::unique_ptr<PreparedRun> prepared, Prepare(options, *logs));
  LauncherOptions& launcher = prepared->launcher;
  const std::string journal_path = JournalPath(options, launcher.run_directory);
  launcher.journal.path = journal_path;
  launcher.journal.bytes_max = options.journal_mib << 20;
  launcher.observer = std::move(observer);
  launcher.late_signals = std::move(late_signals);
  ProgressDisplay display(logs, options.tokens_per_sample, !options.quiet);
  Result<NodeResult> result =
      options.node.nodes > 1 ? RunNode(options, *prepared, display) : RunAlone(*prepared, display);
  const bool eventful = result.ok() && result->run && (result->exit_code != 0 || !result->run->incidents.empty());
  prepared->folder.Leave(journal_path, eventful);
  if (eventful && !journal_path.empty())
    prepared->log->Write(
        LogLevel::kInfo,
        LogLine("recorded", {{"replay", "kintsugi replay --run " + journal_path.substr(0, journal_path.rfind('/'))}}));
  if (!result.ok()) return result.status();
  NodeOutcome outcome{result->exit_code, result->text, result->asked, {}};
  if (!result->run) return outcome;
  outcome.run.emplace(RunOutcome{*std::move(result->run), {}});
  outcome.run->record = MakeRecord(options, outcome.run->result);
  return outcome;
}

Result<RunOutcome> ExecuteRun(const RunOptions& given) {
  RunOptions options = given;
  options.node.job = JobOf(given.node);
  KINTSUGI_ASSIGN_OR_RETURN(const std::shared_ptr<logs::Logs> logs, OpenLogs(options));
  KINTSUGI_ASSIGN_OR_RETURN(NodeOutcome outcome, ExecuteNode(options, logs, nullptr));
  return *std::move(outcome.run);
}

void AddRun(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* run = app.add_subcommand("run", "Start a program on N ranks, watch it and repair it");
  AddRunOptions(*run, *options);
  AddNodeOptions(*run, options->node);
  AddTlsOptions(*run, options->tls);
  auto attendance = std::make_shared<AttendanceOptions>();
  AddAttendanceOptions(*run, *attendance);
  auto engine = std::make_shared<std::string>("auto");
  AddEngineOption(*run, *engine);
  AddPythonOption(*run, options->python);
  run->add_option("program", options->command, "Program and its arguments, after --")->required();
  run->positionals_at_end();
  GroupRunOptions(*run);
  run->callback([run, options, attendance, engine, &exit_code] {
    options->command = ByPython(options->python, options->command);
    const Result<std::optional<Meeting>> meeting = TakeSurroundings(*run, *engine, options.get());
    if (meeting.ok()) {
      exit_code = RunAndReport(*options, *attendance);
      return;
    }
    Complain(meeting.status().message());
    exit_code = NeverBegan(meeting.status());
  });
}

}  // namespace kintsugi::cli
