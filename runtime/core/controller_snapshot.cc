// In-memory snapshots (SnapshotRounds), as the controller orders them, takes what ranks say and counts with them.
#include <algorithm>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {

void ControllerCore::ArmSnapshot() {
  if (!snapshots_.MayArm() || phase_ != Phase::kRunning || members_.unresumed() > 0 || !replicas_known_ ||
      stop_requested_)
    return;
  if (!snapshots_.partners_known()) {
    std::vector<std::string> hosts;
    for (const Member& member : members_) hosts.push_back(member.host);
    const std::string alone = snapshots_.ChoosePartners(replicas_, hosts);
    if (!alone.empty()) out_.push_back(Notice{Rank(0), alone});
  }
  kintsugi::Step begun = resume_step_;
  for (const Member& member : members_) begun = std::max(begun, member.begun);
  snapshots_.Arm(begun);
  for (size_t r = 0; r < members_.size(); ++r) OrderSnapshot(Rank(static_cast<int32_t>(r)));
}

void ControllerCore::OrderSnapshot(Rank rank) {
  if (const auto order = snapshots_.OrderFor(rank)) SendTo(rank, *order);
}

void ControllerCore::OnSnapshotReport(Rank rank, const SnapshotReport& report) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kConfirm) return;
  Member& member = At(rank);
  member.begun = std::max(member.begun, report.begun);
  if (!snapshots_.Take(rank, report)) return;
  const SnapshotSettled settled = snapshots_.Settle(replicas_, hangs_.step_time());
  out_.push_back(settled);
  if (!snapshots_.off().empty())
    out_.push_back(Notice{settled.rank, "no more in-memory snapshots are made: " + snapshots_.off()});
  ArmSnapshot();
}

void ControllerCore::OnSnapshotUnreadable(Rank rank, const std::string& why) {
  out_.push_back(
      Notice{rank, "the in-memory snapshot of step " + choice_.step->ToString() + " cannot be used as it is: " + why});
  snapshots_.Spoil(rank);
  EnterLock("what rank " + rank.ToString() + " holds of the in-memory snapshot cannot be used: " + why);
}

}  // namespace kintsugi::core
