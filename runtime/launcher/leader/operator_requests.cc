#include "runtime/launcher/leader/operator_requests.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/controller/incident_line.h"

namespace kintsugi {
namespace {

using nlohmann::json;

// So many requests of a kind may wait for their outcome; others still find a place at the control socket.
constexpr size_t kWaitingMax = 8;

// What was asked for was begun and did not come about: the caller's exit code is that of a failure, not of a refusal.
std::string InVain(const std::string& why) {
  return AnswerLine({{"ok", false}, {"error", why}, {"exit", core::kExitFailed}});
}

std::string TooManyWait(const std::string& what) {
  return RefusalLine(std::to_string(kWaitingMax) + " others wait for " + what + " already: ask with --no-wait");
}

}  // namespace

std::string IncidentsLine(const std::vector<core::IncidentRecord>& over,
                          const std::optional<core::IncidentRecord>& under_way) {
  json incidents = json::array();
  const TimePoint now = SteadyClock::SteadyNow();
  for (const core::IncidentRecord& record : over) incidents.push_back(IncidentJson(record, true, now));
  if (under_way) incidents.push_back(IncidentJson(*under_way, false, now));
  return AnswerLine({{"ok", true}, {"incidents", std::move(incidents)}});
}

std::string UnknownCommand(const std::string& command) {
  return RefusalLine("unknown command '" + command +
                     "': status, incidents, save, pause, continue, replace, scale, drain, stop or inject");
}

bool OperatorRequests::OnRequest(const ControlWords& words, RunState run, Respond respond) {
  const std::string& command = words.command;
  if (command != "save" && command != "pause" && command != "continue" && command != "replace" && command != "scale")
    return false;
  if (command == "save" && save_directory_.empty())
    return respond(RefusalLine("this run has no save directory: it was started without --save-dir")), true;
  if (command == "replace" && !words.rank) return respond(RefusalLine("replace needs a \"rank\"")), true;
  if (command == "scale" && !words.ranks) return respond(RefusalLine("scale needs \"ranks\"")), true;
  if (run.ended) return respond(RefusalLine("the run has ended")), true;
  if (command == "save") return Save(words, std::move(respond)), true;
  if (command == "pause") return Pause(words, run, std::move(respond)), true;
  if (command == "continue") return Continue(std::move(respond)), true;
  if (command == "scale") return Scale(words, std::move(respond)), true;
  return Replace(words, std::move(respond)), true;
}

// Answered when the save has ended; a run whose save never comes to an end is told by the caller's own limit.
void OperatorRequests::Save(const ControlWords& words, Respond respond) {
  if (words.wait && waiting_saves_.size() >= kWaitingMax) return respond(TooManyWait("a save"));
  if (words.wait) waiting_saves_.push_back(respond);
  KINTSUGI_CHECK(waiting_saves_.size() <= kWaitingMax, "those who wait for a save add up");
  controller_.Feed(core::OperatorSave{});
  if (!words.wait) respond(AnswerLine({{"ok", true}, {"directory", save_directory_}}));
}

void OperatorRequests::OnSave(const core::SaveSettled& settled) {
  json answer{{"ok", true}, {"directory", save_directory_}, {"step", settled.step.value()}};
  if (!settled.text.empty()) answer["remark"] = settled.text;
  const std::string line = settled.saved ? AnswerLine(answer) : InVain(settled.text);
  for (const auto& respond : std::exchange(waiting_saves_, {})) respond(line);
}

// Answered when all ranks stand.
void OperatorRequests::Pause(const ControlWords& words, RunState run, Respond respond) {
  if (run.leaves) return respond(RefusalLine("the run saves and leaves: it is not paused any more"));
  if (words.wait && waiting_pauses_.size() >= kWaitingMax) return respond(TooManyWait("a pause"));
  if (words.wait) waiting_pauses_.push_back(respond);
  KINTSUGI_CHECK(waiting_pauses_.size() <= kWaitingMax, "those who wait for a pause add up");
  controller_.Feed(core::OperatorPause{});
  if (!words.wait) respond(AnswerLine({{"ok", true}}));
}

void OperatorRequests::Poll() {
  if (waiting_pauses_.empty()) return;
  const std::optional<Step> at = controller_.core().saves().paused_at();
  if (!at && controller_.core().saves().pause_asked()) return;
  const std::string answer = at ? AnswerLine({{"ok", true}, {"step", at->value()}})
                                : RefusalLine("somebody let the run go on before all ranks stood");
  for (const auto& respond : std::exchange(waiting_pauses_, {})) respond(answer);
}

void OperatorRequests::Continue(Respond respond) {
  const std::optional<Step> at = controller_.core().saves().paused_at();
  if (!controller_.core().saves().pause_asked()) return respond(RefusalLine("the run is not paused"));
  controller_.Feed(core::OperatorContinue{});
  respond(AnswerLine({{"ok", true}, {"step", at ? json(at->value()) : json()}}));
}

// Answered when all ranks step again.
void OperatorRequests::Replace(const ControlWords& words, Respond respond) {
  if (const std::string why = controller_.core().WhyNotReplaced(*words.rank); !why.empty())
    return respond(RefusalLine(why));
  if (words.wait && waiting_replaces_.size() >= kWaitingMax) return respond(TooManyWait("a new process"));
  if (words.wait) waiting_replaces_.emplace_back(*words.rank, respond);
  KINTSUGI_CHECK(waiting_replaces_.size() <= kWaitingMax, "those who wait for a process add up");
  controller_.Feed(core::OperatorReplace{*words.rank});
  if (!words.wait) respond(AnswerLine({{"ok", true}, {"rank", words.rank->value()}}));
}

// Answered when all ranks step again, in the new world.
void OperatorRequests::Scale(const ControlWords& words, Respond respond) {
  if (const std::string why = controller_.core().WhyNotScaled(*words.ranks); !why.empty())
    return respond(RefusalLine(why));
  KINTSUGI_CHECK(!waiting_scale_, "two wait for another world");
  if (words.wait) waiting_scale_ = respond;
  controller_.Feed(core::OperatorScale{*words.ranks});
  if (!words.wait) respond(AnswerLine({{"ok", true}, {"ranks", *words.ranks}}));
}

void OperatorRequests::OnScaleRefused(const core::ScaleRefused& refused) {
  if (const Respond respond = std::exchange(waiting_scale_, nullptr)) respond(InVain(refused.why));
}

void OperatorRequests::Drain(core::RankBlock ranks, bool wait, Respond respond) {
  KINTSUGI_CHECK(ranks.ranks > 0, "a node without ranks is drained");
  if (const std::string why = controller_.core().WhyNotDrained(ranks.first, ranks.ranks); !why.empty())
    return respond(RefusalLine(why));
  if (wait && waiting_replaces_.size() >= kWaitingMax) return respond(TooManyWait("new processes"));
  if (wait) waiting_replaces_.emplace_back(ranks.first, respond);
  controller_.Feed(core::OperatorDrain{ranks.first, ranks.ranks});
  if (!wait) respond(AnswerLine({{"ok", true}, {"rank", ranks.first.value()}}));
}

void OperatorRequests::OnReplaceRefused(Rank refused, const std::string& why) {
  std::erase_if(waiting_replaces_, [&](const auto& waiting) {
    if (waiting.first == refused) waiting.second(RefusalLine(why));
    return waiting.first == refused;
  });
}

void OperatorRequests::OnIncident(const core::IncidentRecord& record) {
  if (waiting_scale_ && !controller_.core().scales()) {
    json answer{{"ok", true}, {"ranks", controller_.core().crew().size()}};
    answer["incident"] = IncidentJson(record, true, SteadyClock::SteadyNow());
    std::exchange(waiting_scale_, nullptr)(AnswerLine(answer));
  }
  for (auto waiting = waiting_replaces_.begin(); waiting != waiting_replaces_.end();) {
    const Rank rank = waiting->first;
    // It may have been struck by something else, and still be in its place.
    const bool is_met = !controller_.core().saves().replacements().Waits(rank);
    if (!is_met || std::find(record.ranks.begin(), record.ranks.end(), rank) == record.ranks.end()) {
      ++waiting;
      continue;
    }
    const Respond respond = std::move(waiting->second);
    waiting = waiting_replaces_.erase(waiting);
    json answer = IncidentJson(record, true, SteadyClock::SteadyNow());
    respond(AnswerLine({{"ok", true}, {"rank", rank.value()}, {"incident", std::move(answer)}}));
  }
}

void OperatorRequests::AnswerAll(const std::string& why) {
  for (const auto& respond : std::exchange(waiting_saves_, {})) respond(InVain(why));
  for (const auto& respond : std::exchange(waiting_pauses_, {})) respond(InVain(why));
  for (const auto& [rank, respond] : std::exchange(waiting_replaces_, {})) respond(InVain(why));
  if (const Respond respond = std::exchange(waiting_scale_, nullptr)) respond(InVain(why));
}

}  // namespace kintsugi
