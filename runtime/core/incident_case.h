// IncidentCase: the record of the incident under way, from its first signal to its end, and how sure it is that
// something broke.
//
// One enum, one table: what speaks for the incident (Evidence) only grows, but for the first signal of all.
//
// Threads: none; pure.
// Errors: a record that is asked for while no incident is under way is a failed CHECK.
// Invariants: one incident at a time; ids and attempts only grow; a proven incident stays proven.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/controller_types.h"

namespace kintsugi::core {

enum class Evidence : uint8_t {
  kSuspected,  // by a signal that proves nothing by itself: the echo of a fault that has yet to show
  kLost,       // nothing but lost connections, which may come back
  kProven,
};
bool IsTransition(Evidence from, Evidence to);

class IncidentCase {
 public:
  // Every rank is told of so many of those that an incident began with, or replaced.
  static constexpr size_t kNamedMax = 256;

  // `before`: in a run that is taken over, how many there were.
  explicit IncidentCase(uint64_t before = 0) : count_(before) {}

  bool open() const { return record_.has_value(); }
  // 0: none is under way.
  uint64_t id() const { return record_ ? record_->id : 0; }
  // How many there were.
  uint64_t count() const { return count_; }
  const std::optional<IncidentRecord>& current() const { return record_; }
  // REQUIRES: open.
  IncidentRecord& record();

  // `first`: its id is given here.
  void Open(IncidentRecord first);
  // What was in it, of no attempt any more.
  IncidentRecord Close();

  Evidence evidence() const { return evidence_; }
  void SetEvidence(Evidence to);
  // It is proven that something broke: a root cause. What was seen first, if anything, was the echo.
  void Blame(Rank rank, FaultKind kind, const std::string& text, TimePoint since);
  // It is nobody's fault. REQUIRES: open.
  void BlameNobody() { record().ranks.clear(); }

  // How often its repair was begun; 0: not yet.
  int attempt() const { return attempt_; }
  // One more, after what `ended_by` says of the one before it.
  void BeginAttempt(const std::string& ended_by, Generation generation);
  // What this attempt has chosen.
  void Try(const RungDecision& decision);

  // This handler ran out of its limit: a rank that does not come out of STOP within as long is the one. Asked once.
  void NoteRanOut(std::string_view handler, Duration limit) { ran_out_ = limit, ran_out_handler_ = handler; }
  std::optional<Duration> TakeRanOut() {
    if (!ran_out_) ran_out_handler_ = {};
    return std::exchange(ran_out_, std::nullopt);
  }
  // For which the present STOP is; empty: for none.
  std::string_view ran_out_handler() const { return ran_out_handler_; }

  // Spans of time, where an incident is under way.
  void NotePhase(const PhaseSpan& span);
  void NoteRank(const RankSpan& span);
  // What handlers have to say of it: beside the reasons for its rung, each sentence once.
  void Remark(const std::string& text);
  // Who gave of its state. REQUIRES: open.
  void NoteSources(const std::vector<Rank>& sources);

  // Whom it began with, as handlers are told it: the first ones, where a whole storm did; ascending.
  std::vector<Rank> Named() const;
  // What it began with, for last words.
  std::string FirstCause() const;

 private:
  std::optional<IncidentRecord> record_;
  uint64_t count_ = 0;
  Evidence evidence_ = Evidence::kSuspected;
  int attempt_ = 0;
  std::optional<Duration> ran_out_;
  std::string_view ran_out_handler_;  // a literal
  std::optional<Rung> tried_;
};

}  // namespace kintsugi::core
