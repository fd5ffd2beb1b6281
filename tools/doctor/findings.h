// What a check found, and how all of them are told. Pure.
//
// Errors: none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kintsugi::doctor {

enum class Severity { kOk, kWarning, kError };

std::string_view SeverityName(Severity severity);  // "ok", "warning", "error"

struct Finding {
  std::string check;  // "ports"
  Severity severity = Severity::kOk;
  std::string found;
  std::string todo;  // what to do; empty where all is well
};

Severity WorstOf(const std::vector<Finding>& findings);

// A line for each, with what to do below it, and a last one that sums up.
std::string FindingsText(const std::vector<Finding>& findings);
nlohmann::ordered_json FindingsJson(const std::vector<Finding>& findings);

}  // namespace kintsugi::doctor
