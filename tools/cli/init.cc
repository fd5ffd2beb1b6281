// kintsugi init: the difference that a torch script needs to survive. Reading Python is Python's: the package does it.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <memory>

#include "tools/cli/common.h"
#include "tools/cli/python.h"

namespace kintsugi::cli {
namespace {

// "" in the path is the folder at hand, where a kintsugi.py may lie.
constexpr const char* kProgram =
    "import sys\n"
    "sys.path = [folder for folder in sys.path if folder]\n"
    "try:\n"
    "    from kintsugi.init import main\n"
    "except ImportError as error:\n"
    "    sys.exit(f'kintsugi: {sys.executable} cannot import kintsugi.init ({error}): install the package there, '\n"
    "             'or name the interpreter that has it in PYTHON_EXEC')\n"
    "main()\n";

}  // namespace

void AddInit(CLI::App& app, int& exit_code) {
  CLI::App* const init = app.add_subcommand("init", "Print the lines that a torch script needs to survive faults");
  auto script = std::make_shared<std::string>();
  auto write = std::make_shared<bool>(false);
  init->add_option("script", *script, "A plain script over Gloo; it is read, and not run")->required();
  init->add_flag("--write", *write, "Write them into the script, and keep what was there as SCRIPT.orig");
  init->footer(
      "Exit codes: 0 the difference is printed (or written), 1 something was not understood, and said,\n"
      "2 wrong usage.\n\n"
      "Example: kintsugi init train.py | less; kintsugi init train.py --write");
  init->callback([script, write, &exit_code] {
    const std::string interpreter = Interpreter();
    std::vector<const char*> words = {interpreter.c_str(), "-c", kProgram};
    if (*write) words.push_back("--write");
    words.insert(words.end(), {"--", script->c_str(), nullptr});
    std::cout.flush();
    execvp(interpreter.c_str(), const_cast<char* const*>(words.data()));
    Complain("'" + interpreter + "' cannot be started: " + std::strerror(errno) + "; name Python in PYTHON_EXEC");
    exit_code = 3;
  });
}

}  // namespace kintsugi::cli
