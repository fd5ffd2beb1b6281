// Programs in Python as torchrun takes them, so that a job script changes one word: `kintsugi run --nproc-per-node 8 train.py --lr 3`,
// `kintsugi run --nproc-per-node 8 -m package.train --lr 3`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace kintsugi::cli {

// -m
void AddPythonOption(CLI::App& app, bool& module);

// That of PYTHON_EXEC (torchrun's variable), else the first `python` or `python3` of PATH. The command of a wheel names in
// PYTHON_EXEC the one that it is installed for, unless something stands there.
std::string Interpreter();

// What is to be started: the interpreter in front of a module, or of a file named *.py that cannot be executed; any other
// program as it is.
std::vector<std::string> ByPython(bool module, std::vector<std::string> command);

// A folder of the Python package: beside the command in a wheel, in a build tree in the folder of the package.
// kFailedPrecondition where there is none.
Result<std::string> PackagePart(const std::string& name);

// The interpreter's arguments for a process that has loaded what `command` loads, and forks it (`kintsugi run --warm`).
// kInvalidArgument where it is no program in Python, or one given as text.
Result<std::vector<std::string>> WarmArguments(const std::vector<std::string>& command,
                                               const std::vector<std::string>& preload);

}  // namespace kintsugi::cli
