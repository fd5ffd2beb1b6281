// VERIFY: members of a replica group hold equal state, proved by digests, before anyone goes on; once more at the end;
// and, with `verify_every`, between steps and before every save.
#include <algorithm>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// One more number folded into a digest of digests (the finalizer of SplitMix64).
uint64_t Fold(uint64_t digest, uint64_t next) {
  uint64_t z = (digest ^ next) + 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// 0: a rank without a state service reports nothing, and has nothing to compare.
uint64_t DigestOf(const Digests& digests, Rank rank, int layout) {
  const auto r = static_cast<size_t>(rank.value());
  if (r >= digests.size()) return 0;
  const auto found = digests[r].find(layout);
  return found == digests[r].end() ? 0 : found->second;
}

}  // namespace

DigestVerdict CompareDigests(const ReplicaMap& replicas, const Digests& digests, const std::set<Rank>& repaired) {
  for (const ReplicaMap::Shard& shard : replicas.shards()) {
    const auto digest = [&](Rank holder) { return DigestOf(digests, holder, shard.layout); };
    const auto untouched = std::find_if(shard.holders.begin(), shard.holders.end(),
                                        [&](Rank holder) { return !repaired.count(holder); });
    const Rank expected = untouched == shard.holders.end() ? shard.holders.front() : *untouched;
    DigestVerdict verdict{false, true, shard.layout, expected, {}};
    for (Rank holder : shard.holders) {
      if (digest(holder) == digest(expected)) continue;
      verdict.odd.push_back(holder);
      verdict.attributed = verdict.attributed && repaired.count(holder) > 0;
    }
    if (verdict.odd.empty()) continue;
    if (!verdict.attributed) verdict.odd = shard.holders;
    return verdict;
  }
  return {};
}

DigestVerdict CompareWithRecord(const ReplicaMap& replicas, const Digests& digests, const Digests& recorded) {
  for (const ReplicaMap::Shard& shard : replicas.shards()) {
    DigestVerdict verdict{false, true, shard.layout, shard.holders.front(), {}};
    for (Rank holder : shard.holders) {
      if (DigestOf(digests, holder, shard.layout) == DigestOf(recorded, holder, shard.layout))
        verdict.expected = holder;
      else
        verdict.odd.push_back(holder);
    }
    if (!verdict.odd.empty()) return verdict;
  }
  return {};
}

void ControllerCore::OnMismatch(const DigestVerdict& verdict) {
  const std::string where = " at step " + choice_.step->ToString();
  const std::string text =
      "layout " + std::to_string(verdict.layout) +
      (verdict.odd.back() == verdict.expected
           ? ": rank " + verdict.expected.ToString() + " holds other state than its snapshot" + where
           : ": ranks " + verdict.expected.ToString() + " and " + verdict.odd.back().ToString() +
                 " hold different state" + where);
  if (!ever_ran_) return End(kExitStartup, text + ": replicas must start equal (same seed, same initialisation)");
  if (Adopts(verdict.expected)) DoubtHeld(verdict.expected);  // nobody untouched is left to tell
  for (Rank rank : verdict.odd) {
    if (Adopts(rank)) DoubtHeld(rank);
    // Untouched copies that differ: nothing tells which is right, so none is an offer any more, and none is dumped.
    At(rank).needs_repair = true;
    At(rank).damaged_keys.clear();
    if (verdict.attributed && ++At(rank).digest_mismatches >= policy_.repairs_per_rank)
      Kill(rank, "its repaired state differed again: " + text);
    RecordFault(rank, FaultKind::kDigestMismatch, text, now_);
  }
  EnterLock(text);
}

DigestVerdict ControllerCore::Verdict() const {
  const bool from_snapshot = phase_ == Phase::kVerify && Reloads() && ever_ran_ && reload_snapshot_;
  if (from_snapshot && snapshots_.newest() == *choice_.step)
    return CompareWithRecord(replicas_, digests_, snapshots_.recorded());
  std::set<Rank> repaired;
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].needs_repair) repaired.insert(Rank(static_cast<int32_t>(r)));
  return CompareDigests(replicas_, digests_, repaired);
}

void ControllerCore::AfterVerify() {
  if (const DigestVerdict verdict = Verdict(); !verdict.equal) return OnMismatch(verdict);
  for (Member& member : members_) {
    member.fresh = false;
    member.needs_repair = false;
    member.damaged_keys.clear();
    member.digest_mismatches = 0;
    member.held.reset();
  }
  SetPhase(Phase::kRollback, "digests agree");
  const Duration limit = phase_times_.Limit(Phase::kRollback, policy_.HandlerLimit());
  Order(LiveRanks(), limit, [&](Rank rank) {
    return PhaseOrder{.phase = Phase::kRollback,
                      .step = *choice_.step,
                      .rung = decision_.rung,
                      .limit = limit,
                      .partners = replicas_.Partners(rank)};
  });
}

void ControllerCore::Finish() { AskForDigests(SaveState::kFinalVerify); }

void ControllerCore::AskForDigests(SaveState state) {
  save_after_verify_ = save_ == SaveState::kGathering;
  save_ = state;
  digests_.assign(members_.size(), {});
  save_deadline_ = now_ + policy_.RepairLimit() + policy_.AnswerSlack();
  for (Rank rank : LiveRanks())
    Ask(rank, PhaseOrder{.phase = Phase::kVerify, .step = *choice_.step, .limit = policy_.RepairLimit()});
}

void ControllerCore::OnDigests(Rank rank, const PhaseDone& done) {
  Member& member = At(rank);
  if (!member.waiting || done.phase != Phase::kVerify) return;
  SetWaiting(member, false);
  if (done.code != StatusCode::kOk) return Fault(rank, FaultKind::kHandlerFailed, done.text, now_);
  digests_[static_cast<size_t>(rank.value())] = done.digests;
  if (!NobodyWaits()) return;
  const bool final = save_ == SaveState::kFinalVerify;
  save_ = SaveState::kNone;
  save_deadline_ = TimePoint::Max();
  if (const DigestVerdict verdict = Verdict(); !verdict.equal) return OnMismatch(verdict);
  if (!final) {
    verified_step_ = *choice_.step;
    if (save_after_verify_) save_ = SaveState::kGathering;
    return MaybeSave();
  }
  uint64_t digest = 0;
  for (const ReplicaMap::Shard& shard : replicas_.shards())
    digest = Fold(digest, digests_[static_cast<size_t>(shard.holders.front().value())][shard.layout]);
  final_digest_ = digest;
  End(kExitSuccess, "all ranks finished");
}

}  // namespace kintsugi::core
