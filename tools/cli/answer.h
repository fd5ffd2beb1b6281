// What `kintsugi reshard` and `kintsugi aoa` share: reading a spec, and saying an answer or a refusal.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/json.h"
#include "tools/reshard/refusal.h"

namespace kintsugi::cli {

// --json and --table; without either JSON, but a table where standard output is a terminal.
struct AnswerForm {
  bool json = false;
  bool table = false;

  bool IsJson() const;
};
void AddAnswerForm(CLI::App& command, AnswerForm& form);

// All of FILE, or of standard input for "-".
// Errors: kInvalidArgument; more than 1 GiB is refused.
Result<std::string> ReadInput(const std::string& file);
// "FILE" or "standard input", for messages.
std::string PlaceOf(const std::string& file);
Result<JsonDocument> ReadDocument(const std::string& file);

// To standard output with exit code 0.
int Say(const std::string& text);
// The same in parts, as they come.
int SayParts(const std::function<void(const std::function<void(std::string_view)>&)>& say);
// As JSON to standard output, or as words to standard error; exit code 2.
int Refuse(const reshard::AnswerRefusal& refusal, const AnswerForm& form);
int RefuseSpec(const std::string& file, const Status& status, const AnswerForm& form);

void AddReshard(CLI::App& app, int& exit_code);
void AddAoa(CLI::App& app, int& exit_code);

}  // namespace kintsugi::cli
