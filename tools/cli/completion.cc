// kintsugi completion: scripts that complete the command line in bash and zsh, made from the options themselves.
#include <algorithm>
#include <functional>
#include <iostream>

#include "tools/cli/common.h"

namespace kintsugi::cli {
namespace {

// A subcommand with the words that lead to it.
struct NestedCommand {
  std::string path;  // "kintsugi ckpt show"
  const CLI::App* app;
};

void Collect(const CLI::App& app, const std::string& path, std::vector<NestedCommand>* places) {
  places->push_back({path, &app});
  for (const CLI::App* child : app.get_subcommands(nullptr))
    if (!child->get_name().empty()) Collect(*child, path + " " + child->get_name(), places);
}

std::vector<NestedCommand> PlacesOf(const CLI::App& app) {
  std::vector<NestedCommand> places;
  Collect(app, "kintsugi", &places);
  return places;
}

std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

// The first sentence, as one line.
std::string Summary(const std::string& description) {
  std::string line = description.substr(0, std::min(description.find('\n'), description.find(". ")));
  while (!line.empty() && line.back() == '.') line.pop_back();
  return line;
}

// Within single quotes of a shell.
std::string QuotedForShell(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Within a specification of zsh's _arguments and _describe, which give these characters a meaning.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string Bash(const CLI::App& app) {
  std::string deeper, words;
  for (const NestedCommand& place : PlacesOf(app)) {
    if (place.path != "kintsugi") deeper += (deeper.empty() ? "" : "|") + ("'" + place.path + "'");
    std::string line;
    for (const CLI::App* child : place.app->get_subcommands(nullptr)) line += " " + child->get_name();
    for (const CLI::Option* option : place.app->get_options())
      for (const std::string& name : NamesOf(*option)) line += " " + name;
    words += "    '" + place.path + "') words=" + QuotedForShell(line) + " ;;\n";
  }
  return "# bash completion of kintsugi; made by `kintsugi completion bash`.\n"
         "_kintsugi() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} path=kintsugi words= i\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    if [ \"${COMP_WORDS[i]}\" = -- ]; then  # the program and its own words\n"
         "      declare -F _command_offset >/dev/null && _command_offset $((i + 1))\n"
         "      return\n"
         "    fi\n"
         "    case \"$path ${COMP_WORDS[i]}\" in\n"
         "    " +
         deeper +
         ") path=\"$path ${COMP_WORDS[i]}\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case $path in\n" +
         words +
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "}\n"
         "complete -o bashdefault -o default -F _kintsugi kintsugi\n";
}

std::string Zsh(const CLI::App& app) {
  std::string functions;
  for (const NestedCommand& place : PlacesOf(app)) {
    std::string name = "_" + place.path;
    std::replace(name.begin(), name.end(), ' ', '_');
    functions += name + "() {\n";
    const auto children = place.app->get_subcommands(nullptr);
    std::string arguments;
    for (const CLI::Option* option : place.app->get_options())
      for (const std::string& option_name : NamesOf(*option))
        arguments += " \\\n    " + QuotedForShell(option_name + "[" + Escaped(Summary(option->get_description())) + "]" +
                                          (option->get_items_expected_max() > 0 ? ":value:_files" : ""));
    if (children.empty()) {
      functions += "  _arguments" + arguments + " \\\n    '*:::program:_normal'\n}\n";
      continue;
    }
    functions += "  local state line\n  _arguments -C" + arguments +
                 " \\\n    '1: :->command' '*:: :->rest'\n"
                 "  case $state in\n  command)\n    local -a commands=(";
    for (const CLI::App* child : children)
      functions += "\n      " + QuotedForShell(Escaped(child->get_name()) + ":" + Escaped(Summary(child->get_description())));
    functions += ")\n    _describe command commands ;;\n  rest)\n    case $line[1] in\n";
    for (const CLI::App* child : children)
      functions += "    " + child->get_name() + ") " + name + "_" + child->get_name() + " ;;\n";
    functions += "    esac ;;\n  esac\n}\n";
  }
  return "#compdef kintsugi\n# zsh completion of kintsugi; made by `kintsugi completion zsh`.\n" + functions +
         "_kintsugi \"$@\"\n";
}

}  // namespace

void AddCompletion(CLI::App& app) {
  CLI::App* const completion =
      app.add_subcommand("completion", "Print a script that completes this command in a shell");
  completion->footer(
      "Example: kintsugi completion bash > ~/.local/share/bash-completion/completions/kintsugi\n"
      "         kintsugi completion zsh > ~/.zfunc/_kintsugi     # a folder of $fpath");
  completion->require_subcommand(1);
  completion->add_subcommand("bash", "For bash")->callback([&app] { std::cout << Bash(app); });
  completion->add_subcommand("zsh", "For zsh")->callback([&app] { std::cout << Zsh(app); });
}

}  // namespace kintsugi::cli
