#include "tools/cli/usage.h"

#include <algorithm>

namespace kintsugi::cli {
namespace {

// So many letters that are wanting, too many, others, or two that have changed places.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> least(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        least[i][j] = i + j;
        continue;
      }
      least[i][j] = std::min({least[i - 1][j] + 1, least[i][j - 1] + 1, least[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
    }
  return least[a.size()][b.size()];
}

bool IsNumber(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

std::string RefuseNegative(const std::string& text) {
  const bool negative = text.size() > 1 && text[0] == '-' && text.find_first_of("123456789") != std::string::npos;
  return negative ? "'" + text + "' is less than 0" : "";
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

std::string Told(const std::string& what, const std::string& near) {
  return "there is no " + what + (near.empty() ? "" : "; did you mean '" + near + "'?");
}

}  // namespace

void RefuseNegativeNumbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() > 0 && IsNumber(*option))
      option->check(CLI::Validator([](std::string& text) { return RefuseNegative(text); }, ""));
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) RefuseNegativeNumbers(*command);
}

std::string Nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t least = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& one : known)
    if (const size_t distance = Distance(word, one); distance < least) {
      least = distance;
      nearest = one;
    }
  return nearest;
}

std::string UnknownWord(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.starts_with("--")) {
      const std::string name = word.substr(2, word.find('=') - 2);
      const std::vector<std::string> known = OptionsOf(*at);
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string near = Nearest(name, known);
      return Told("option '--" + name + "' of kintsugi" + (at == &app ? "" : " " + at->get_name()),
                  near.empty() ? "" : "--" + near);
    }
    const std::vector<std::string> commands = CommandsOf(*at);
    if (word.starts_with("-") || commands.empty()) continue;
    if (std::find(commands.begin(), commands.end(), word) == commands.end())
      return Told("command '" + word + "'", Nearest(word, commands));
    at = at->get_subcommand(word);
  }
  return "";
}

}  // namespace kintsugi::cli
