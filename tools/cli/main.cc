// kintsugi: the command line.
#include <csignal>
#include <exception>

#include "tools/cli/answer.h"
#include "tools/cli/common.h"
#include "tools/cli/usage.h"
#include "tools/cli/version.h"

int main(int argc, char** argv) {
  // A reader that goes away costs its output and nothing else, a file that may not grow is met as a full disk; the programs
  // that are started get the default back.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app{
      "Kintsugi: fault tolerance for distributed training.\n"
      "Starts ranks, watches them, and repairs the run in memory when something breaks."};
  app.set_version_flag("--version", kintsugi::cli::VersionText, "Version, commit, compiler and what was built in");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success, 1 the run failed, 2 wrong usage, 3 the run could not start,\n"
      "75 the run was saved and can be resumed with --resume.\n\n"
      "Example: kintsugi run --nproc 4 --inject kill:2@50:update -- ./byte_lm --steps 100");
  int exit_code = 0;
  kintsugi::cli::AddRun(app, exit_code);
  kintsugi::cli::AddDemo(app, exit_code);
  kintsugi::cli::AddCertify(app, exit_code);
  kintsugi::cli::AddInit(app, exit_code);
  kintsugi::cli::AddAudit(app, exit_code);
  kintsugi::cli::AddWatch(app, exit_code);
  kintsugi::cli::AddTalk(app, exit_code);
  kintsugi::cli::AddList(app, exit_code);
  kintsugi::cli::AddRemove(app, exit_code);
  kintsugi::cli::AddBundle(app, exit_code);
  kintsugi::cli::AddDoctor(app, exit_code);
  kintsugi::cli::AddExplain(app, exit_code);
  kintsugi::cli::AddReplay(app, exit_code);
  kintsugi::cli::AddController(app, exit_code);
  kintsugi::cli::AddCheckpoint(app, exit_code);
  kintsugi::cli::AddReport(app, exit_code);
  kintsugi::cli::AddSim(app, exit_code);
  kintsugi::cli::AddReshard(app, exit_code);
  kintsugi::cli::AddAoa(app, exit_code);
  kintsugi::cli::AddManifest(app);
  kintsugi::cli::AddCompletion(app);
  kintsugi::cli::RefuseNegativeNumbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool unknown =
        dynamic_cast<const CLI::ExtrasError*>(&error) || dynamic_cast<const CLI::RequiredError*>(&error);
    if (const std::string word = unknown ? kintsugi::cli::UnknownWord(app, {argv + 1, argv + argc}) : "";
        !word.empty()) {
      kintsugi::cli::Complain(word + "\nRun with --help for more information.");
      return 2;
    }
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    kintsugi::cli::Complain(std::string("unexpected: ") + error.what() + "; please report it");
    return 1;
  }
  return exit_code;
}
