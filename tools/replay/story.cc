#include "tools/replay/story.h"

#include <cmath>
#include <cstdio>

#include "runtime/base/overloaded.h"

namespace kintsugi {
namespace {

using namespace core;

std::string Seconds(Duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%10.3f s", std::chrono::duration<double>(d).count());
  return text;
}

std::string Millis(Duration d) {
  char text[32];
  const double ms = ToMilliseconds(d);
  std::snprintf(text, sizeof text, ms < 10 ? "%.1f ms" : "%.0f ms", ms);
  return text;
}

std::string Ranks(const std::vector<Rank>& ranks) {
  std::string text;
  for (Rank rank : ranks) text += (text.empty() ? "" : ", ") + rank.ToString();
  return ranks.empty() ? "no rank" : (ranks.size() > 1 ? "ranks " : "rank ") + text;
}

std::string Count(uint64_t n, const char* noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

std::string Printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return text;
}

std::string Line(Duration at, const std::string& text) { return Seconds(at) + "  " + Printable(text) + "\n"; }

}  // namespace

void Story::Take(const journal::Input& input, const std::vector<ControllerAction>& actions) {
  now_ = input.now;
  const bool start = std::holds_alternative<journal::Start>(input.what);
  if (start) begin_ = now_;
  const Duration at = Since(now_);
  if (const auto* event = std::get_if<ControllerEvent>(&input.what)) {
    if (std::holds_alternative<OperatorSave>(*event)) asked_.emplace_back(at, "a save was asked for");
    if (std::holds_alternative<OperatorStop>(*event)) asked_.emplace_back(at, "a stop was asked for");
    if (std::holds_alternative<OperatorPause>(*event)) asked_.emplace_back(at, "a pause was asked for");
    if (std::holds_alternative<OperatorContinue>(*event)) asked_.emplace_back(at, "the end of a pause was asked for");
    if (const auto* replace = std::get_if<OperatorReplace>(event))
      asked_.emplace_back(at, "a new process was asked for, of rank " + replace->rank.ToString());
    if (const auto* drain = std::get_if<OperatorDrain>(event))
      asked_.emplace_back(at, "the node of " + std::to_string(drain->ranks) + " ranks from " + drain->first.ToString() +
                                  " on was to be drained");
    if (const auto* scale = std::get_if<OperatorScale>(event))
      asked_.emplace_back(at, "a world of " + std::to_string(scale->ranks) + " ranks was asked for");
    if (const auto* inject = std::get_if<OperatorInject>(event))
      asked_.emplace_back(at, "a fault was ordered: " + inject->injection);
  }
  for (const ControllerAction& action : actions) {
    std::visit(Overloaded{
                   [&](const Transition& a) {
                     if (a.to == Phase::kRunning && !running_at_) running_at_ = at;
                     under_way_ = a.incident;
                     if (a.incident == 0) return;
                     incidents_[a.incident].id = a.incident;
                     incidents_[a.incident].phases.push_back({at, a});
                   },
                   [&](const IncidentClosed& a) {
                     incidents_[a.record.id].id = a.record.id;
                     incidents_[a.record.id].record = a.record;
                   },
                   [&](const SpawnProcess& a) {
                     if (start) ++spawned_at_start_;
                     if (!start && under_way_ > 0) incidents_[under_way_].spawns.emplace_back(at, a);
                   },
                   [&](const KillProcess& a) {
                     if (under_way_ > 0) incidents_[under_way_].kills.emplace_back(at, a);
                   },
                   [&](const CheckpointReady& a) { checkpoints_.emplace_back(at, a); },
                   [&](const RunEnded& a) { ended_.emplace(at, a); },
                   [](const auto&) {},
               },
               action);
  }
}

std::string Story::Words(const Incident& incident) const {
  std::string text = "incident " + std::to_string(incident.id);
  if (!incident.record) text += ", not over where the recording ends";
  std::multimap<Duration, std::string> lines;
  for (const Moment& m : incident.phases)
    lines.emplace(m.at,
                  std::string(PhaseName(m.transition.to)) +
                      (m.transition.attempt > 1 ? " (attempt " + std::to_string(m.transition.attempt) + ")" : "") +
                      (m.transition.reason.empty() ? "" : ": " + m.transition.reason));
  for (const auto& [at, kill] : incident.kills)
    lines.emplace(at, "rank " + kill.rank.ToString() + " is killed: " + kill.reason);
  for (const auto& [at, spawn] : incident.spawns)
    lines.emplace(at, "a new process of rank " + spawn.rank.ToString() + " is started, incarnation " +
                          spawn.incarnation.ToString());
  if (const auto& record = incident.record) {
    text += ": " + std::string(FaultKindName(record->signal)) + " of " + Ranks(record->ranks);
    if (record->step) text += ", at step " + record->step->ToString();
    text += "\n" + Line(Since(record->detected_at), "known " + Millis(record->detected_at - record->fault_at) +
                                                        " after it happened: " + record->cause);
  } else {
    text += "\n";
  }
  for (const auto& [at, line] : lines) text += Line(at, line);
  const auto& record = incident.record;
  if (!record) return text;
  for (const RungReason& reason : record->reasons) {
    std::string name(RungName(reason.rung));
    name.resize(8, ' ');
    text += "                " + name + (record->rung == reason.rung ? "CHOSEN   " : "refused  ") +
            Printable(reason.text) + "\n";
  }
  std::string end = record->resumed_at
                        ? "all ranks step again " + Millis(*record->resumed_at - record->fault_at) + " after the fault"
                        : "not resumed";
  end += ", " + Count(static_cast<uint64_t>(record->attempts), "attempt") + ", generation " +
         record->generation.ToString();
  if (record->bytes_moved > 0)
    end += ", " + Count(record->bytes_moved, "byte") + " moved from " + Ranks(record->sources);
  return text + Line(record->resumed_at        ? Since(*record->resumed_at)
                     : incident.phases.empty() ? Duration{}
                                               : incident.phases.back().at,
                     end);
}

std::string Story::Words(uint64_t only) const {
  std::string text;
  if (only == 0) {
    const std::string started =
        std::to_string(spawned_at_start_) + (spawned_at_start_ == 1 ? " process is started" : " processes are started");
    text += Line(Duration{}, "the run begins, " + (spawned_at_start_ > 0 ? started : "its ranks come by themselves"));
    if (running_at_) text += Line(*running_at_, "all ranks are in their loops");
    for (const auto& [at, what] : asked_) text += Line(at, what);
    for (const auto& [at, checkpoint] : checkpoints_)
      text += Line(at, "checkpoint of step " + checkpoint.step.ToString() + ": " + checkpoint.directory);
  }
  for (const auto& [id, incident] : incidents_)
    if (only == 0 || id == only) text += (text.empty() ? "" : "\n") + Words(incident);
  if (only == 0 && ended_)
    text +=
        "\n" + Line(ended_->first, "the run ends with code " + std::to_string(ended_->second.exit_code) + " at step " +
                                       ended_->second.committed.ToString() + ": " + ended_->second.text);
  return text;
}

std::string Summary(const journal::JournalReader& reader, const journal::Replayed& replayed) {
  std::string text =
      Count(static_cast<uint64_t>(reader.preamble().policy.world_size), "rank") + ", " +
      Seconds(replayed.last - replayed.begin).substr(Seconds(replayed.last - replayed.begin).find_first_not_of(' ')) +
      ", " + Count(replayed.inputs, "input") + " (" + std::to_string(replayed.quiet) + " quiet ticks and beats), " +
      Count(replayed.actions, "action");
  if (replayed.difference) return text;
  text += replayed.failed_check.empty() ? ": every decision reproduced"
                                        : ": reproduced up to the check that failed then too: " + replayed.failed_check;
  if (reader.torn())
    text += "\nthe journal is torn: its writer died, or is at it; " + Count(reader.bytes_lost(), "byte") +
            " after the last whole record are lost";
  else if (reader.end() == journal::EndReason::kFull)
    text += "\nthe recording ends here: the journal had reached its limit, the run went on";
  else if (reader.end() == journal::EndReason::kTooSlow)
    text += "\nthe recording ends here: the disk did not keep up, the run went on";
  else if (!reader.end() && replayed.failed_check.empty())
    text += "\nthe recording has no end: the run goes on, or its controller died";
  return text;
}

}  // namespace kintsugi
