// kintsugi replay: a recorded run's inputs into fresh cores; every decision is compared, and told.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "runtime/journal/files.h"
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
  std::string run_dir, report;
  std::vector<std::string> files;
  uint64_t incident = 0;
  std::string json, scenario, policy;
  bool log = false;
};

int Refuse(const Status& why) {
  Complain(why.message());
  return core::kExitUsage;
}

// Those of all leaders that recorded there, by term.
Result<std::vector<std::string>> FindJournals(const ReplayOptions& o) {
  if (!o.run_dir.empty() + !o.report.empty() + !o.files.empty() != 1)
    return Status(StatusCode::kInvalidArgument, "give one of --run DIR, --report DIR and --journal FILE");
  if (!o.files.empty()) return o.files;
  const std::string& folder = o.run_dir.empty() ? o.report : o.run_dir;
  std::vector<std::string> found = journal::FilesIn(folder);
  if (found.empty()) found.push_back(folder + "/" + journal::kFileName);  // whose absence is told
  return found;
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

// One leader's part of a run.
struct Part {
  std::string file;
  std::unique_ptr<JournalReader> reader;
  std::unique_ptr<Listener> listener;
  journal::Replayed replayed;
};

Result<Part> ReplayOne(const ReplayOptions& options, const std::string& file, std::ostream& words) {
  Part part{.file = file, .reader = nullptr, .listener = nullptr, .replayed = {}};
  KINTSUGI_ASSIGN_OR_RETURN(part.reader, JournalReader::Open(file));
  Result<core::Policy> policy = journal::ReadPolicy(options.policy, part.reader->preamble().policy);
  if (!policy.ok()) return policy.status().Annotate("--policy");
  part.listener = std::make_unique<Listener>(options, part.reader->preamble().term, words);
  KINTSUGI_ASSIGN_OR_RETURN(part.replayed, journal::Replay(*part.reader, *policy, std::ref(*part.listener)));
  return part;
}

// Leaves those parts that have the incident which was asked for; ids are the run's, and so in one of them at most.
Status ChooseByIncident(const ReplayOptions& options, std::vector<Part>* parts) {
  if (options.incident == 0) return Status::Ok();
  size_t known = 0;
  for (const Part& part : *parts) known += part.listener->story.incidents().size();
  std::erase_if(*parts, [&](const Part& part) { return !part.listener->story.incidents().count(options.incident); });
  if (!parts->empty()) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          "there is no incident " + std::to_string(options.incident) + "; there are " + std::to_string(known)};
}

Status WriteAll(const ReplayOptions& options, std::vector<Part>& parts) {
  if (!options.json.empty()) {
    nlohmann::json told = nlohmann::json::array();
    for (const Part& part : parts)
      told.push_back(nlohmann::json::parse(Json(*part.reader, part.replayed, part.listener->story, options.incident)));
    KINTSUGI_RETURN_IF_ERROR(WriteText(
        options.json, parts.size() == 1 ? told[0].dump() : nlohmann::json{{"schema", 1}, {"leaders", told}}.dump()));
  }
  if (options.scenario.empty()) return Status::Ok();
  if (parts.size() > 1)
    return {StatusCode::kInvalidArgument, "--to-scenario is of one leader's part: give --incident N, or one --journal"};
  Part& part = parts.front();
  KINTSUGI_ASSIGN_OR_RETURN(const core::Policy policy,
                            journal::ReadPolicy(options.policy, part.reader->preamble().policy));
  return WriteScenario(options, part.file, policy, part.reader->preamble().term, *part.listener);
}

int Replay(const ReplayOptions& options) {
  const Result<std::vector<std::string>> files = FindJournals(options);
  if (!files.ok()) return Refuse(files.status());
  for (const std::string& out : {options.json, options.scenario})
    if (!out.empty())
      if (const Status writable = CheckWritable(out); !writable.ok()) return Refuse(writable);
  std::ostream& words = options.json == "-" || options.scenario == "-" ? std::cerr : std::cout;
  std::vector<Part> parts;
  for (const std::string& file : *files) {
    Result<Part> part = ReplayOne(options, file, words);
    if (!part.ok()) return Refuse(part.status());
    parts.push_back(*std::move(part));
  }
  const auto term_of = [](const Part& part) { return part.reader->preamble().term; };
  std::stable_sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) { return term_of(a) < term_of(b); });
  const bool several = parts.size() > 1;
  if (const Status chosen = ChooseByIncident(options, &parts); !chosen.ok()) return Refuse(chosen);
  if (const Status written = WriteAll(options, parts); !written.ok()) return Refuse(written);
  int exit_code = core::kExitSuccess;
  for (const Part& part : parts) {
    if (several) words << "---- the leader of term " << term_of(part).number << ", " << part.file << "\n";
    if (!options.log) words << part.listener->story.Words(options.incident) << '\n';
    words << Summary(*part.reader, part.replayed) << std::endl;
    if (!part.replayed.difference) continue;
    ComplainOf(*part.replayed.difference, *part.reader, !options.policy.empty());
    exit_code = core::kExitFailed;
  }
  return exit_code;
}

}  // namespace

void AddReplay(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command =
      app.add_subcommand("replay", "Decide a recorded run again, compare every decision, tell the story");
  command->add_option("--run", options->run_dir,
                      "Folder of a run, live or over (its --run-dir; `kintsugi run` prints it)");
  command->add_option("--report", options->report, "Report folder of a run (its --report)");
  command
      ->add_option("--journal", options->files,
                   "A journal itself; several times: those of leaders on other nodes, which go on from one another")
      ->take_all();
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
      "as it goes; of a run that several led, one after the other, those of all leaders that recorded there are told, "
      "and\n"
      "the others' are named by --journal; a torn end, left by a controller that was killed, costs what came after the "
      "last whole record.\n\n"
      "Examples: kintsugi replay --report out\n"
      "          kintsugi replay --run /tmp/kintsugi-0/run-4711 --incident 2 --to-scenario outage.txt\n\n"
      "Exit codes: 0 every decision was reproduced, 1 a decision differs, 2 wrong usage, no journal or a damaged one.");
  command->callback([options, &exit_code] { exit_code = Replay(*options); });
}

}  // namespace kintsugi::cli
