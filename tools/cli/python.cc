#include "tools/cli/python.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace kintsugi::cli {
namespace {

std::string Interpreter() {
  if (const char* const named = std::getenv("PYTHON_EXEC"); named && *named) return named;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    for (const char* const name : {"python", "python3"})
      if (access((std::filesystem::path(folder) / name).c_str(), X_OK) == 0) return name;
  return "python3";  // starting it tells that it is missing
}

}  // namespace

void AddPythonOption(CLI::App& app, bool& module) {
  app.add_flag("-m,--module", module, "The program is a module of Python, run as `python -m` does");
}

std::vector<std::string> ByPython(bool module, std::vector<std::string> command) {
  if (command.empty()) return command;
  const std::string& program = command.front();
  const bool script =
      program.ends_with(".py") && std::filesystem::is_regular_file(program) && access(program.c_str(), X_OK) != 0;
  if (!module && !script) return command;
  // -u: what a rank printed before it was killed is seen.
  std::vector<std::string> words = {Interpreter(), "-u"};
  if (module) words.push_back("-m");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

}  // namespace kintsugi::cli
