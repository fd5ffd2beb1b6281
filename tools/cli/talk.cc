// kintsugi status, inject, save, pause, continue, replace, scale, stop: talk to a live run through its control socket. Of several nodes any will do:
// what the leader must answer is passed on to it.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/cli/common.h"
#include "tools/cli/run_choice.h"
#include "tools/cli/talk_request.h"
#include "tools/cli/watch.h"

namespace kintsugi::cli {
namespace {

using nlohmann::json;

struct TalkOptions {
  std::string run_dir;
  std::string spec;
  bool as_json = false;
  bool no_wait = false;
  int rank = 0;
  int node = 0;
  int ranks = 0;
  double watch = 0;  // seconds between two looks; 0: one look
  double timeout = 600;
};

constexpr size_t kWorldsShown = 3;

std::string Age(const json& of) { return std::to_string(static_cast<int64_t>(of["age_s"].get<double>())) + " s ago"; }

void PrintSaves(const json& saves) {
  std::cout << "  saves: " << saves["made"] << " made, " << saves["failed"] << " failed, newest ";
  if (saves["newest"].is_null())
    std::cout << "none";
  else
    std::cout << "of step " << saves["newest"]["step"] << ", " << Age(saves["newest"]);
  if (!saves["last_failure"].is_null())
    std::cout << "\n  the last failure, " << Age(saves["last_failure"]) << ", of step " << saves["last_failure"]["step"]
              << ": " << saves["last_failure"]["why"].get<std::string>();
  if (const std::string remark = saves.value("remark", ""); !remark.empty())
    std::cout << "\n  of the newest: " << remark;
  std::cout << "\n";
}

void PrintTime(const json& time) {
  char text[200];
  std::snprintf(text, sizeof text,
                "  time: %.0f s, of these useful %.1f %%; start %.1f s, down %.1f s, steps done again %.1f s, "
                "saves %.1f s, paused %.1f s\n",
                time["total_s"].get<double>(), 100 * time["goodput"].get<double>(), time["starting_s"].get<double>(),
                time["down_s"].get<double>(), time["redone_s"].get<double>(), time.value("saving_s", 0.0),
                time.value("paused_s", 0.0));
  std::cout << text;
}

// The newest ones; the page and the report draw them all.
void PrintWorlds(const json& changes) {
  const auto names = [](const json& ranks) {
    std::string out;
    for (const json& rank : ranks) out += (out.empty() ? "" : ",") + std::to_string(rank.get<int>());
    return out;
  };
  for (size_t i = changes.size() - std::min(changes.size(), kWorldsShown); i < changes.size(); ++i) {
    const json& change = changes[i];
    std::cout << "  world " << change["ranks"] << " ranks after step " << change["step"];
    if (!change["left"].empty()) std::cout << ": left " << names(change["left"]);
    if (!change["came"].empty()) std::cout << ": came " << names(change["came"]);
    if (!change["incident"].is_null()) std::cout << " (incident " << change["incident"] << ")";
    std::cout << "\n";
  }
}

void PrintStatus(const json& s) {
  std::cout << "job " << s["job"].get<std::string>() << "  phase " << s["phase"].get<std::string>() << "  step "
            << s["step"] << "  generation " << s["generation"] << "  term " << s["term"] << "  incidents "
            << s["incidents"];
  const json world = s.value("world", json::object());
  const json changes = s.value("world_changes", json::array());
  if (world.value("ranks", 0) != world.value("places", 0) || !changes.empty()) {
    std::cout << "  world " << world["ranks"] << " of " << world["places"] << " ranks";
    if (world.value("wanted", 0) > 0) std::cout << ", " << world["wanted"] << " wanted";
  }
  if (const json pause = s.value("pause", json::object()); pause.value("asked", false))
    std::cout << (pause["at_step"].is_null() ? "  pausing" : "  paused");
  if (s["spares"]["wanted"] > 0) std::cout << "  spares " << s["spares"]["waiting"] << " of " << s["spares"]["wanted"];
  std::cout << "\n";
  PrintWorlds(changes);
  PrintTime(s["time"]);
  PrintSaves(s["saves"]);
  for (const json& node : s.value("hosts", json::array())) {
    std::cout << "  node " << node["node"].get<std::string>() << "  host " << node["host"].get<std::string>()
              << "  address " << node["address"].get<std::string>();
    if (!node["here"].get<bool>()) std::cout << "  is away";
    if (node["spare"].get<bool>()) std::cout << "  is a spare";
    std::cout << "\n";
  }
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

std::chrono::milliseconds Limit(const TalkOptions& options) {
  return std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1000));
}

void AddWaiting(CLI::App* command, const std::shared_ptr<TalkOptions>& options) {
  command->add_flag("--no-wait", options->no_wait, "Ask for it, and do not wait for its outcome");
  command->add_option("--timeout", options->timeout, "Seconds to wait for the outcome")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
}

CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& help,
                     const std::shared_ptr<TalkOptions>& options) {
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option("--run", options->run_dir, "The run's folder (its --run-dir; `kintsugi run` prints it)")
      ->required();
  return command;
}

void AddPause(CLI::App& app, const std::shared_ptr<TalkOptions>& options, int& exit_code) {
  CLI::App* pause = AddCommand(
      app, "pause", "Let all ranks of a live run stand still after the step they are in, until `kintsugi continue`",
      options);
  AddWaiting(pause, options);
  pause->footer(
      "A save asked for meanwhile is made where the run stands, a fault is repaired and the run pauses again, a stop\n"
      "saves and leaves. A pause outlives its leader: another node that takes the run over keeps it.\n"
      "Exit codes: 0 all ranks stand (with --no-wait: asked for), 1 the run ended or they did not stand in time, 2\n"
      "refused.");
  pause->callback([options, &exit_code] {
    const auto answer =
        AskRun(options->run_dir, {{"command", "pause"}, {"wait", !options->no_wait}}, exit_code, Limit(*options));
    if (answer && options->no_wait) std::cout << "pausing" << std::endl;
    if (answer && !options->no_wait) std::cout << "paused after step " << (*answer)["step"] << std::endl;
  });
  CLI::App* go_on = AddCommand(app, "continue", "Let a paused run go on", options);
  go_on->callback([options, &exit_code] {
    const auto answer = AskRun(options->run_dir, {{"command", "continue"}}, exit_code);
    if (!answer) return;
    std::cout << "continued";
    if (!(*answer)["step"].is_null()) std::cout << " after step " << (*answer)["step"];
    std::cout << std::endl;
  });
  CLI::App* replace =
      AddCommand(app, "replace",
                 "End the process of a rank of a live run and put a new one in its place, as after a fault", options);
  replace->add_option("rank", options->rank, "The rank")->required()->check(CLI::Range(0, 1 << 30));
  AddWaiting(replace, options);
  replace->footer(
      "The old process goes at the end of a step; with --verify-every replicas are compared first. Where nothing but "
      "one other\n"
      "rank would have its state meanwhile (no Agent::AllocateState, two replicas), the run is saved before.\n"
      "Refused where the rank may not be replaced once more (--max-respawns), holds state that no other rank holds "
      "and\n"
      "nothing can be saved, or a repair is under way.\n"
      "Exit codes: 0 all ranks step again (with --no-wait: asked for), 1 the run ended, or they did not in time, 2\n"
      "refused.");
  replace->callback([options, &exit_code] {
    const auto answer =
        AskRun(options->run_dir, {{"command", "replace"}, {"rank", options->rank}, {"wait", !options->no_wait}},
               exit_code, Limit(*options));
    if (!answer) return;
    if (options->no_wait)
      std::cout << "replacing rank " << options->rank << std::endl;
    else
      std::cout << "replaced rank " << options->rank << " (" << (*answer)["incident"]["path"]
                << "), all ranks step again after "
                << static_cast<int64_t>((*answer)["incident"]["down_ms"].get<double>()) << " ms" << std::endl;
  });
}

void AddDrain(CLI::App& app, const std::shared_ptr<TalkOptions>& options, int& exit_code) {
  CLI::App* drain = AddCommand(app, "drain",
                               "Free a node of a live run from its ranks: at the end of a step they go on on a spare "
                               "node; without a spare node the\n"
                               "run saves and leaves with exit code 75",
                               options);
  drain->add_option("--node", options->node, "The node's number, as `kintsugi status` has it")
      ->required()
      ->check(CLI::Range(0, 1 << 30));
  AddWaiting(drain, options);
  drain->footer(
      "Where the node alone, or but one rank outside of it, holds some state, the run is saved before. Afterwards its "
      "launcher\n"
      "gets no ranks any more: end it with SIGTERM (exit code 0), also where it leads. Started again it is the next "
      "spare.\n"
      "Exit codes: 0 all ranks step again elsewhere, or the run leaves (with --no-wait: asked for), 1 the run ended, "
      "or they\n"
      "did not in time, 2 refused.");
  drain->callback([options, &exit_code] {
    const auto answer =
        AskRun(options->run_dir, {{"command", "drain"}, {"node", options->node}, {"wait", !options->no_wait}},
               exit_code, Limit(*options));
    if (!answer) return;
    const std::string node = "node " + std::to_string(options->node);
    if (answer->value("leaves", false))
      std::cout << "no spare node is here: the run finishes its step, saves and ends with exit code 75" << std::endl;
    else if (!answer->value("has_ranks", true))
      std::cout << node << " has no ranks: end its launcher with SIGTERM" << std::endl;
    else if (options->no_wait)
      std::cout << "draining " << node << std::endl;
    else
      std::cout << "drained " << node << ", all ranks step again after "
                << static_cast<int64_t>((*answer)["incident"]["down_ms"].get<double>())
                << " ms; end its launcher with SIGTERM" << std::endl;
  });
}

void AddScale(CLI::App& app, const std::shared_ptr<TalkOptions>& options, int& exit_code) {
  CLI::App* scale = AddCommand(app, "scale",
                               "Let a live run go on with another number of ranks: places that ranks were lost from "
                               "get processes again, or ranks leave",
                               options);
  scale->add_option("--ranks", options->ranks, "How many are to take part")->required()->check(CLI::Range(1, 1 << 30));
  AddWaiting(scale, options);
  scale->footer(
      "For programs that offer other worlds (Agent::OfferWorlds), in whole data-parallel slices; up to as many ranks "
      "as the run\n"
      "was started with. New processes start beside the run. Once they are ready all ranks meet at the end of a step, "
      "those that\n"
      "come get the state from the others, and the run goes on with the numbers of one that was saved at that step and "
      "resumed\n"
      "with so many ranks. Whatever becomes of them before that costs the run nothing.\n"
      "Exit codes: 0 all ranks step again (with --no-wait: asked for), 1 it was begun and did not come about: the run "
      "goes on as\n"
      "before, or it ended, 2 refused.");
  scale->callback([options, &exit_code] {
    const auto answer =
        AskRun(options->run_dir, {{"command", "scale"}, {"ranks", options->ranks}, {"wait", !options->no_wait}},
               exit_code, Limit(*options));
    if (!answer) return;
    if (options->no_wait)
      std::cout << "scaling to " << options->ranks << " ranks" << std::endl;
    else
      std::cout << "the run goes on with " << (*answer)["ranks"] << " ranks after step "
                << (*answer)["incident"]["step"] << ", all step again after "
                << static_cast<int64_t>((*answer)["incident"]["down_ms"].get<double>()) << " ms" << std::endl;
  });
}

}  // namespace

void AddTalk(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<TalkOptions>();
  CLI::App* status = app.add_subcommand("status", "Show where a live run and each of its ranks stand");
  status->add_option(
      "--run", options->run_dir,
      "The run's folder (`kintsugi list` shows it); default: that of the only live run of this user here");
  CLI::Option* as_json = status->add_flag("--json", options->as_json, "The whole answer as JSON");
  status
      ->add_option("--watch", options->watch,
                   "Look again every so many seconds until the run ends, on a screen that is drawn anew; Ctrl-C ends\n"
                   "it. Where standard output is no terminal: one line each time")
      ->expected(0, 1)
      ->default_str("2")
      ->check(CLI::Range(0.1, 86400.0))
      ->excludes(as_json);
  status->footer(
      "Exit codes: 0 the run answered (with --watch: until it ended, or Ctrl-C), 1 it is not there, 2 refused, or\n"
      "several runs are there and none was named.");
  status->callback([options, &exit_code] {
    if (!ChooseRun(&options->run_dir, exit_code)) return;
    if (options->watch > 0) return Watch(options->run_dir, options->watch, exit_code);
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
  CLI::App* save =
      AddCommand(app, "save", "Save a checkpoint of a live run at the next step, and say what became of it", options);
  AddWaiting(save, options);
  save->footer("Exit codes: 0 saved (with --no-wait: asked for), 1 the save failed or did not end in time, 2 refused.");
  save->callback([options, &exit_code] {
    const auto answer =
        AskRun(options->run_dir, {{"command", "save"}, {"wait", !options->no_wait}}, exit_code, Limit(*options));
    if (!answer) return;
    if (options->no_wait)
      std::cout << "saving to " << (*answer)["directory"].get<std::string>() << std::endl;
    else
      std::cout << "saved step " << (*answer)["step"] << " in " << (*answer)["directory"].get<std::string>()
                << (answer->contains("remark") ? "\nremark: " + (*answer)["remark"].get<std::string>() : "")
                << std::endl;
  });
  AddPause(app, options, exit_code);
  AddDrain(app, options, exit_code);
  AddScale(app, options, exit_code);
  CLI::App* stop = AddCommand(
      app, "stop", "End a live run in order: all ranks finish their step, save, and leave with exit code 75", options);
  stop->callback([options, &exit_code] {
    if (AskRun(options->run_dir, {{"command", "stop"}}, exit_code))
      std::cout << "stopping: the run finishes its step, saves and ends with exit code 75" << std::endl;
  });
}

}  // namespace kintsugi::cli
