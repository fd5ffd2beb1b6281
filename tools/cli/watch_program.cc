// kintsugi watch: who keeps others waiting, in a torch program that is not changed. The work is done in tools/watch and, in each rank, in
// integrations/python/kintsugi/watch; here the words are understood.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tools/cli/common.h"
#include "tools/cli/python.h"
#include "tools/watch/program.h"
#include "tools/watch/watch.h"

namespace kintsugi::cli {
namespace {

struct WatchCommandOptions {
  double least_seconds = 1, first_seconds = 10, most_seconds = 30, factor = 5;
  std::string file;
  bool module = false;
  std::vector<std::string> program;
};

Duration OfSeconds(double seconds) { return Duration(static_cast<int64_t>(seconds * 1e9)); }

// The program's status.
Result<int> StartWatched(const WatchCommandOptions& options) {
  if (options.most_seconds < options.least_seconds)
    return Status(StatusCode::kInvalidArgument, "--most is less than --least: nothing would be said between the two");
  KINTSUGI_ASSIGN_OR_RETURN(const std::string part, PackagePart("watch"));
  watch::WatchOptions watched;
  watched.command = ByPython(options.module, options.program);
  watched.package = std::filesystem::path(part).parent_path().string();
  watched.limits = {options.factor, OfSeconds(options.least_seconds), OfSeconds(options.most_seconds),
                    OfSeconds(options.first_seconds)};
  std::ofstream file;
  if (!options.file.empty()) {
    file.open(options.file, std::ios::app);
    if (!file)
      return Status(StatusCode::kInvalidArgument, "'" + options.file + "' cannot be written: name another --log-file");
  }
  std::ostream& out = options.file.empty() ? std::cerr : file;
  return watch::WatchProgram(watched,
                             [&out](const std::string& line) { out << "kintsugi watch: " << line << std::endl; });
}

}  // namespace

void AddWatch(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<WatchCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "watch",
      "Start a torch program, unchanged, and say which rank the others wait for, and why, once they wait for longer "
      "than\n"
      "they are known to: the line it stands in, or the call that differs. Looks, and repairs nothing.");
  command->add_option("--least", o->least_seconds, "Seconds that a wait lasts at least before anything is said of it")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--factor", o->factor, "A wait is long once it lasts so many times what such waits lasted before")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--most", o->most_seconds, "Seconds after which a wait is long whatever came before")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--first", o->first_seconds, "Seconds of the first wait of its kind")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--log-file", o->file,
                      "Write what is said to the end of this file, in the place of standard error");
  AddPythonOption(*command, o->module);
  command->add_option("program", o->program, "Program and its arguments, after --: torchrun, accelerate, python, ...")
      ->required();
  command->positionals_at_end();
  command->footer(
      "Says, on standard error: event=hang why= ranks= text=, and event=hang_stack for ranks that stand alike; "
      "event=hang_over\n"
      "where it was none in the end. The program's output and its exit code are its own; a signal that ended it ends "
      "this\n"
      "command, too. 2 wrong usage, 3 the program could not be started.\n\n"
      "On several hosts start it on each: it sees the ranks of its own host, names no other, and says where some are "
      "elsewhere.\n"
      "Seen are collectives of tensors on the cpu (gloo, mpi), by DDP, FSDP2, DTensor and torch.distributed's "
      "functions;\n"
      "not what a compiled graph calls, nor those on devices.\n\n"
      "Example: kintsugi watch -- torchrun --nproc-per-node 4 train.py");
  command->callback([o, &exit_code] {
    const Result<int> status = StartWatched(*o);
    if (status.ok()) {
      exit_code = watch::ExitCodeOf(status.value());
      return;
    }
    Complain(status.status().message());
    exit_code = status.status().code() == StatusCode::kInvalidArgument ? core::kExitUsage : core::kExitStartup;
  });
}

}  // namespace kintsugi::cli
