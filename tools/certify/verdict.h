// What came of one run with faults, beside the undisturbed one.
//
// Threads: pure functions.
// Errors: none.
#pragma once

#include <string>

#include "tools/certify/certify_plan.h"
#include "tools/report/record.h"

namespace kintsugi {

enum class CertifyOutcome {
  kSame,        // repaired, to the same bits, losses and samples
  kSaved,       // not repaired in memory: the run saved, left, and was resumed to the same bits
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

// What differs between two runs of one program, in words; empty: nothing. The later of the two comes first.
std::string DifferenceBetween(const RunRecord& run, const RunRecord& reference);

// Of a run that ended with code 0.
CertifyResult JudgeFinished(const CertifyCell& cell, const RunRecord& run, const RunRecord& reference);

// Of one that saved and left, and of the run that went on from there.
CertifyResult JudgeResumed(const RunRecord& left, const RunRecord& resumed, const RunRecord& reference);

}  // namespace kintsugi
