// VERIFY: members of a replica group hold equal state, proved by digests, before anyone goes on; and once more at the end.
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

}  // namespace

std::optional<std::pair<const ReplicaMap::Shard*, Rank>> ControllerCore::FirstMismatch() {
  for (const ReplicaMap::Shard& shard : replicas_.shards())
    for (Rank holder : shard.holders)
      // A rank without a state service reports nothing: it then has nothing to compare.
      if (digests_[{shard.layout, holder}] != digests_[{shard.layout, shard.holders.front()}])
        return std::pair{&shard, holder};
  return std::nullopt;
}

void ControllerCore::OnMismatch(const ReplicaMap::Shard& shard, Rank odd) {
  const std::string text = "layout " + std::to_string(shard.layout) + ": ranks " + shard.holders.front().ToString() +
                           " and " + odd.ToString() + " hold different state at step " + choice_.step->ToString();
  if (!ever_ran_) return End(kExitStartup, text + ": replicas must start equal (same seed, same initialisation)");
  const auto repaired = std::find_if(shard.holders.begin(), shard.holders.end(),
                                     [this](Rank holder) { return At(holder).needs_repair; });
  Rank blamed = odd;
  if (repaired != shard.holders.end()) {
    blamed = *repaired;
    At(blamed).damaged_keys.clear();
    if (++At(blamed).digest_mismatches >= 2) Kill(blamed, "its repaired state differed twice: " + text);
  } else {
    // Untouched copies differ and nothing tells which is right: none is an offer any more, and none is dumped as good.
    for (Rank holder : shard.holders) At(holder).needs_repair = true, At(holder).damaged_keys.clear();
  }
  Fault(blamed, FaultKind::kDigestMismatch, text, now_);
}

void ControllerCore::AfterVerify() {
  if (const auto mismatch = FirstMismatch()) return OnMismatch(*mismatch->first, mismatch->second);
  for (Member& member : members_) {
    member.fresh = false;
    member.needs_repair = false;
    member.damaged_keys.clear();
    member.digest_mismatches = 0;
  }
  SetPhase(Phase::kRollback, "digests agree");
  Order(LiveRanks(), policy_.HandlerLimit(), [&](Rank rank) {
    return PhaseOrder{.phase = Phase::kRollback,
                      .step = *choice_.step,
                      .rung = decision_.rung,
                      .limit = policy_.HandlerLimit(),
                      .partners = replicas_.Partners(rank)};
  });
}

void ControllerCore::Finish() {
  save_ = SaveState::kFinalVerify;
  digests_.clear();
  const PhaseOrder order{.phase = Phase::kVerify, .step = *choice_.step, .limit = policy_.RepairLimit()};
  Order(LiveRanks(), order.limit, [&](Rank) { return order; });
}

void ControllerCore::OnFinalDigests(Rank rank, const PhaseDone& done) {
  Member& member = At(rank);
  if (!member.waiting || done.phase != Phase::kVerify) return;
  member.waiting = false;
  if (done.code != StatusCode::kOk) return Fault(rank, FaultKind::kHandlerFailed, done.text, now_);
  for (const auto& [layout, digest] : done.digests) digests_[{layout, rank}] = digest;
  if (!NobodyWaits()) return;
  save_ = SaveState::kNone;
  if (const auto mismatch = FirstMismatch()) return OnMismatch(*mismatch->first, mismatch->second);
  uint64_t digest = 0;
  for (const ReplicaMap::Shard& shard : replicas_.shards())
    digest = Fold(digest, digests_[{shard.layout, shard.holders.front()}]);
  final_digest_ = digest;
  End(kExitSuccess, "all ranks finished");
}

}  // namespace kintsugi::core
