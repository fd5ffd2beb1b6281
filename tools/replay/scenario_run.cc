#include <exception>

#include "runtime/journal/replay.h"
#include "runtime/journal/text.h"
#include "tools/replay/scenario.h"

namespace kintsugi {
namespace {

using journal::Input;

constexpr std::string_view kIndent = "    ";

std::string At(TimePoint now) { return journal::WriteMilliseconds(now - kScenarioOrigin); }

TimePoint Whole(TimePoint t, Duration shift) {
  if (t == TimePoint()) return t;
  const Duration since = (t + shift).since_epoch();
  return TimePoint(std::chrono::floor<std::chrono::microseconds>(since));
}

// To the scenario's clock.
void Rebase(Input& input, Duration shift) {
  input.now = Whole(input.now, shift);
  auto* event = std::get_if<core::ControllerEvent>(&input.what);
  if (!event) return;
  if (auto* exited = std::get_if<core::ProcessExited>(event))
    if (exited->since) exited->since = Whole(*exited->since, shift);
  auto* from = std::get_if<core::FromAgent>(event);
  if (auto* fault = from ? std::get_if<core::FaultReport>(&from->message) : nullptr)
    fault->since = Whole(fault->since, shift);
}

bool IsTick(const Input& input) {
  const auto* event = std::get_if<core::ControllerEvent>(&input.what);
  return event && std::holds_alternative<core::Tick>(*event);
}

// How many ticks from `i` on are evenly spaced and nothing comes out of them.
size_t EvenTicks(const std::vector<Input>& inputs, size_t i) {
  size_t end = i;
  while (end < inputs.size() && IsTick(inputs[end]) && inputs[end].actions == 0 &&
         (end < i + 2 || inputs[end].now - inputs[end - 1].now == inputs[i + 1].now - inputs[i].now))
    ++end;
  return end - i;
}

// What comes out of each input, written into it.
void Count(const core::Policy& policy, Term term, std::vector<Input>& inputs) {
  core::ControllerCore core(policy, term);
  for (Input& input : inputs) input.actions = static_cast<uint32_t>(journal::Apply(core, input).size());
}

}  // namespace

std::string RunScenario(const Scenario& scenario) {
  core::ControllerCore core(scenario.policy, scenario.term);
  std::string text;
  bool failed = false;
  for (const ScenarioLine& line : scenario.lines) {
    text += line.text + "\n";
    for (size_t i = 0; i < line.inputs.size() && !failed; ++i) {
      std::vector<core::ControllerAction> actions;
      try {
        actions = journal::Apply(core, line.inputs[i]);
      } catch (const std::exception& error) {
        failed = true;
        text += std::string(kIndent) + "a check of the core failed: " + error.what() + "\n";
      }
      if (!actions.empty() && i + 1 < line.inputs.size())
        text += std::string(kIndent) + "(at " + At(line.inputs[i].now) + ")\n";
      for (const core::ControllerAction& action : actions)
        for (const std::string& said : journal::WriteAction(action, scenario.term, kScenarioOrigin))
          text += std::string(kIndent) + said + "\n";
    }
  }
  return text;
}

std::string MakeScenario(const std::string& remark, const core::Policy& policy, Term term, std::vector<Input> inputs) {
  if (!inputs.empty()) {
    // Instants within one microsecond keep their order.
    const Duration shift = kScenarioOrigin - inputs.front().now;
    for (Input& input : inputs) Rebase(input, shift);
  }
  try {
    inputs = Thin(policy, term, inputs);
    Count(policy, term, inputs);
  } catch (const std::exception&) {
    // A check of the core fails somewhere: all that led to it is told.
  }
  Scenario scenario{policy, term, {}};
  for (size_t begin = 0; begin < remark.size();) {
    const size_t end = std::min(remark.find('\n', begin), remark.size());
    scenario.lines.push_back({"# " + remark.substr(begin, end - begin), {}});
    begin = end + 1;
  }
  scenario.lines.push_back({"policy " + journal::WriteFields(policy), {}});
  if (term != Term{1, 1})
    scenario.lines.push_back({"term " + std::to_string(term.number) + "." + std::to_string(term.controller_id), {}});
  scenario.lines.push_back({});
  for (size_t i = 0; i < inputs.size();) {
    const size_t ticks = EvenTicks(inputs, i);
    ScenarioLine line;
    if (ticks >= 2) {
      line.inputs.assign(inputs.begin() + static_cast<ptrdiff_t>(i),
                         inputs.begin() + static_cast<ptrdiff_t>(i + ticks));
      const std::string every = journal::WriteMilliseconds(inputs[i + 1].now - inputs[i].now);
      line.text = At(line.inputs.back().now) + " tick every=" + every + "ms times=" + std::to_string(ticks);
    } else {
      line.inputs = {inputs[i]};
      line.text = At(inputs[i].now) + " " + journal::WriteInput(inputs[i], term, kScenarioOrigin);
    }
    i += line.inputs.size();
    scenario.lines.push_back(std::move(line));
  }
  return RunScenario(scenario);
}

}  // namespace kintsugi
