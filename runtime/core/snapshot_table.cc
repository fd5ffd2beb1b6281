#include "runtime/core/snapshot_table.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// One counts at a time; who missed the newest word of that may name the one before.
constexpr size_t kFoundMax = 4;

size_t IndexOf(Rank rank) { return static_cast<size_t>(rank.value()); }

}  // namespace

uint64_t SnapshotInterval(Duration cost, Duration step_time) {
  if (cost.count() <= 0 || step_time.count() <= 0) return 1;
  const double steps = static_cast<double>(cost.count()) / (kSnapshotShare * static_cast<double>(step_time.count()));
  return static_cast<uint64_t>(std::clamp(std::ceil(steps), 1.0, 1e9));
}

void SnapshotTable::Arm(Step step, const std::vector<SnapshotPartner>& partners) {
  KINTSUGI_CHECK(!armed_, "an attempt at a snapshot is under way");
  Armed armed;
  armed.step = step;
  for (const SnapshotPartner& partner : partners) {
    armed.partners.push_back(partner.rank);
    armed.copies.push_back({.own_told = !partner.takes_part, .kept_told = !partner.takes_part, .kept_digests = {}});
    if (partner.takes_part) armed.open += partner.rank ? 2 : 1;
    armed.absent.push_back(!partner.takes_part);
  }
  armed.digests.resize(partners.size());
  armed_ = std::move(armed);
}

const SnapshotTable::Armed& SnapshotTable::TheArmed() const {
  KINTSUGI_CHECK(armed_.has_value(), "no attempt at a snapshot is under way");
  return *armed_;
}

const std::vector<std::map<int, uint64_t>>& SnapshotTable::recorded() const {
  KINTSUGI_CHECK(counted_.has_value(), "no snapshot counts");
  return counted_->digests;
}

bool SnapshotTable::Awaits(Rank rank) const { return armed_ && !armed_->copies[IndexOf(rank)].own_told; }

void SnapshotTable::Fail(Rank rank, const SnapshotReport& report, const std::string& what) {
  // That one can make none at all is told before that another was late.
  const bool graver = armed_->failure && report.code == StatusCode::kFailedPrecondition &&
                      armed_->failure->code != StatusCode::kFailedPrecondition;
  if (!armed_->failure || graver) armed_->failure = Failure{rank, report.code, what};
}

bool SnapshotTable::Take(Rank reporter, const SnapshotReport& report) {
  if (!armed_ || report.step != armed_->step || report.owner.value() < 0 ||
      IndexOf(report.owner) >= armed_->copies.size())
    return false;
  Copy& copy = armed_->copies[IndexOf(report.owner)];
  const std::optional<Rank> partner = armed_->partners[IndexOf(report.owner)];
  if (reporter == report.owner) {
    if (std::exchange(copy.own_told, true)) return false;
    --armed_->open;
    armed_->digests[IndexOf(reporter)] = report.digests;
    // Where nothing was sent nothing is kept, and nobody will say so.
    if (report.code != StatusCode::kOk && partner && !std::exchange(copy.kept_told, true)) --armed_->open;
    if (report.code != StatusCode::kOk) Fail(reporter, report, report.text);
  } else if (partner == reporter) {
    if (std::exchange(copy.kept_told, true)) return false;
    --armed_->open;
    copy.kept_digests = report.digests;
    if (report.code != StatusCode::kOk)
      Fail(reporter, report, "its copy for rank " + report.owner.ToString() + ": " + report.text);
  } else {
    return false;
  }
  armed_->cost = std::max(armed_->cost, report.cost);
  if (copy.own_told && copy.kept_told && partner && !armed_->failure &&
      copy.kept_digests != armed_->digests[IndexOf(report.owner)])
    armed_->failure = Failure{*partner, StatusCode::kDataLoss,
                              "its copy for rank " + report.owner.ToString() + " has not the digest of the original"};
  return true;
}

void SnapshotTable::Count() {
  KINTSUGI_CHECK(settled() && !armed_->failure, "a snapshot counts that is not complete");
  counted_ = Counted{armed_->step, std::move(armed_->partners), std::move(armed_->digests), std::move(armed_->absent)};
  armed_.reset();
}

void SnapshotTable::Find(Rank reporter, const SnapshotReport& report, size_t seats) {
  if (report.owner.value() < 0 || IndexOf(report.owner) >= seats || IndexOf(reporter) >= seats) return;
  const auto [found, is_new] = found_.try_emplace(report.step);
  Counted& counted = found->second;
  if (is_new) {
    if (found_.size() > kFoundMax) {  // of which the ranks have forgotten the oldest themselves
      if (found == found_.begin()) return void(found_.erase(found));
      found_.erase(found_.begin());
    }
    counted = {report.step, std::vector<std::optional<Rank>>(seats), std::vector<std::map<int, uint64_t>>(seats),
               std::vector<bool>(seats, true)};
  }
  counted.lost[IndexOf(reporter)] = false;
  counted.digests[IndexOf(report.owner)] = report.digests;  // a second copy has those of the first
  if (reporter != report.owner) counted.partners[IndexOf(report.owner)] = reporter;
}

void SnapshotTable::TakeFound(const ReplicaMap& replicas) {
  if (found_.empty()) return;
  counted_.reset();
  const auto usable = std::find_if(found_.rbegin(), found_.rend(), [&](const auto& found) {
    return UsableOf(found.second, replicas).step.has_value();
  });
  if (usable == found_.rend()) return;
  counted_ = usable->second;
  TakeDigests(replicas);
}

// Who is gone had those of its replicas.
void SnapshotTable::TakeDigests(const ReplicaMap& replicas) {
  for (const ReplicaMap::Shard& shard : replicas.shards()) {
    const uint64_t digest =
        counted_->digests[IndexOf(*OwnerFor(*counted_, replicas, shard.layout, shard.holders.front()))][shard.layout];
    for (Rank holder : shard.holders) counted_->digests[IndexOf(holder)].try_emplace(shard.layout, digest);
  }
}

void SnapshotTable::Forget(Rank rank) {
  if (counted_) counted_->lost[IndexOf(rank)] = true;
  for (auto& [step, counted] : found_) counted.lost[IndexOf(rank)] = true;
}

void SnapshotTable::Spoil(Rank rank) {
  found_.clear();
  if (!counted_) return;
  if (counted_->lost[IndexOf(rank)]) return counted_.reset();
  counted_->lost[IndexOf(rank)] = true;
}

void SnapshotTable::DropAfter(Step step) {
  if (counted_ && counted_->step > step) counted_.reset();
  if (armed_ && armed_->step > step) armed_.reset();
  found_.erase(found_.upper_bound(step), found_.end());
}

std::vector<Rank> SnapshotTable::HoldersOf(const Counted& counted, Rank owner) {
  std::vector<Rank> holders;
  if (counted.Has(owner)) holders.push_back(owner);
  const auto partner = counted.partners[IndexOf(owner)];
  if (partner && counted.Has(*partner)) holders.push_back(*partner);
  return holders;
}

std::optional<Rank> SnapshotTable::OwnerFor(const Counted& counted, const ReplicaMap& replicas, int layout, Rank rank) {
  if (!HoldersOf(counted, rank).empty()) return rank;
  for (Rank owner : replicas.Holders(layout, rank))
    if (!HoldersOf(counted, owner).empty()) return owner;
  return std::nullopt;
}

SnapshotTable::Usable SnapshotTable::UsableOf(const Counted& counted, const ReplicaMap& replicas) {
  for (const ReplicaMap::Shard& shard : replicas.shards())
    if (!OwnerFor(counted, replicas, shard.layout, shard.holders.front()))
      return {std::nullopt, "of the in-memory snapshot of step " + counted.step.ToString() + " no copy of layout " +
                                std::to_string(shard.layout) + " of rank " + shard.holders.front().ToString() +
                                " is left: who kept it is lost too"};
  return {counted.step, ""};
}

SnapshotTable::Usable SnapshotTable::FindUsable(const ReplicaMap& replicas) const {
  if (counted_) return UsableOf(*counted_, replicas);
  if (!found_.empty()) return UsableOf(found_.rbegin()->second, replicas);  // it says what it lacks
  return {std::nullopt, "no in-memory snapshot is complete"};
}

std::vector<RepairMove> SnapshotTable::PlanMoves(const ReplicaMap& replicas, Step step) const {
  KINTSUGI_CHECK(counted_ && counted_->step == step, "no snapshot of step " + step.ToString() + " counts");
  std::vector<RepairMove> moves;
  for (size_t r = 0; r < counted_->lost.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    if (counted_->Has(rank)) continue;
    for (int layout : replicas.LayoutsOf(rank)) {
      const auto owner = OwnerFor(*counted_, replicas, layout, rank);
      KINTSUGI_CHECK(owner.has_value(), "no copy is left of layout " + std::to_string(layout));
      moves.push_back({layout, rank, HoldersOf(*counted_, *owner), {}, false, *owner});
    }
  }
  return moves;
}

}  // namespace kintsugi::core
