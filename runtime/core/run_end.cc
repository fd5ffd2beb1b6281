#include "runtime/core/run_end.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::core {

void RunEnd::End(int exit_code, const std::string& text) {
  KINTSUGI_CHECK(exit_code != kExitResumable || checkpoints_.newest() || board_.policy.begins_again,
                 "the run is to be resumed, and there is nothing to resume it from: " + text);
  if (board_.incident.open()) board_.CloseIncident();
  board_.SetPhase(Phase::kEnded, text);
  for (size_t r = 0; r < board_.members.seats(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    const Member& member = board_.members[r];
    if (member.life == Life::kReady || member.connected)
      board_.SendTo(rank, EndOrder{exit_code, text});
    else if (member.life == Life::kStarting && board_.policy.can_spawn)
      board_.Act(KillProcess{rank, member.incarnation, "the run has ended"});
  }
  ended_ = {exit_code, text, CommittedStep(exit_code), final_digest_, not_compared_};
  board_.Act(ended_);
}

void RunEnd::EndFinished(uint64_t final_digest) {
  KINTSUGI_CHECK(board_.members.Where([](const Member& m) { return !m.finished; }).empty(),
                 "the run is told of as finished, and a rank is not");
  final_digest_ = final_digest;
  End(kExitSuccess, "all ranks finished");
}

void RunEnd::EndNotCompared(const std::string& why) {
  KINTSUGI_CHECK(!why.empty(), "replicas are not compared at the end, for no reason");
  not_compared_ = why;
  End(kExitSuccess, "all ranks finished");
}

void RunEnd::EndUnbegun(const std::string& why) {
  KINTSUGI_CHECK(!board_.course.ever_ran, "a run that began ends as one that did not: " + why);
  const bool again = board_.policy.begins_again;
  End(again ? kExitResumable : kExitFailed, why + (again ? "; the same command begins it again" : ""));
}

void RunEnd::EndRefused(Rank rank, const FaultReport& refusal) {
  const Step begun = std::max(refusal.step, board_.members.newest_begun());
  // Who takes over may hear it before it knows that the run ever went.
  const bool trained = (board_.course.ever_ran || board_.course.listening) && begun > board_.policy.resume_step;
  const Checkpoint* newest = checkpoints_.newest();
  End(trained ? kExitFailed : kExitStartup,
      "rank " + rank.ToString() + " ended the run" +
          (refusal.step.value() > 0 ? " at step " + refusal.step.ToString() : "") + ": " + refusal.text +
          (newest ? "; the newest checkpoint is " + newest->directory + " (step " + newest->step.ToString() + ")" : ""));
}

void RunEnd::EndWithoutSave(const std::string& why) {
  // A run that was never under way has nothing that a scheduler should come back to: it would end like this again.
  if (!board_.course.ever_ran) return End(kExitStartup, why);
  const std::string damage = checkpoints_.damage().empty() ? "" : "; " + checkpoints_.damage();
  const Checkpoint* newest = checkpoints_.newest();
  if (!newest) return End(kExitFailed, why + (damage.empty() ? "; there is no checkpoint" : damage));
  End(repeats_.hopeless().empty() ? kExitResumable : kExitFailed,
      why + damage + "; resume from " + newest->directory + " (step " + newest->step.ToString() + ")");
}

void RunEnd::TellAgain(Rank rank) {
  KINTSUGI_CHECK(board_.phase() == Phase::kEnded, "the end is told before it came");
  board_.SendTo(rank, EndOrder{ended_.exit_code, ended_.text});
}

Step RunEnd::CommittedStep(int exit_code) const {
  const std::optional<Step>& at = board_.plan.choice.step;
  if (exit_code == kExitSuccess && at) return *at;
  if (const Checkpoint* newest = checkpoints_.newest(); exit_code == kExitResumable && newest) return newest->step;
  return at.value_or(Step());
}

}  // namespace kintsugi::core
