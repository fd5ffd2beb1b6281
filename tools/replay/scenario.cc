#include "tools/replay/scenario.h"

#include <algorithm>

#include "runtime/journal/text.h"

namespace kintsugi {
namespace {

using journal::Input;

constexpr std::string_view kTicks = "tick every=";
constexpr int kTicksMax = 1'000'000;

Status Bad(const std::string& what) { return {StatusCode::kInvalidArgument, what}; }

// "tick every=20ms times=40".
Status ReadTicks(std::string_view text, TimePoint last, std::vector<Input>* inputs) {
  text.remove_prefix(kTicks.size());
  const size_t blank = text.find("ms times=");
  int times = 0;
  if (blank != text.npos)
    for (const char c : text.substr(blank + 9))
      times = c >= '0' && c <= '9' ? std::min(times * 10 + (c - '0'), kTicksMax + 1) : -1;
  if (times < 1 || times > kTicksMax) return Bad("ticks are written as in 'tick every=20ms times=40'");
  KINTSUGI_ASSIGN_OR_RETURN(const Duration every, journal::ReadMilliseconds(text.substr(0, blank)));
  if (every > std::chrono::hours(1)) return Bad("ticks more than an hour apart");
  for (int i = times - 1; i >= 0; --i) inputs->push_back({last - every * i, core::ControllerEvent(core::Tick{})});
  return Status::Ok();
}

Status ReadLine(std::string_view text, Term term, std::vector<Input>* inputs) {
  const size_t blank = text.find(' ');
  if (blank == text.npos) return Bad("'" + std::string(text) + "' is no input: TIME EVENT");
  KINTSUGI_ASSIGN_OR_RETURN(const Duration since, journal::ReadMilliseconds(text.substr(0, blank)));
  if (since > std::chrono::hours(24 * 365)) return Bad("a time of more than a year");
  const TimePoint now = kScenarioOrigin + since;
  text.remove_prefix(blank + 1);
  if (text.substr(0, kTicks.size()) == kTicks) return ReadTicks(text, now, inputs);
  KINTSUGI_ASSIGN_OR_RETURN(Input input, journal::ReadInput(text, term, kScenarioOrigin));
  input.now = now;
  inputs->push_back(std::move(input));
  return Status::Ok();
}

Result<Term> ReadTerm(std::string_view text) {
  Term term{0, 0};
  uint64_t* part = &term.number;
  for (const char c : text) {
    if (c == '.' && part == &term.number)
      part = &term.controller_id;
    else if (c >= '0' && c <= '9' && *part < UINT64_MAX / 20)
      *part = *part * 10 + static_cast<uint64_t>(c - '0');
    else
      return Bad("a term is written as in 'term 1.1'");
  }
  return term;
}

bool InWorld(const Input& input, int world_size) {
  const auto in = [&](Rank rank) { return rank.value() >= 0 && rank.value() < world_size; };
  if (const auto* injections = std::get_if<journal::ArmedInjections>(&input.what)) return in(injections->rank);
  const auto* event = std::get_if<core::ControllerEvent>(&input.what);
  const auto* exited = event ? std::get_if<core::ProcessExited>(event) : nullptr;
  return !exited || in(exited->rank);
}

class Parser {
 public:
  Status Take(std::string_view line) {
    if (!line.empty() && line[0] == ' ') return Status::Ok();  // what came out
    ScenarioLine& made = scenario.lines.emplace_back();
    made.text = line;
    if (line.empty() || line[0] == '#') return Status::Ok();
    if (line.rfind("policy ", 0) == 0) {
      if (std::exchange(has_policy_, true)) return Bad("a second policy");
      KINTSUGI_ASSIGN_OR_RETURN(scenario.policy, journal::ReadPolicy(line.substr(7)));
      return Status::Ok();
    }
    if (line.rfind("term ", 0) == 0) {
      if (began_) return Bad("the term comes before the first input");
      KINTSUGI_ASSIGN_OR_RETURN(scenario.term, ReadTerm(line.substr(5)));
      return Status::Ok();
    }
    if (!has_policy_) return Bad("the policy comes before the first input");
    KINTSUGI_RETURN_IF_ERROR(ReadLine(line, scenario.term, &made.inputs));
    for (const Input& input : made.inputs) {
      const bool start = std::holds_alternative<journal::Start>(input.what);
      if (start == began_) return Bad(start ? "the run begins a second time" : "the first input is 'start'");
      began_ = true;
      if (input.now < last_) return Bad("it comes before the line above");
      if (!InWorld(input, scenario.policy.world_size)) return Bad("there is no such rank");
      last_ = input.now;
    }
    return Status::Ok();
  }
  Scenario scenario;

 private:
  bool has_policy_ = false, began_ = false;
  TimePoint last_ = kScenarioOrigin;
};

// The next line; the rest stays.
std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  *text = end == text->npos ? std::string_view() : text->substr(end + 1);
  return line;
}

}  // namespace

Result<Scenario> ParseScenario(std::string_view text) {
  Parser parser;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = TakeLine(&text);
    KINTSUGI_RETURN_IF_ERROR(parser.Take(line).Annotate("line " + std::to_string(number)));
  }
  return std::move(parser.scenario);
}

std::string FirstDifference(std::string_view expected, std::string_view got) {
  for (int number = 1; !expected.empty() || !got.empty(); ++number) {
    const std::string_view before = TakeLine(&expected), now = TakeLine(&got);
    if (before != now)
      return "line " + std::to_string(number) + ": expected '" + std::string(before) + "', got '" + std::string(now) +
             "'";
  }
  return "";
}

}  // namespace kintsugi
