// What every benchmark prints: figures, each with its baseline from the same run and its budget, and what the host was.
//
//   {"name", "host": {..}, "figures": [{"id", "value", "unit", "baseline", "ratio", "budget", "ok"}]}
//
// `ratio` is value / baseline unless the benchmark measures it in a better way (a median of ratios). `budget` bounds the
// value or, where the benchmark says so, the ratio; null: reported beside the others, always ok.
//
// Threads: one.
// Errors: a benchmark that cannot measure prints no figures: Need ends the program with exit code 1.
// Units: each figure names its own.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace kintsugi::bench {

using Json = nlohmann::ordered_json;

struct Figure {
  std::string id;
  double value = 0;
  std::string unit;
  std::optional<double> baseline;
  std::optional<double> ratio;  // unset: value / baseline
  std::optional<double> budget;
  bool ok = true;
  Json more = Json::object();   // further fields: the source of a published baseline, an interval, the single runs
};

// The upper bound that most budgets are.
Figure AtMost(std::string id, double value, std::string unit, std::optional<double> budget);

double Median(std::vector<double> values);
// `values` as they were measured, rounded for reading.
Json Rounded(const std::vector<double>& values);

// Collects figures from the start of a benchmark, when it notes the host's load, to its end.
class Figures {
 public:
  explicit Figures(std::string name);
  void Add(const Figure& figure);

  // Prints the table for people and writes the JSON where --json asked for it; the program's exit code: 0, or 1 where a
  // budget is missed. With --json - the table goes to standard error.
  int Finish(const std::string& json) const;

 private:
  const std::string name_;
  Json host_;
  Json figures_ = Json::array();
};

// What a script of this folder prints, given MIB and RUNS; null where that interpreter, or what the script imports, is not there.
Json AskPeer(const std::string& python, const std::string& script, uint64_t mib, int runs);

// --json [FILE|-]; read the choice with JsonTarget after parsing.
void AddJsonOption(CLI::App& app, std::string* json);
std::string JsonTarget(const CLI::App& app, const std::string& json);

// Ends the program with a message unless ok.
void Need(const Status& status);

}  // namespace kintsugi::bench
