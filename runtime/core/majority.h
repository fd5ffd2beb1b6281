// Majority: whether this controller may begin a generation for the whole run (consent.h), what it rests on, and for how
// long it is waited for.
//
// Every seat has a vote, whether it takes part or not: who shall act must never hang on what not all have heard, and a
// crew is that. Whose process was seen to end counts for whoever answers, so that those who leave stand in nobody's way.
//
// Threads: none; pure. Where no consent is needed everything is allowed.
// Invariants: a minority never gets a majority again: it saves and leaves; what rests on the witness's word ends with
// it.
#pragma once

#include "runtime/core/consent.h"
#include "runtime/core/phase.h"
#include "runtime/core/policy.h"
#include "runtime/core/roster.h"

namespace kintsugi::core {

class Majority {
 public:
  explicit Majority(const Policy& policy)
      : needed_(policy.needs_consent), full_wait_(policy.consent_wait), rule_(policy.tie_rule), part_(policy.part) {}

  TieRule rule() const { return rule_; }
  void TakeRule(TieRule rule) { rule_ = rule; }
  // The witness's lease is ours until then.
  void TakeWord(TimePoint until) { word_until_ = until; }

  // How the members vote, by the rule.
  Consent Count(const Roster& members) const;
  bool Has(const Roster& members, TimePoint now) const;
  // Whether those of this crew would have it by themselves, whatever becomes of the others that answer now.
  bool HasWithout(const Roster& members, const Crew& crew, TimePoint now) const;

  // All live ranks have answered a LOCK. True: the attempt goes on, with a majority or as a minority.
  bool MayGoOn(const Roster& members, TimePoint now);
  // For how long those are waited for who do not answer. A part has waited before it began, until it is one no more.
  Duration wait() const { return part_ ? Duration() : full_wait_; }
  // It is waited for, in one incident for `wait` in all. True: for the first time in it.
  bool Await(TimePoint now);
  TimePoint until() const { return until_; }
  // It was waited for in vain: save, without `latest`, and leave.
  void GiveUp();
  bool minority() const { return minority_; }

  // What was decided on the witness's word, which is not ours any more. True: once, when that is found.
  bool LostWord(const Roster& members, TimePoint now);
  void OnIncident() { until_ = TimePoint::Max(); }
  void OnPhase(Phase to);

 private:
  bool Suffices(Consent consent, TimePoint now) const;

  const bool needed_;
  const Duration full_wait_;
  TieRule rule_;
  bool part_;  // no majority elected this controller, and it has had none since
  TimePoint word_until_;
  TimePoint until_ = TimePoint::Max();  // of this incident
  bool by_word_ = false;                // this attempt rests on it
  bool minority_ = false;
};

}  // namespace kintsugi::core
