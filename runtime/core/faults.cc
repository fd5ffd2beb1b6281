#include "runtime/core/faults.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {

TimePoint Faults::BeganAt(TimePoint told) const { return told < board_.course.went_on_at ? board_.now() : told; }

void Faults::OnReport(Rank rank, const FaultReport& told, bool current) {
  const FaultKind kind = told.kind;
  const bool memory = kind == FaultKind::kMemoryLow || kind == FaultKind::kMemoryHigh;
  FaultReport report = told;
  if (!memory) report.since = BeganAt(told.since);  // damage may be older than it is known
  if (kind == FaultKind::kCommError) {
    if (current) Suspect(rank, kind, report.text, report.since);
    return;
  }
  // Its agent has watched it exceed a limit: nothing is to be asked of it any more.
  if (kind == FaultKind::kStalled && current) {
    // It was stopped because its handler had taken too long, and is in it still: that is no better than an exception.
    const std::string_view handler =
        board_.incident.open() && board_.phase() == Phase::kStop ? board_.incident.ran_out_handler() : "";
    if (!handler.empty())
      repeats_.HandlerFailed(rank, handler, "it does not return: " + report.text,
                             board_.At(rank).respawns < board_.policy.max_respawns);
    const bool hung = board_.incident.open() && board_.incident.record().signal == FaultKind::kHang;
    return GiveUp({rank}, hung ? FaultKind::kHang : FaultKind::kStalled, report.since, report.text);
  }
  // What the trainer ran into before it was stopped is settled by where it parks; damaged memory is news at any time.
  if (!current && !memory) return board_.Drop(rank, "the fault is of an older generation: " + report.text);
  // In an activity with a limit of its own: its agent has watched it.
  if (kind == FaultKind::kHang && current && repeats_.WasAsked(rank, report.step, false))
    return GiveUp({rank}, kind, report.since, report.text + ", not for the first time");
  // No repair mends a program that is wrong.
  if (kind == FaultKind::kRefused) return end_.EndRefused(rank, report);
  if (kind == FaultKind::kException) repeats_.Failed(rank, report);
  if (memory) NoteDamage(rank, report);
  if (memory && current && repeats_.Damaged(rank, report.step))
    return GiveUp({rank}, kind, report.since,
                  report.text + "; again and again at step " + report.step.ToString() + ": a new process takes over");
  Fault(rank, kind, report.text, report.since);
}

void Faults::NoteDamage(Rank rank, const FaultReport& report) {
  Member& member = board_.At(rank);
  std::optional<Step>& suspect_from = board_.plan.suspect_from;
  if (report.suspect_from.value() > 0)
    suspect_from = std::min(suspect_from.value_or(report.suspect_from), report.suspect_from);
  if (report.kind == FaultKind::kMemoryLow && !report.in_update)
    member.trust.Damage(report.damaged_keys);
  else
    member.trust.Tear();
  if (board_.plan.cut) std::erase(board_.plan.cut->given, rank);
  // What its launcher held is this very memory since it was mapped.
  if (member.trust.adopted()) member.trust.DoubtHeld();
  if (board_.registered.mapped())
    snapshots_.Suspect(board_.replicas(), rank, report.step);
  else
    snapshots_.SuspectFound(report.step);
}

void Faults::Open(Rank rank, FaultKind kind, const std::string& text, TimePoint since) {
  IncidentRecord record;
  record.signal = kind;
  record.cause = text;
  record.ranks.push_back(rank);
  record.term = board_.term;
  record.fault_at = std::min(since, board_.now());
  record.detected_at = board_.now();
  for (const Member& member : board_.members)
    if (board_.course.ever_ran) record.begun = std::max(record.begun.value_or(Step()), member.begun);
  board_.incident.Open(std::move(record));
  board_.majority.OnIncident();
  board_.plan.Clear();
}

void Faults::OpenBlamingNobody(FaultKind kind, const std::string& text, TimePoint since) {
  Open(Rank(0), kind, text, since);
  board_.incident.BlameNobody();
}

void Faults::Suspect(Rank rank, FaultKind kind, const std::string& text, TimePoint since) {
  board_.Note(rank, "signal " + std::string(FaultKindName(kind)) + ": " + text);
  IncidentCase& incident = board_.incident;
  if (board_.course.listening) {
    if (kind != FaultKind::kConnectionLost && !incident.open()) Open(rank, kind, text, since);
    return;
  }
  // In any other phase what is suspected is either part of the incident or comes to light when a wait runs out.
  if (!board_.InTraining()) return;
  const bool lost = kind == FaultKind::kConnectionLost;
  if (board_.phase() == Phase::kRunning) {
    if (incident.open()) board_.CloseIncident();  // not all had resumed; this is a new one
    Open(rank, kind, text, since);
    board_.SetPhase(Phase::kConfirm, text);
    board_.SetDeadline(board_.now() + board_.policy.ConfirmWindow());
    if (lost) incident.SetEvidence(Evidence::kLost);
  }
  if (!lost && incident.evidence() == Evidence::kLost) incident.SetEvidence(Evidence::kSuspected);
}

void Faults::Lock(const std::string& reason) {
  KINTSUGI_CHECK(next_ != nullptr, "nobody can lock the ranks: " + reason);
  next_->Lock(reason);
}

void Faults::Fault(Rank rank, FaultKind kind, const std::string& text, TimePoint since) {
  if (board_.phase() == Phase::kEnded) return;
  Record(rank, kind, text, since);
  Lock(text);
}

void Faults::Record(Rank rank, FaultKind kind, const std::string& text, TimePoint since) {
  KINTSUGI_CHECK(board_.phase() != Phase::kEnded, "a fault of a run that has ended: " + text);
  if (board_.incident.open() && board_.phase() == Phase::kRunning)
    board_.CloseIncident();  // not all had resumed; this is a new one
  if (!board_.incident.open()) Open(rank, kind, text, since);
  board_.incident.Blame(rank, kind, text, since);
  board_.Note(rank, "fault " + std::string(FaultKindName(kind)) + ": " + text);
  if (kind != FaultKind::kHandlerFailed)
    for (Member& member : board_.members) member.handler_failures = 0;
  processes_.Respawn(rank);
  if (board_.phase() == Phase::kRunning || (board_.phase() == Phase::kAdmit && !board_.course.ever_ran))
    board_.SetPhase(Phase::kConfirm, text);
}

void Faults::GiveUp(const std::vector<Rank>& ranks, FaultKind kind, TimePoint since, const std::string& text) {
  for (Rank rank : ranks) {
    // One that was to come by itself and did not: there is nothing to kill, and no more waiting for it.
    if (board_.At(rank).life == Life::kAbsent) board_.At(rank).respawns = board_.policy.max_respawns;
    processes_.Kill(rank, text);
    Record(rank, kind, text, since);
    KINTSUGI_CHECK(board_.At(rank).life != Life::kReady, "rank " + rank.ToString() + " is given up, and still counts");
  }
  if (!ranks.empty()) Lock(text);
}

}  // namespace kintsugi::core
