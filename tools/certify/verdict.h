// What came of one run with faults, beside the undisturbed one.
//
// Threads: pure functions.
// Errors: none.
#pragma once

#include <optional>
#include <string>

#include "tools/certify/certify_plan.h"
#include "tools/report/record.h"

namespace kintsugi {

enum class CertifyOutcome {
  kSame,        // repaired, to the same bits, losses and samples
  kSaved,       // not repaired in memory: the run saved, left, and was resumed to the same bits
  kNoCopy,      // a second fault took the last copy of a shard before there was another: no mistake of the program's
  kNotReached,  // the program does not mark this phase: nothing struck
  kDifferent,   // the run ended by itself, with other results
  kFailed,      // the run ended with an error, or not at all
  kNotDone,     // the plan was cut short
};

struct CertifyResult {
  CertifyOutcome outcome = CertifyOutcome::kNotDone;
  std::string text;  // what differs and where to look, or why it failed
  std::string path;  // the rungs that repaired it: "retry, respawn"
  double seconds = 0;
};

std::string_view CertifyOutcomeName(CertifyOutcome outcome);

// Red: a mistake of the program's, or of ours.
constexpr bool IsFailure(CertifyOutcome outcome) {
  return outcome == CertifyOutcome::kDifferent || outcome == CertifyOutcome::kFailed;
}

// Told with its command and what to look at.
constexpr bool IsExplained(CertifyOutcome outcome) { return IsFailure(outcome) || outcome == CertifyOutcome::kNoCopy; }

// How what a run's ranks left differs from what plain torch leaves, in words (plain_facts.h); none: it is not known. A program that
// changes its state behind the last step (a best model is loaded) has no digest of its end: there this decides.
using FromPlain = std::optional<std::string>;

// What differs between two runs of one program, in words; empty: nothing. The later of the two comes first.
std::string DifferenceBetween(const RunRecord& run, const RunRecord& reference, const FromPlain& from_plain);

// The verdict on a run that ended with code 0.
CertifyResult JudgeFinished(const CertifyCell& cell, const RunRecord& run, const RunRecord& reference,
                            const FromPlain& from_plain);

// The verdict on a run that ended with an error, `words` being the last that it printed.
CertifyResult JudgeEnded(const CertifyCell& cell, const RunRecord& run, const std::string& words);

// The verdict on one that saved and left, and on the run that went on from there.
CertifyResult JudgeResumed(const RunRecord& left, const RunRecord& resumed, const RunRecord& reference,
                           const FromPlain& from_plain);

}  // namespace kintsugi
