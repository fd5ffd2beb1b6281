#include "runtime/core/snapshot_orders.h"

#include <algorithm>
#include <vector>

namespace kintsugi::core {

void SnapshotOrders::Arm() {
  if (!rounds_.MayArm() || board_.phase() != Phase::kRunning || board_.members.unresumed() > 0 ||
      !board_.registered.mapped() || board_.course.leaving)
    return;
  if (!rounds_.partners_known()) {
    std::vector<std::string> hosts;
    for (const Member& member : board_.members.all()) hosts.push_back(member.host);
    const std::string alone = rounds_.ChoosePartners(board_.replicas(), hosts, board_.members.crew());
    if (!alone.empty()) board_.Note(Rank(0), alone);
  }
  rounds_.Arm(std::max(board_.course.resume_step, board_.members.newest_begun()));
  for (Rank rank : board_.members.ranks()) TellAgain(rank);
}

void SnapshotOrders::TellAgain(Rank rank) {
  if (const auto order = rounds_.OrderFor(rank)) board_.SendTo(rank, *order);
}

void SnapshotOrders::OnReport(Rank rank, const SnapshotReport& report) {
  if (report.counts) return rounds_.Find(rank, report, board_.members.seats());
  if (!board_.InTraining()) return;
  Member& member = board_.At(rank);
  member.begun = std::max(member.begun, report.begun);
  if (!rounds_.Take(rank, report)) return;
  const SnapshotSettled settled = rounds_.Settle(board_.replicas(), hangs_.step_time());
  board_.Act(settled);
  if (!rounds_.off().empty()) board_.Note(settled.rank, "no more in-memory snapshots are made: " + rounds_.off());
  Arm();
}

void SnapshotOrders::OnUnreadable(Rank rank, const std::string& why) {
  board_.Note(rank, "the in-memory snapshot of step " + board_.plan.choice.step->ToString() +
                        " cannot be used as it is: " + why);
  rounds_.Spoil(rank);
  faults_.Lock("what rank " + rank.ToString() + " holds of the in-memory snapshot cannot be used: " + why);
}

}  // namespace kintsugi::core
