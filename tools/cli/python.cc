#include "tools/cli/python.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace kintsugi::cli {

std::string Interpreter() {
  if (const char* const named = std::getenv("PYTHON_EXEC"); named && *named) return named;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    for (const char* const name : {"python", "python3"})
      if (access((std::filesystem::path(folder) / name).c_str(), X_OK) == 0) return name;
  return "python3";  // starting it tells that it is missing
}

Result<std::string> PackagePart(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return Status(StatusCode::kUnavailable, "/proc/self/exe cannot be read: " + error.message());
  const fs::path here = program.parent_path();
  for (const fs::path& package : {here / "..", here / "../python/kintsugi"})
    if (fs::exists(package / name / "__init__.py", error)) return fs::weakly_canonical(package / name, error).string();
  return Status(StatusCode::kFailedPrecondition,
                "the Python package is not beside this command: use the `kintsugi` of `pip install kintsugi`, or of a "
                "build tree with Python");
}

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

Result<std::vector<std::string>> WarmArguments(const std::vector<std::string>& command,
                                               const std::vector<std::string>& preload) {
  const auto refuse = [&](const std::string& why) {
    return Status(
        StatusCode::kInvalidArgument,
        (preload.empty() ? "--warm: " : "--preload: ") + why +
            "; it is for `kintsugi run --warm -- python train.py` and `kintsugi run --warm -m package.train`");
  };
  if (command.empty() || !std::filesystem::path(command.front()).filename().string().starts_with("python"))
    return refuse("the program is not run by Python");
  // The interpreter's own options stay before the module; the first other word is the program.
  std::vector<std::string> arguments;
  size_t at = 1;
  while (at < command.size() && command[at].starts_with('-') && command[at] != "-m") {
    if (command[at] == "-" || command[at].starts_with("-c"))
      return refuse("'" + command[at] + "' is no file and no module");
    const bool takes_a_word = command[at] == "-X" || command[at] == "-W" || command[at] == "--check-hash-based-pycs";
    arguments.push_back(command[at++]);
    if (takes_a_word && at < command.size()) arguments.push_back(command[at++]);
  }
  if (at >= command.size()) return refuse("there is no program");
  arguments.insert(arguments.end(), {"-m", "kintsugi.warm"});
  for (const std::string& module : preload) arguments.insert(arguments.end(), {"--preload", module});
  arguments.insert(arguments.end(), command.begin() + static_cast<std::ptrdiff_t>(at), command.end());
  return arguments;
}

}  // namespace kintsugi::cli
