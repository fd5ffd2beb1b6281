// kintsugi explain: for each incident which rungs of the ladder were considered, and why the chosen one won.
#include <fstream>
#include <iostream>
#include <iterator>

#include "runtime/base/json.h"
#include "tools/cli/common.h"
#include "tools/cli/talk_request.h"

namespace kintsugi::cli {
namespace {

using nlohmann::json;

struct ExplainOptions {
  std::string run_dir;
  std::string report;
  uint64_t incident = 0;  // 0: all
  bool as_json = false;
};

// The incidents of a report folder's summary; nothing, with a word why, where there are none to read.
std::optional<json> FromReport(const std::string& folder, int& exit_code) {
  const std::string path = folder + "/summary.json";
  const auto refuse = [&](const std::string& why) {
    Complain(path + why);
    exit_code = core::kExitFailed;
    return std::nullopt;
  };
  std::ifstream file(path);
  if (!file) return refuse(" cannot be read: give the folder of `kintsugi run --report`");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto summary = JsonDocument::Parse(text);
  if (!summary.ok()) return refuse(" is not the summary of a run: " + summary.status().message());
  const auto incidents = summary->Root().Find("incidents");
  if (!incidents || !incidents->IsList()) return refuse(" is not the summary of a run");
  return incidents->Copy();
}

std::optional<json> Incidents(const ExplainOptions& options, int& exit_code) {
  if (!options.report.empty()) return FromReport(options.report, exit_code);
  auto answer = AskRun(options.run_dir, {{"command", "incidents"}}, exit_code);
  if (!answer) return std::nullopt;
  return (*answer)["incidents"];
}

std::string TextOf(const json& of, const char* key) {
  return of.contains(key) && of[key].is_string() ? of[key].get<std::string>() : "";
}

std::string Ranks(const json& incident) {
  std::string text;
  for (const json& rank : incident.value("ranks", json::array())) text += (text.empty() ? "" : ", ") + rank.dump();
  return text.empty() ? "no rank" : (incident["ranks"].size() > 1 ? "ranks " : "rank ") + text;
}

std::string Milliseconds(const json& incident, const char* key) {
  if (!incident.contains(key) || !incident[key].is_number()) return "";
  return std::to_string(static_cast<int64_t>(incident[key].get<double>() + 0.5)) + " ms";
}

void PrintIncident(const json& incident) {
  const std::string path = TextOf(incident, "path");
  std::cout << "incident " << incident.value("id", 0) << ": " << TextOf(incident, "signal") << ", " << Ranks(incident)
            << "\n  " << TextOf(incident, "cause") << "\n";
  if (const std::string known = Milliseconds(incident, "detected_ms"); !known.empty()) {
    const std::string resumed = Milliseconds(incident, "resumed_ms");
    std::cout << "  known after " << known << ", " << (resumed.empty() ? "not resumed" : "all resumed after " + resumed)
              << ", " << incident.value("attempts", 0)
              << (incident.value("attempts", 0) == 1 ? " attempt" : " attempts");
    if (incident.contains("step") && incident["step"].is_number()) std::cout << ", at step " << incident["step"];
    std::cout << "\n";
  }
  for (const json& reason : incident.value("reasons", json::array())) {
    const std::string rung = TextOf(reason, "rung");
    std::cout << "    " << rung << std::string(rung.size() < 8 ? 8 - rung.size() : 1, ' ')
              << (rung == path ? "CHOSEN   " : "refused  ") << TextOf(reason, "reason") << "\n";
  }
  if (incident.value("reasons", json::array()).empty())
    std::cout << "    no rung was chosen" << (incident.value("over", true) ? ": the fault healed by itself" : " yet")
              << "\n";
}

int Explain(const ExplainOptions& options) {
  if (options.run_dir.empty() == options.report.empty()) {
    Complain("give either --run DIR (a live run) or --report DIR (one that is over)");
    return core::kExitUsage;
  }
  int exit_code = core::kExitSuccess;
  const std::optional<json> found = Incidents(options, exit_code);
  if (!found) return exit_code;
  json chosen = json::array();
  for (const json& incident : *found)
    if (incident.is_object() && (options.incident == 0 || incident.value("id", uint64_t{0}) == options.incident))
      chosen.push_back(incident);
  if (options.incident > 0 && chosen.empty()) {
    Complain("there is no incident " + std::to_string(options.incident) + "; there are " +
             std::to_string(found->size()));
    return core::kExitUsage;
  }
  if (options.as_json) {
    std::cout << chosen.dump() << std::endl;
    return exit_code;
  }
  if (chosen.empty()) std::cout << "no incident so far" << std::endl;
  for (const json& incident : chosen) PrintIncident(incident);
  std::cout << std::flush;
  return exit_code;
}

}  // namespace

void AddExplain(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Say for each incident which repairs were considered, and why the chosen one won");
  command->add_option("--run", options->run_dir, "The folder of a live run (its --run-dir; `kintsugi run` prints it)");
  command->add_option("--report", options->report, "The report folder of a run that is over (its --report)");
  command->add_option("--incident", options->incident, "Only the incident with this number")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->as_json, "A JSON list, as \"incidents\" in summary.json");
  command->footer(
      "Rungs, cheapest first: resume, retry, patch, rebuild, adopt, spare, respawn, shrink, reload, dump, exit. Each\n"
      "says why it was refused; the first that holds is chosen.\n\n"
      "Examples: kintsugi explain --report out\n"
      "          kintsugi explain --run /tmp/kintsugi-0/run-4711 --incident 2\n\n"
      "Exit codes: 0 explained, 1 the run or the report is not there, 2 wrong usage.");
  command->callback([options, &exit_code] { exit_code = Explain(*options); });
}

}  // namespace kintsugi::cli
