#include "tools/doctor/findings.h"

#include <algorithm>

namespace kintsugi::doctor {

std::string_view SeverityName(Severity severity) {
  constexpr std::string_view kNames[] = {"ok", "warning", "error"};
  return kNames[static_cast<size_t>(severity)];
}

Severity WorstOf(const std::vector<Finding>& findings) {
  Severity worst = Severity::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
  return worst;
}

std::string FindingsText(const std::vector<Finding>& findings) {
  size_t width = 0, errors = 0, warnings = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.check.size());
  std::string text;
  for (const Finding& finding : findings) {
    const std::string name(SeverityName(finding.severity));
    text += (finding.severity == Severity::kOk ? "OK" : name) +
            std::string(9 - (finding.severity == Severity::kOk ? 2 : name.size()), ' ') + finding.check +
            std::string(width - finding.check.size() + 2, ' ') + finding.found + "\n";
    if (!finding.todo.empty()) text += std::string(9 + width + 2, ' ') + "-> " + finding.todo + "\n";
    errors += finding.severity == Severity::kError;
    warnings += finding.severity == Severity::kWarning;
  }
  const auto counted = [](size_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  return text + (errors > 0 ? "not ready: " : "ready: ") + counted(errors, "error") + ", " +
         counted(warnings, "warning") + "\n";
}

nlohmann::ordered_json FindingsJson(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    list.push_back({{"check", finding.check},
                    {"verdict", SeverityName(finding.severity)},
                    {"found", finding.found},
                    {"todo", finding.todo}});
  return {{"ready", WorstOf(findings) != Severity::kError}, {"checks", std::move(list)}};
}

}  // namespace kintsugi::doctor
