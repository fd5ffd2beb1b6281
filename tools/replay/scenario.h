// Scenario: an incident as a text that people read and a test compares. Inputs begin a line with their time; what came
// out of each stands indented below it. The inputs are the truth: running them gives the lines below anew.
//
//   # Rank 1 is killed; a new process takes its place.
//   policy world_size=2 silence=1000ms
//   0.000 start
//       spawn rank=0 incarnation=1
//   20.000 tick every=20ms times=40      (40 ticks, the last one at 20.000)
//   831.250 rank 1 inc 1 gen 2: parked step=3
//
// Errors: kInvalidArgument with the line's number.
// Units: milliseconds since the start, three digits.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/journal/input.h"

namespace kintsugi {

struct ScenarioLine {
  std::string text;                    // as it stands: a remark, an input, an empty line
  std::vector<journal::Input> inputs;  // of an input's line: one, or ticks
};

struct Scenario {
  core::Policy policy;
  Term term{1, 1};
  std::vector<ScenarioLine> lines;  // what came out is not among them
};

// Where a scenario's clock stands at 0.
inline constexpr TimePoint kScenarioOrigin = TimePoint(std::chrono::seconds(1000));

Result<Scenario> ParseScenario(std::string_view text);

// The whole text anew, with what comes out now. A check of the core that fails is a line too.
std::string RunScenario(const Scenario& scenario);

// The first line in which the texts differ, as "line 12: expected '...', got '...'"; empty: they are equal.
std::string FirstDifference(std::string_view expected, std::string_view got);

// A recorded run's inputs as a scenario: instants in whole microseconds, ticks and beats that change nothing left out.
// `remark`: what it tells; each of its lines becomes a comment.
std::string MakeScenario(const std::string& remark, const core::Policy& policy, Term term,
                         std::vector<journal::Input> inputs);

// The inputs without the ticks and beats that change nothing of what comes out (a greedy search: halves, quarters,
// ...). Throws where a check of the core does.
std::vector<journal::Input> Thin(const core::Policy& policy, Term term, const std::vector<journal::Input>& inputs);

}  // namespace kintsugi
