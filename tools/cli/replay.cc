// kintsugi replay: a recorded run's inputs into fresh cores; every decision is compared, and told.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "runtime/journal/options.h"
#include "runtime/journal/text.h"
#include "runtime/wire/words.h"
#include "tools/cli/common.h"
#include "tools/replay/scenario.h"
#include "tools/replay/story.h"

namespace kintsugi::cli {
namespace {

using journal::JournalReader;

// More inputs than this are no story that anyone reads.
constexpr size_t kScenarioInputsMax = 2'000'000;

struct ReplayOptions {
  std::string run_dir, report, file;
  uint64_t incident = 0;
  std::string json, scenario, policy;
  bool log = false;
};

int Refuse(const Status& why) {
  Complain(why.message());
  return core::kExitUsage;
}

Result<std::string> FindJournal(const ReplayOptions& o) {
  if (!o.run_dir.empty() + !o.report.empty() + !o.file.empty() != 1)
    return Status(StatusCode::kInvalidArgument, "give one of --run DIR, --report DIR and --journal FILE");
  if (!o.file.empty()) return o.file;
  return (o.run_dir.empty() ? o.report : o.run_dir) + "/" + journal::kFileName;
}

// What a replay is to give besides the comparison.
class Listener {
 public:
  Listener(const ReplayOptions& options, Term term, std::ostream& words)
      : options_(options), term_(term), words_(words) {}

  void operator()(const journal::Input& input, const std::vector<core::ControllerAction>& actions) {
    if (std::holds_alternative<journal::Start>(input.what)) origin_ = input.now;
    story.Take(input, actions);
    if (options_.log && !journal::IsQuiet(input)) Log(input, actions);
    if (options_.scenario.empty() || scenario_over_) return;
    if (inputs.size() <= kScenarioInputsMax) inputs.push_back(input);
    for (const core::ControllerAction& action : actions)
      if (const auto* closed = std::get_if<core::IncidentClosed>(&action))
        scenario_over_ = scenario_over_ || closed->record.id == options_.incident;
  }

  Story story;
  std::vector<journal::Input> inputs;

 private:
  void Log(const journal::Input& input, const std::vector<core::ControllerAction>& actions) {
    words_ << journal::WriteMilliseconds(input.now - origin_) << ' ' << journal::WriteInput(input, term_, origin_)
           << '\n';
    for (const core::ControllerAction& action : actions)
      for (const std::string& line : journal::WriteAction(action, term_, origin_)) words_ << "    " << line << '\n';
  }

  const ReplayOptions& options_;
  const Term term_;
  std::ostream& words_;
  TimePoint origin_;
  bool scenario_over_ = false;
};

Status WriteScenario(const ReplayOptions& options, const std::string& source, const core::Policy& policy, Term term,
                     Listener& listener) {
  if (listener.inputs.size() > kScenarioInputsMax)
    return {StatusCode::kInvalidArgument,
            "more than " + std::to_string(kScenarioInputsMax) +
                " inputs are no scenario that anyone reads: choose an earlier --incident"};
  std::string remark = "Recorded in " + source + ".";
  for (const auto& [id, incident] : listener.story.incidents())
    if (incident.record && (options.incident == 0 || id == options.incident))
      remark += "\nIncident " + std::to_string(id) + ": " + std::string(core::FaultKindName(incident.record->signal)) +
                ", " + wire::WriteString(incident.record->cause);
  std::string text = MakeScenario(remark, policy, term, std::move(listener.inputs));
  if (!text.empty()) text.pop_back();  // WriteText adds it
  return WriteText(options.scenario, text);
}

std::string Json(const JournalReader& reader, const journal::Replayed& replayed, const Story& story,
                 uint64_t incident) {
  nlohmann::json json = nlohmann::json::parse(story.Json(incident));
  json["schema"] = 1;
  json["world_size"] = reader.preamble().policy.world_size;
  json["recorded_by"] = reader.preamble().build;
  json["seconds"] = std::chrono::duration<double>(replayed.last - replayed.begin).count();
  json["inputs"] = replayed.inputs;
  json["quiet_inputs"] = replayed.quiet;
  json["actions"] = replayed.actions;
  json["identical"] = !replayed.difference;
  json["complete"] = reader.end() == journal::EndReason::kEnded;
  json["torn"] = reader.torn();
  json["bytes_lost"] = reader.bytes_lost();
  if (!replayed.difference) return json.dump();
  json["difference"] = {{"record", replayed.difference->record},
                        {"input", replayed.difference->input},
                        {"at_ms", ToMilliseconds(replayed.difference->at)},
                        {"event", replayed.difference->event},
                        {"text", replayed.difference->text}};
  return json.dump();
}

void ComplainOf(const journal::Divergence& d, const JournalReader& reader, bool other_policy) {
  std::string text = "the replay differs at record " + std::to_string(d.record) + ", input " + std::to_string(d.input) +
                     ", " + journal::WriteMilliseconds(d.at) + " ms: " + d.event + "\n  " + d.text + "\n  ";
  if (other_policy)
    text += "that is where the other policy decides otherwise";
  else if (reader.preamble().build != journal::Build())
    text += "it was recorded by kintsugi " + reader.preamble().build + ", this is " + journal::Build() +
            ": another version may decide otherwise";
  else
    text += "this is a bug of kintsugi: please report it with the journal";
  Complain(text);
}

int Replay(const ReplayOptions& options) {
  const Result<std::string> file = FindJournal(options);
  if (!file.ok()) return Refuse(file.status());
  Result<std::unique_ptr<JournalReader>> opened = JournalReader::Open(*file);
  if (!opened.ok()) return Refuse(opened.status());
  JournalReader& reader = **opened;
  const Result<core::Policy> policy = journal::ReadPolicy(options.policy, reader.preamble().policy);
  if (!policy.ok()) return Refuse(policy.status().Annotate("--policy"));
  for (const std::string& out : {options.json, options.scenario})
    if (!out.empty())
      if (const Status writable = CheckWritable(out); !writable.ok()) return Refuse(writable);
  std::ostream& words = options.json == "-" || options.scenario == "-" ? std::cerr : std::cout;
  const Term term = reader.preamble().term;
  Listener listener(options, term, words);
  const Result<journal::Replayed> replayed = journal::Replay(reader, *policy, std::ref(listener));
  if (!replayed.ok()) return Refuse(replayed.status());
  if (options.incident > 0 && !listener.story.incidents().count(options.incident))
    return Refuse({StatusCode::kInvalidArgument, "there is no incident " + std::to_string(options.incident) +
                                                     "; there are " +
                                                     std::to_string(listener.story.incidents().size())});
  Status written;
  if (!options.json.empty())
    written = WriteText(options.json, Json(reader, *replayed, listener.story, options.incident));
  if (written.ok() && !options.scenario.empty()) written = WriteScenario(options, *file, *policy, term, listener);
  if (!written.ok()) return Refuse(written);
  if (!options.log) words << listener.story.Words(options.incident) << '\n';
  words << Summary(reader, *replayed) << std::endl;
  if (!replayed->difference) return core::kExitSuccess;
  ComplainOf(*replayed->difference, reader, !options.policy.empty());
  return core::kExitFailed;
}

}  // namespace

void AddReplay(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command =
      app.add_subcommand("replay", "Decide a recorded run again, compare every decision, tell the story");
  command->add_option("--run", options->run_dir,
                      "Folder of a run, live or over (its --run-dir; `kintsugi run` prints it)");
  command->add_option("--report", options->report, "Report folder of a run (its --report)");
  command->add_option("--journal", options->file, "The journal itself");
  command->add_option("--incident", options->incident, "Only the incident with this number; a scenario ends with it")
      ->check(CLI::PositiveNumber);
  command->add_option("--json", options->json, "Write the story as JSON to FILE, or to standard output for -")
      ->expected(0, 1)
      ->default_str("-");
  command->add_option(
      "--to-scenario", options->scenario,
      "Write the run up to the incident's end as a golden scenario to FILE, or to standard output for -");
  command->add_option("--policy", options->policy,
                      "What if: fields of the policy to decide with instead, as in 'max_respawns=0 silence=500ms'");
  command->add_flag("--log", options->log, "Print every input and what came out of it, but for quiet ticks and beats");
  command->footer(
      "A journal holds what went into the controller's core and a digest of what came out. A live run's is read as "
      "far\n"
      "as it goes; a torn end, left by a controller that was killed, costs what came after the last whole record.\n\n"
      "Examples: kintsugi replay --report out\n"
      "          kintsugi replay --run /tmp/kintsugi-0/run-4711 --incident 2 --to-scenario outage.txt\n\n"
      "Exit codes: 0 every decision was reproduced, 1 a decision differs, 2 wrong usage, no journal or a damaged one.");
  command->callback([options, &exit_code] { exit_code = Replay(*options); });
}

}  // namespace kintsugi::cli
