// Options of two nodes of one run, compared: "--name=value" each, as their launchers tell them with their hello.
//
// Threads: none; pure.
// Errors: none. An option that only one of them names is not compared: its launcher is of another version.
#pragma once

#include <string>
#include <vector>

namespace kintsugi {

struct Unlike {
  std::string option, theirs, ours;
};
std::vector<Unlike> FindUnlike(const std::vector<std::string>& theirs, const std::vector<std::string>& ours);
// "node 1 has --save-every 50, the one that leads 100: ..."; empty: all are alike.
std::string WhyUnlike(const std::string& them, const std::vector<std::string>& theirs, const std::string& us,
                      const std::vector<std::string>& ours);

}  // namespace kintsugi
