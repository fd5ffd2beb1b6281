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

}  // namespace

void ControllerCore::OnMismatch(const DigestVerdict& verdict) {
  const std::string text = ToString(verdict, *choice_.step);
  if (!ever_ran_) return End(kExitStartup, text + ": replicas must start equal (same seed, same initialisation)");
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

// How each rank came to what it holds.
std::vector<Copy> ControllerCore::Copies() const {
  std::vector<Copy> copies;
  copies.reserve(members_.size());
  for (size_t r = 0; r < members_.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    const Member& member = members_[r];
    Copy copy = Copy::kUntouched;
    if (Adopts(rank))
      copy = member.held && member.held->clean ? Copy::kAdopted : Copy::kOfCrashed;
    else if (phase_ == Phase::kDump)  // of those that are to write
      copy = member.life == Life::kReady && !member.fresh && !member.needs_repair ? Copy::kUntouched : Copy::kAbsent;
    else if (member.needs_repair)
      copy = Copy::kStreamed;
    copies.push_back(copy);
  }
  return copies;
}

// Where comparing was asked for, what was recorded of this very step is a third opinion, and without one a copy that
// outlived its process is believed no less than its replica; elsewhere the rank that still lives is.
DigestVerdict ControllerCore::Verdict() const {
  const std::vector<Copy> copies = Copies();
  const bool compares = policy_.verify_every > 0;
  const bool from_snapshot = phase_ == Phase::kVerify && Reloads() && ever_ran_ && reload_snapshot_;
  if ((compares || from_snapshot) && snapshots_.table().newest() == *choice_.step && choice_.step->value() > 0)
    return CompareWithRecord(replicas_, digests_, snapshots_.table().recorded(), copies);
  if (!agreed_.empty() && agreed_step_ == *choice_.step) return CompareWithRecord(replicas_, digests_, agreed_, copies);
  return CompareDigests(replicas_, digests_, copies, compares);
}

void ControllerCore::Agreed() {
  if (policy_.verify_every == 0) return;
  agreed_step_ = *choice_.step;
  agreed_ = digests_;
}

void ControllerCore::AfterVerify() {
  if (const DigestVerdict verdict = Verdict(); !verdict.equal) return OnMismatch(verdict);
  for (Member& member : members_) {
    member.fresh = false;
    member.left_behind = false;
    member.needs_repair = false;
    member.damaged_keys.clear();
    member.digest_mismatches = 0;
    member.held.reset();
  }
  Agreed();
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
  SetSave(state);
  asked_step_ = *choice_.step;
  digests_.assign(members_.size(), {});
  save_deadline_ = now_ + policy_.RepairLimit() + policy_.AnswerSlack();
  const std::vector<Copy> copies = Copies();
  for (Rank rank : LiveRanks())
    if (copies[static_cast<size_t>(rank.value())] != Copy::kAbsent)
      Ask(rank, PhaseOrder{.phase = Phase::kVerify, .step = *choice_.step, .limit = policy_.RepairLimit()});
}

void ControllerCore::OnDigests(Rank rank, const PhaseDone& done) {
  Member& member = At(rank);
  if (!member.waiting || done.phase != Phase::kVerify) return;
  members_.SetWaiting(member, false);
  if (done.code != StatusCode::kOk) return Fault(rank, FaultKind::kHandlerFailed, done.text, now_);
  digests_[static_cast<size_t>(rank.value())] = done.digests;
  if (!NobodyWaits()) return;
  choice_ = {asked_step_, StepReason::kUpdateBegun};  // a gap that healed meanwhile was an incident of its own
  const bool final = save_ == SaveState::kFinalVerify, compared_for_gasp = save_ == SaveState::kComparing;
  SetSave(SaveState::kNone);
  save_deadline_ = TimePoint::Max();
  if (const DigestVerdict verdict = Verdict(); !verdict.equal) return OnMismatch(verdict);
  if (compared_for_gasp) return WriteGasp();
  Agreed();
  if (!final) {
    verified_step_ = *choice_.step;
    if (save_after_verify_) SetSave(SaveState::kGathering);
    return MaybeSave();
  }
  uint64_t digest = 0;
  for (const ReplicaMap::Shard& shard : replicas_.shards())
    digest = Fold(digest, digests_[static_cast<size_t>(shard.holders.front().value())][shard.layout]);
  final_digest_ = digest;
  End(kExitSuccess, "all ranks finished");
}

}  // namespace kintsugi::core
