#include "runtime/core/snapshot_rounds.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/core/digest_verdict.h"

namespace kintsugi::core {
namespace {

// An order this many steps ahead is not late any more.
constexpr uint64_t kMarginMax = 1024;
constexpr Rank kNobody{-1};

// The newest step whose copy was made before damage that is found while this step is computed.
Step BeforeDamageIn(Step computing) { return Step(computing.value() - std::min<uint64_t>(computing.value(), 2)); }

}  // namespace

SnapshotRounds::SnapshotRounds(uint64_t every, bool by_cost)
    : every_(every), by_cost_(by_cost), interval_(std::max<uint64_t>(every, 1)) {}

std::string SnapshotRounds::ChoosePartners(const ReplicaMap& replicas, const std::vector<std::string>& hosts,
                                           const Crew& crew) {
  KINTSUGI_CHECK(!table_.armed(), "partners are chosen anew in the midst of a snapshot");
  partners_ = ChooseSnapshotPartners(replicas, hosts, crew);
  KINTSUGI_CHECK(partners_.size() == hosts.size(), "partners are chosen for another world");
  partners_known_ = true;
  kept_of_.assign(hosts.size(), {});
  std::string why;
  int alone = 0;
  for (size_t r = 0; r < partners_.size(); ++r) {
    const SnapshotPartner& partner = partners_[r];
    if (partner.rank) kept_of_[static_cast<size_t>(partner.rank->value())].push_back(Rank(static_cast<int32_t>(r)));
    if (partner.rank || !partner.takes_part || alone++ > 0) continue;
    why = "rank " + std::to_string(r) + " has no partner for its in-memory snapshots: " + partner.why;
  }
  if (alone == 0) return "";
  if (alone > 1) why += " (and " + std::to_string(alone - 1) + " more)";
  return why + "; they are kept by their owners alone";
}

void SnapshotRounds::Find(Rank reporter, const SnapshotReport& report, size_t seats) {
  if (!finds_ || report.code != StatusCode::kOk || (found_until_ && report.step > *found_until_)) return;
  table_.Find(reporter, report, seats);
}

void SnapshotRounds::TakeFound(const ReplicaMap& replicas) {
  if (!finds_ || !wanted()) return;
  table_.TakeFound(replicas);
  hurried_ = hurried_ || table_.newest() > Step();
}

void SnapshotRounds::SuspectFound(Step computing) {
  const Step until = BeforeDamageIn(computing);
  found_until_ = std::min(found_until_.value_or(until), until);
  table_.DropAfter(*found_until_);
}

void SnapshotRounds::Arm(Step begun) {
  finds_ = false;
  table_.ForgetFound();
  KINTSUGI_CHECK(MayArm() && partners_known_, "a round of snapshots that may not begin");
  const uint64_t ahead = std::max(begun, table_.newest()).value() + margin_;  // who has taken over knows little yet
  const Step step(hurried_ ? ahead : (ahead + interval_ - 1) / interval_ * interval_);
  KINTSUGI_CHECK(step > begun && step > table_.newest(),
                 "a snapshot of step " + step.ToString() + " which some rank has begun, or which there is");
  table_.Arm(step, partners_);
}

std::optional<SnapshotOrder> SnapshotRounds::OrderFor(Rank rank) const {
  if (!table_.Awaits(rank)) return std::nullopt;
  const auto r = static_cast<size_t>(rank.value());
  return SnapshotOrder{table_.armed_step(), table_.newest(), partners_[r].rank.value_or(kNobody), kept_of_[r]};
}

SnapshotSettled SnapshotRounds::Settle(const ReplicaMap& replicas, std::optional<Duration> step_time) {
  KINTSUGI_CHECK(table_.settled(), "a round of snapshots is settled before all have spoken");
  SnapshotSettled settled{.step = table_.armed_step(), .counts = false, .rank = Rank(0), .text = "", .cost = {}};
  bool late = false;
  if (const auto& failure = table_.failure()) {
    settled.rank = failure->rank;
    settled.text = failure->text;
    if (failure->code == StatusCode::kFailedPrecondition) off_ = failure->text;
    late = failure->code == StatusCode::kUnavailable;
    if (late) margin_ = std::min(2 * margin_, kMarginMax);
  } else if (const DigestVerdict verdict = CompareDigests(replicas, table_.digests(), {}); !verdict.equal) {
    // Damage that its rank has yet to report, or one that nobody sees: --verify-every acts on it.
    settled.rank = verdict.odd.back();
    settled.text = "layout " + std::to_string(verdict.layout) + " differs between ranks " +
                   verdict.expected.ToString() + " and " + verdict.odd.back().ToString();
  } else {
    settled.counts = true;
    settled.cost = table_.cost();
  }
  hurried_ = hurried_ && late;
  if (!settled.counts) {
    ++abandoned_;
    table_.Disarm();
    return settled;
  }
  ++made_;
  table_.Count();
  if (by_cost_ && step_time) interval_ = SnapshotInterval(settled.cost, *step_time);
  return settled;
}

void SnapshotRounds::Forget(Rank rank) {
  hurried_ = hurried_ || table_.newest() > Step();
  table_.Forget(rank);
}

void SnapshotRounds::Spoil(Rank rank) {
  hurried_ = hurried_ || table_.newest() > Step();
  table_.Spoil(rank);
}

void SnapshotRounds::Suspect(const ReplicaMap& replicas, Rank rank, Step computing) {
  if (computing.value() == 0) return;
  // Where a replica was copied too the two digests tell.
  for (int layout : replicas.LayoutsOf(rank))
    if (replicas.Holders(layout, rank).size() == 1) return table_.DropAfter(BeforeDamageIn(computing));
}

SnapshotTable::Usable SnapshotRounds::FindUsable(const ReplicaMap& replicas, std::optional<Step> suspect_from) const {
  if (!wanted()) return {};
  SnapshotTable::Usable usable = table_.FindUsable(replicas);
  if (!usable.step) return {std::nullopt, off_.empty() ? usable.why : off_};
  if (!suspect_from || *usable.step < *suspect_from) return usable;
  return {std::nullopt, "the in-memory snapshot of step " + usable.step->ToString() + " may hold damage"};
}

}  // namespace kintsugi::core
