#include "runtime/core/incident_case.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

using enum Evidence;

constexpr std::array<std::string_view, 3> kEvidenceNames = {"SUSPECTED", "LOST", "PROVEN"};

constexpr std::array<std::pair<Evidence, Evidence>, 5> kEvidenceTransitions = {{
    {kSuspected, kLost},  // the first signal of all
    {kLost, kSuspected},  // a collective failed beside it: coming back does not heal that
    {kSuspected, kProven},
    {kLost, kProven},
    {kProven, kProven},
}};

// So many attempts are told of in an incident's record.
constexpr size_t kAttemptsTold = 16;
constexpr size_t kReasonsMax = 32;

}  // namespace

std::vector<RungReason> ReasonsOf(const IncidentRecord& record) {
  std::vector<RungReason> reasons;
  for (const AttemptRecord& attempt : record.earlier)
    if (attempt.rung)
      reasons.push_back({*attempt.rung, Refusal::kChosen,
                         "tried in attempt " + std::to_string(attempt.attempt) + ", which ended: " + attempt.ended_by});
  reasons.insert(reasons.end(), record.reasons.begin(), record.reasons.end());
  return reasons;
}

bool IsTransition(Evidence from, Evidence to) {
  const auto& table = kEvidenceTransitions;
  return std::find(table.begin(), table.end(), std::pair{from, to}) != table.end();
}

IncidentRecord& IncidentCase::record() {
  KINTSUGI_CHECK(record_.has_value(), "no incident is under way");
  return *record_;
}

void IncidentCase::Open(IncidentRecord first) {
  KINTSUGI_CHECK(!record_, "an incident begins within incident " + std::to_string(id()));
  first.id = ++count_;
  record_ = std::move(first);
  evidence_ = kSuspected;
  attempt_ = 0;
  ran_out_.reset();
  ran_out_handler_ = {};
  tried_.reset();
}

IncidentRecord IncidentCase::Close() {
  IncidentRecord closed = std::move(record());
  record_.reset();
  return closed;
}

void IncidentCase::SetEvidence(Evidence to) {
  KINTSUGI_CHECK(record_ && IsTransition(evidence_, to),
                 "no transition of an incident's evidence " +
                     std::string(kEvidenceNames[static_cast<size_t>(evidence_)]) + " -> " +
                     std::string(kEvidenceNames[static_cast<size_t>(to)]));
  evidence_ = to;
}

void IncidentCase::Blame(Rank rank, FaultKind kind, const std::string& text, TimePoint since) {
  IncidentRecord& told = record();
  told.fault_at = std::min(told.fault_at, since);
  if (evidence_ != kProven) {
    told.signal = kind;
    told.cause = text;
    told.ranks.clear();
  }
  SetEvidence(kProven);
  if (std::find(told.ranks.begin(), told.ranks.end(), rank) == told.ranks.end()) told.ranks.push_back(rank);
}

void IncidentCase::BeginAttempt(const std::string& ended_by, Generation generation) {
  IncidentRecord& told = record();
  KINTSUGI_CHECK(generation > told.generation, "two attempts in generation " + generation.ToString());
  if (attempt_ > 0) {
    told.earlier.push_back({attempt_, std::exchange(tried_, std::nullopt), ended_by});
    // The first ones tell how it began, the newest where it got to.
    if (told.earlier.size() > kAttemptsTold) told.earlier.erase(told.earlier.begin() + kAttemptsTold / 2);
  }
  told.attempts = ++attempt_;
  told.generation = generation;
  told.parked_at.reset();
  told.rebuilt_at.reset();
  told.repaired_at.reset();
}

void IncidentCase::Try(const RungDecision& decision) {
  record().reasons = decision.reasons;
  record().rung = decision.rung;
  tried_ = decision.rung;
}

void IncidentCase::NotePhase(const PhaseSpan& span) {
  if (record_) record_->phases.push_back(span);
}

void IncidentCase::NoteRank(const RankSpan& span) {
  if (record_) record_->rank_spans.push_back(span);
}

void IncidentCase::Remark(const std::string& text) {
  std::vector<RungReason>& reasons = record().reasons;
  const auto said = [&](const RungReason& reason) { return reason.text == text; };
  if (text.empty() || !record().rung || reasons.size() >= kReasonsMax ||
      std::any_of(reasons.begin(), reasons.end(), said))
    return;
  reasons.push_back({*record().rung, Refusal::kChosen, text});
}

void IncidentCase::NoteSources(const std::vector<Rank>& sources) {
  std::vector<Rank>& told = record().sources;
  for (Rank source : sources)
    if (std::find(told.begin(), told.end(), source) == told.end()) told.push_back(source);
}

std::vector<Rank> IncidentCase::Named() const {
  if (!record_) return {};
  const std::vector<Rank>& all = record_->ranks;
  std::vector<Rank> named(all.begin(), all.begin() + static_cast<ptrdiff_t>(std::min(all.size(), kNamedMax)));
  std::sort(named.begin(), named.end());
  return named;
}

std::string IncidentCase::FirstCause() const {
  if (!record_) return "";
  std::string text;
  for (Rank rank : record_->ranks) {
    if (!text.empty() && text.size() > 40) {
      text += ", ...";
      break;
    }
    text += (text.empty() ? "rank " : ", ") + rank.ToString();
  }
  return text + (text.empty() ? "" : ": ") + record_->cause + "; ";
}

}  // namespace kintsugi::core
