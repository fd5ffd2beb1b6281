// What every command's words have in common: numbers are not negative, and what is unknown is told with what is near it.
//
// Threads: one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kintsugi::cli {

// Numbers below 0 are refused by the option's name, in all commands: none of ours means anything by them, and one that is
// taken as a count without a sign would be a huge one. Once all options are there.
void RefuseNegativeNumbers(CLI::App& app);

// "there is no command 'statsu'; did you mean 'status'?" of the first word that no command or option has; "" where all
// are known.
std::string UnknownWord(const CLI::App& app, const std::vector<std::string>& words);

// The word that differs least from this one; "" where all differ in more than a third of it.
std::string Nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace kintsugi::cli
