// kintsugi status, inject, save: talk to a live run through its control socket.
#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/cli/common.h"
#include "tools/cli/talk_request.h"

namespace kintsugi::cli {
namespace {

using nlohmann::json;

struct TalkOptions {
  std::string run_dir;
  std::string spec;
  bool as_json = false;
};

void PrintStatus(const json& s) {
  std::cout << "job " << s["job"].get<std::string>() << "  phase " << s["phase"].get<std::string>() << "  step "
            << s["step"] << "  generation " << s["generation"] << "  term " << s["term"] << "  incidents "
            << s["incidents"];
  if (s["spares"]["wanted"] > 0) std::cout << "  spares " << s["spares"]["waiting"] << " of " << s["spares"]["wanted"];
  std::cout << "\n";
  for (const json& rank : s["ranks"]) {
    std::cout << "  rank " << rank["rank"] << "  pid " << rank["pid"] << "  life " << rank["incarnation"] << " ("
              << rank["life"].get<std::string>() << ")  step " << rank["step"] << "  respawns " << rank["respawns"];
    if (rank.contains("gate"))
      std::cout << "  " << rank["gate"]["state"].get<std::string>() << "(" << rank["gate"]["step"] << ")"
                << (rank["gate"]["locked"].get<bool>() ? " locked" : "");
    std::cout << "\n";
  }
  std::cout << "  refused frames " << s["refused_frames"] << ", dropped messages " << s["dropped_messages"]
            << ", refused connections " << s["connections"]["refused"].dump() << std::endl;
}

CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& help,
                     const std::shared_ptr<TalkOptions>& options) {
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option("--run", options->run_dir, "The run's folder (its --run-dir; `kintsugi run` prints it)")->required();
  return command;
}

}  // namespace

void AddTalk(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TalkOptions>();
  CLI::App* status = AddCommand(app, "status", "Show where a live run and each of its ranks stand", options);
  status->add_flag("--json", options->as_json, "The whole answer as JSON");
  status->callback([options, &exit_code] {
    const auto answer = AskRun(options->run_dir, {{"command", "status"}}, exit_code);
    if (!answer) return;
    if (options->as_json)
      std::cout << answer->dump() << std::endl;
    else
      PrintStatus(*answer);
  });
  CLI::App* inject = AddCommand(app, "inject", "Strike a live run with a fault", options);
  inject->add_option("spec", options->spec, std::string(InjectionGrammar()))->required();
  inject->callback([options, &exit_code] {
    const auto answer = AskRun(options->run_dir, {{"command", "inject"}, {"spec", options->spec}}, exit_code);
    if (answer) std::cout << "armed " << (*answer)["spec"].get<std::string>() << std::endl;
  });
  CLI::App* save = AddCommand(app, "save", "Save a checkpoint of a live run at the next step", options);
  save->callback([options, &exit_code] {
    const auto answer = AskRun(options->run_dir, {{"command", "save"}}, exit_code);
    if (answer) std::cout << "saving to " << (*answer)["directory"].get<std::string>() << std::endl;
  });
}

}  // namespace kintsugi::cli
