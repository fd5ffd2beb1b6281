// In-memory snapshots: when one is made, which one counts, and what a reload goes back to.
//
// The controller names a step that every rank has yet to reach, with the rank that keeps each second copy and the
// snapshot that must stay. Each rank copies at the boundary after that step, or says why not; when all have spoken the
// snapshot counts or does not, and the next one is ordered. Nothing here is waited for: an attempt that a fault
// overtakes is void, and the newest snapshot that counts stays.
#include <algorithm>
#include <utility>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// An order this many steps ahead is not late any more.
constexpr uint64_t kMarginMax = 1024;
constexpr Rank kNobody{-1};

}  // namespace

void ControllerCore::ChooseSnapshotPartnersOnce() {
  if (!snapshot_partners_.empty()) return;
  std::vector<std::string> hosts;
  for (const Member& member : members_) hosts.push_back(member.host);
  snapshot_partners_ = ChooseSnapshotPartners(replicas_, hosts);
  snapshots_of_.assign(members_.size(), {});
  std::string why;
  int alone = 0;
  for (size_t r = 0; r < members_.size(); ++r) {
    const SnapshotPartner& partner = snapshot_partners_[r];
    if (partner.rank)
      snapshots_of_[static_cast<size_t>(partner.rank->value())].push_back(Rank(static_cast<int32_t>(r)));
    if (partner.rank || alone++ > 0) continue;
    why = "rank " + std::to_string(r) + " has no partner for its in-memory snapshots: " + partner.why;
  }
  if (alone > 1) why += " (and " + std::to_string(alone - 1) + " more)";
  if (alone > 0) out_.push_back(Notice{Rank(0), why + "; they are kept by their owners alone"});
}

void ControllerCore::ArmSnapshot() {
  const bool wanted = policy_.snapshot_every > 0 || policy_.snapshot_auto;
  if (!wanted || !snapshots_off_.empty() || snapshots_.armed() || phase_ != Phase::kRunning || unresumed_ > 0 ||
      !replicas_known_ || stop_requested_)
    return;
  ChooseSnapshotPartnersOnce();
  uint64_t ahead = resume_step_.value();
  for (const Member& member : members_) ahead = std::max(ahead, member.begun.value());
  ahead += snapshot_margin_;
  const uint64_t step = (ahead + snapshot_interval_ - 1) / snapshot_interval_ * snapshot_interval_;
  snapshots_.Arm(kintsugi::Step(step), snapshot_partners_);
  for (size_t r = 0; r < members_.size(); ++r) OrderSnapshot(Rank(static_cast<int32_t>(r)));
}

void ControllerCore::OrderSnapshot(Rank rank) {
  if (!snapshots_.Awaits(rank)) return;
  const auto r = static_cast<size_t>(rank.value());
  SendTo(rank, SnapshotOrder{snapshots_.armed_step(), snapshots_.newest(), snapshot_partners_[r].rank.value_or(kNobody),
                             snapshots_of_[r]});
}

void ControllerCore::OnSnapshotReport(Rank rank, const SnapshotReport& report) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kConfirm) return;
  Member& member = At(rank);
  member.begun = std::max(member.begun, report.begun);
  if (snapshots_.Take(rank, report) && snapshots_.settled()) SettleSnapshot();
}

void ControllerCore::SettleSnapshot() {
  SnapshotSettled settled{.step = snapshots_.armed_step(), .counts = false, .rank = Rank(0), .text = "", .cost = {}};
  if (const auto& failure = snapshots_.failure()) {
    settled.rank = failure->rank;
    settled.text = failure->text;
    if (failure->code == StatusCode::kFailedPrecondition) snapshots_off_ = failure->text;
    if (failure->code == StatusCode::kUnavailable) snapshot_margin_ = std::min(2 * snapshot_margin_, kMarginMax);
  } else if (const DigestVerdict verdict = CompareDigests(replicas_, snapshots_.digests(), {}); !verdict.equal) {
    // Damage that its rank has yet to report, or one that nobody sees: --verify-every acts on it.
    settled.rank = verdict.odd.back();
    settled.text = "layout " + std::to_string(verdict.layout) + " differs between ranks " +
                   verdict.expected.ToString() + " and " + verdict.odd.back().ToString();
  } else {
    settled.counts = true;
    settled.cost = snapshots_.cost();
  }
  if (settled.counts) {
    ++snapshots_made_;
    snapshots_.Count();
    const auto step_time = hangs_.step_time();
    if (policy_.snapshot_auto && step_time) snapshot_interval_ = SnapshotInterval(settled.cost, *step_time);
  } else {
    ++snapshots_abandoned_;
    snapshots_.Disarm();
  }
  out_.push_back(settled);
  if (!snapshots_off_.empty())
    out_.push_back(Notice{settled.rank, "no more in-memory snapshots are made: " + snapshots_off_});
  ArmSnapshot();
}

void ControllerCore::SuspectSnapshots(Rank rank, kintsugi::Step computing) {
  if (!replicas_known_ || computing.value() == 0) return;
  // Where a replica was copied too the two digests tell.
  for (int layout : replicas_.LayoutsOf(rank))
    if (replicas_.Holders(layout, rank).size() == 1)
      return snapshots_.DropAfter(kintsugi::Step(computing.value() - std::min<uint64_t>(computing.value(), 2)));
}

void ControllerCore::LookForSnapshot(IncidentSnapshot* incident) const {
  if (policy_.snapshot_every == 0 && !policy_.snapshot_auto) return;
  const SnapshotTable::Usable usable = snapshots_.FindUsable(replicas_);
  incident->snapshot = usable.step;
  incident->no_snapshot = !usable.step && !snapshots_off_.empty() ? snapshots_off_ : usable.why;
  if (!usable.step || !IsSuspect(*usable.step)) return;
  incident->snapshot.reset();
  incident->no_snapshot = "the in-memory snapshot of step " + usable.step->ToString() + " may hold damage";
}

void ControllerCore::OnSnapshotUnreadable(Rank rank, const std::string& why) {
  out_.push_back(
      Notice{rank, "the in-memory snapshot of step " + choice_.step->ToString() + " cannot be used as it is: " + why});
  snapshots_.Spoil(rank);
  EnterLock("what rank " + rank.ToString() + " holds of the in-memory snapshot cannot be used: " + why);
}

}  // namespace kintsugi::core
