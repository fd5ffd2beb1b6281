#include "tools/certify/verdict.h"

#include <algorithm>

#include "tools/report/compare.h"

namespace kintsugi {
namespace {

std::string LossText(std::optional<double> loss) {
  if (!loss) return "none";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", *loss);
  return text;
}

std::string PathOf(const RunRecord& run) {
  std::string path;
  for (const ReportedIncident& incident : run.incidents)
    if (!incident.path.empty()) path += (path.empty() ? "" : ", ") + incident.path;
  return path;
}

bool Contains(const std::string& path, std::initializer_list<const char*> rungs) {
  return std::any_of(rungs.begin(), rungs.end(),
                     [&](const char* rung) { return path.find(rung) != std::string::npos; });
}

// Where to look: what the repair can and cannot have brought back.
std::string Hint(const std::string& path, bool same_samples) {
  if (!same_samples)
    return "Samples were taken twice or left out: the sampler's position is neither a function of the step nor a "
           "registered object.";
  if (Contains(path, {"adopt", "spare", "respawn"}))
    return "A new process has only what is registered: a tensor or an object that decides the result is not, or is set "
           "up otherwise in a process that replaces one.";
  if (Contains(path, {"retry", "resume"}))
    return "The step was computed again in the same process: something that it moves was not put back. Look for an "
           "update outside of the gate, a random generator or a buffer that is no registered object.";
  if (Contains(path, {"rebuild", "patch"}))
    return "The process went on with registered state from its replica: something that a step changes is not "
           "registered, or the update moves what is outside of it.";
  return "Everything went back to a copy: what is not in it, or is derived from the step by the trainer, was not put "
         "back.";
}

// By the ladder's own words: a run may also be given up for reasons that are somebody's mistake.
bool LeftNoCopy(const ReportedIncident& incident) {
  return incident.path == "exit" &&
         std::any_of(incident.reasons.begin(), incident.reasons.end(), [](const ToldReason& refused) {
           return refused.reason.find("no step that every shard still holds") != std::string::npos;
         });
}

// How two runs end otherwise; empty: alike.
std::string EndDifference(const RunRecord& run, const RunRecord& reference, const FromPlain& from_plain) {
  const bool none = run.final_digest.empty() && reference.final_digest.empty();
  std::string text;
  if (run.final_digest.empty() != reference.final_digest.empty() || (none && !from_plain))
    text =
        "the final state has no digest: nothing is registered, its copies differ, or it was changed behind the last "
        "step";
  else if (run.final_digest != reference.final_digest)
    text = "the final state differs (" + run.final_digest + " instead of " + reference.final_digest + ")";
  if (from_plain && !from_plain->empty())
    text += std::string(text.empty() ? "" : "; ") + "it left something else than plain torch: " + *from_plain;
  return text;
}

}  // namespace

std::string_view CertifyOutcomeName(CertifyOutcome outcome) {
  switch (outcome) {
    case CertifyOutcome::kSame:
      return "same";
    case CertifyOutcome::kSaved:
      return "saved";
    case CertifyOutcome::kNoCopy:
      return "no copy left";
    case CertifyOutcome::kNotReached:
      return "not marked";
    case CertifyOutcome::kDifferent:
      return "DIFFERENT";
    case CertifyOutcome::kFailed:
      return "FAILED";
    case CertifyOutcome::kNotDone:
      return "not done";
  }
  return "";
}

std::string DifferenceBetween(const RunRecord& run, const RunRecord& reference, const FromPlain& from_plain) {
  const RunComparison same = Compare(run, reference);
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (run.steps != reference.steps)
    add(std::to_string(run.steps) + " steps instead of " + std::to_string(reference.steps));
  if (!same.same_losses && same.first_difference) {
    const uint64_t step = *same.first_difference;
    add("losses differ from step " + std::to_string(step) + " on (" + LossText(run.LossOf(step)) + " instead of " +
        LossText(reference.LossOf(step)) + ")");
  } else if (!same.same_losses) {
    add("losses differ");
  }
  if (!same.same_samples)
    add(run.samples_consumed != reference.samples_consumed
            ? std::to_string(run.samples_consumed) + " samples instead of " + std::to_string(reference.samples_consumed)
            : std::string("other samples, or in another step"));
  if (const std::string end = EndDifference(run, reference, from_plain); !end.empty()) add(end);
  return text;
}

CertifyResult JudgeFinished(const CertifyCell& cell, const RunRecord& run, const RunRecord& reference,
                            const FromPlain& from_plain) {
  CertifyResult result;
  result.path = PathOf(run);
  const std::string difference = DifferenceBetween(run, reference, from_plain);
  const bool reached = run.struck.size() == cell.faults.size();
  if (!difference.empty()) {
    result.outcome = CertifyOutcome::kDifferent;
    result.text = difference + ". " + Hint(result.path, Compare(run, reference).same_samples);
    if (!run.inexact.empty()) result.text += " The run itself calls it inexact: " + run.inexact.front().text + ".";
  } else if (!reached) {
    result.outcome = CertifyOutcome::kNotReached;
    result.text = cell.phase              ? "the program does not mark this phase"
                  : cell.IsAtCollective() ? "the step has fewer collectives, or the program tells of none"
                                          : "not every fault struck";
    for (const std::string& spec : run.not_struck) result.text += "; " + spec + " did not";
  } else {
    result.outcome = CertifyOutcome::kSame;
  }
  return result;
}

CertifyResult JudgeEnded(const CertifyCell& cell, const RunRecord& run, const std::string& words) {
  CertifyResult result{CertifyOutcome::kFailed, words, PathOf(run), 0};
  const bool second = run.struck.size() > 1 && run.struck.size() == cell.faults.size() && run.incidents.size() > 1;
  if (!second || !LeftNoCopy(run.incidents.back())) return result;
  result.outcome = CertifyOutcome::kNoCopy;
  result.text =
      "the second fault struck what held the last copy of a shard, before there was another: more replicas, "
      "--save-every or a smaller --snapshot-every leave less time for that";
  return result;
}

CertifyResult JudgeResumed(const RunRecord& left, const RunRecord& resumed, const RunRecord& reference,
                           const FromPlain& from_plain) {
  CertifyResult result{CertifyOutcome::kSaved, "", PathOf(left), 0};
  const std::string from = "resumed from step " + std::to_string(resumed.resumed_from);
  result.text = "could not be repaired in memory; " + from + " to the same bits";
  for (uint64_t step = resumed.resumed_from + 1; step <= reference.last_step(); ++step) {
    if (resumed.LossOf(step) == reference.LossOf(step)) continue;
    result.outcome = CertifyOutcome::kDifferent;
    result.text = from + ", losses differ from step " + std::to_string(step) + " on (" +
                  LossText(resumed.LossOf(step)) + " instead of " + LossText(reference.LossOf(step)) + ")";
    return result;
  }
  if (const std::string end = EndDifference(resumed, reference, from_plain); !end.empty()) {
    result.outcome = CertifyOutcome::kDifferent;
    result.text = from + ", " + end;
  }
  return result;
}

}  // namespace kintsugi
