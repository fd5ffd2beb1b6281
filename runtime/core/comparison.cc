#include "runtime/core/comparison.h"

#include <algorithm>
#include <string>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// One more number folded into a digest of digests (the finalizer of SplitMix64).
uint64_t FoldIn(uint64_t digest, uint64_t next) {
  uint64_t z = (digest ^ next) + 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

void Comparison::Take(Rank rank, const PhaseDone& done) {
  const auto r = static_cast<size_t>(rank.value());
  KINTSUGI_CHECK(r < digests_.size(), "a digest of rank " + rank.ToString() + " that nobody asked for");
  digests_[r] = done.digests;
}

void Comparison::Ask(SaveState state) {
  KINTSUGI_CHECK(Compares(state), "digests are asked for in " + std::string(SaveStateName(state)));
  board_.SetSave(state);
  asked_step_ = *board_.plan.choice.step;
  Begin();
  board_.SetSaveDeadline(board_.now() + board_.policy.RepairLimit() + board_.policy.AnswerSlack());
  const std::vector<Copy> copies = Copies();
  for (Rank rank : board_.LiveRanks())
    if (copies[static_cast<size_t>(rank.value())] != Copy::kAbsent)
      board_.Ask(rank, PhaseOrder{.phase = Phase::kVerify, .step = asked_step_, .limit = board_.policy.RepairLimit()});
}

bool Comparison::OnAnswer(Rank rank, const PhaseDone& done) {
  Member& member = board_.At(rank);
  if (!member.waiting || done.phase != Phase::kVerify) return false;
  board_.members.SetWaiting(member, false);
  if (done.code != StatusCode::kOk) {
    faults_.Fault(rank, FaultKind::kHandlerFailed, done.text, board_.now());
    return false;
  }
  Take(rank, done);
  if (!board_.NobodyWaits()) return false;
  // A gap that healed meanwhile was an incident of its own.
  board_.plan.choice = {asked_step_, StepReason::kUpdateBegun};
  board_.SetSave(SaveState::kNone);
  board_.SetSaveDeadline(TimePoint::Max());
  return true;
}

std::vector<Copy> Comparison::Copies() const {
  // Where comparing was asked for, a copy that was adopted is as good as any once the run goes on.
  const bool by_origin = board_.policy.verify_every == 0 || !board_.InTraining();
  std::vector<Copy> copies;
  copies.assign(board_.members.seats(), Copy::kAbsent);
  for (Rank rank : board_.members.ranks()) {
    const Member& member = board_.At(rank);
    Copy& copy = copies[static_cast<size_t>(rank.value())];
    copy = Copy::kUntouched;
    if (by_origin && board_.plan.Adopts(rank))
      copy = member.trust.held() && member.trust.held()->clean ? Copy::kAdopted : Copy::kOfCrashed;
    else if (board_.phase() == Phase::kDump)  // of those that are to write
      copy = member.life == Life::kReady && !member.trust.fresh() && !member.trust.needs_repair() ? Copy::kUntouched
                                                                                                  : Copy::kAbsent;
    else if (member.trust.needs_repair())
      copy = Copy::kStreamed;
  }
  return copies;
}

// Where comparing was asked for, what was recorded of this very step is a third opinion, and without one a copy that
// outlived its process is believed no less than its replica; elsewhere the rank that still lives is.
DigestVerdict Comparison::Verdict() const {
  KINTSUGI_CHECK(board_.plan.choice.step && digests_.size() == board_.members.seats(),
                 "replicas are compared of which nobody was asked");
  const Step step = *board_.plan.choice.step;
  const std::vector<Copy> copies = Copies();
  const bool compares = board_.policy.verify_every > 0;
  // What was recorded is of state that was cut otherwise, and of what is there now nothing came from another copy.
  if (board_.plan.relayout) return CompareDigests(board_.replicas(), digests_, {});
  const bool from_snapshot =
      board_.phase() == Phase::kVerify && board_.course.ever_ran && board_.plan.ReloadsSnapshot();
  // What was recorded is over what partners mirrored, who are others in another crew.
  const bool same_crew = board_.members.crew() == board_.members.kept();
  if (same_crew && (compares || from_snapshot) && snapshots_.table().newest() == step && step.value() > 0)
    return CompareWithRecord(board_.replicas(), digests_, snapshots_.table().recorded(), copies);
  if (!agreed_.empty() && agreed_step_ == step) return CompareWithRecord(board_.replicas(), digests_, agreed_, copies);
  return CompareDigests(board_.replicas(), digests_, copies, compares);
}

bool Comparison::Agree() {
  const DigestVerdict verdict = Verdict();
  if (!verdict.equal) OnMismatch(verdict);
  return verdict.equal;
}

void Comparison::OnMismatch(const DigestVerdict& verdict) {
  const std::string text = ToString(verdict, *board_.plan.choice.step);
  if (!board_.course.ever_ran)
    return end_.End(kExitStartup, text + ": replicas must start equal (same seed, same initialisation)");
  // Nothing of what was registered before was written: all of that is as good as it was.
  if (board_.plan.relayout) return faults_.Lock("state that was cut anew: " + text);
  KINTSUGI_CHECK(!verdict.odd.empty(), "replicas differ, and none is in doubt: " + text);
  for (Rank rank : verdict.odd) {
    Member& member = board_.At(rank);
    if (board_.plan.Adopts(rank)) member.trust.DoubtHeld();
    // Untouched copies that differ: nothing tells which is right, so none is an offer any more, and none is dumped.
    member.trust.Tear();
    if (verdict.attributed && member.trust.CountMismatch() >= board_.policy.repairs_per_rank)
      processes_.Kill(rank, "its repaired state differed again: " + text);
    if (verdict.attributed) NoteWhatItReached(rank);
    faults_.Record(rank, FaultKind::kDigestMismatch, text, board_.now());
  }
  faults_.Lock(text);
}

// Between steps nobody knows since when a copy is wrong; in an incident it is the repair that is. What turns wrong at the
// very step that all agreed on has given nothing to anybody.
void Comparison::NoteWhatItReached(Rank rank) {
  const Step step = *board_.plan.choice.step;
  if (board_.phase() != Phase::kRunning || agreed_step_ == step) return;
  inexact_.Note(rank, "its copy differed from the others' at step " + step.ToString() +
                          "; what it gave to them since step " + agreed_step_.ToString() +
                          " may have been of that copy");
}

void Comparison::Remember() {
  if (board_.policy.verify_every == 0) return;
  agreed_step_ = *board_.plan.choice.step;
  agreed_ = digests_;
}

void Comparison::ForgetAfter(Step step) {
  if (agreed_step_ > step) agreed_step_ = Step(), agreed_.clear();
}

bool Comparison::HasRecord() const {
  const Step step = *board_.plan.choice.step;
  return board_.policy.verify_every > 0 && (agreed_step_ == step || snapshots_.table().newest() == step);
}

uint64_t Comparison::Fold() const {
  uint64_t digest = 0;
  for (const ReplicaMap::Shard& shard : board_.replicas().shards()) {
    const auto& of_rank = digests_[static_cast<size_t>(shard.holders.front().value())];
    const auto found = of_rank.find(shard.layout);
    digest = FoldIn(digest, found == of_rank.end() ? 0 : found->second);
  }
  return digest;
}

}  // namespace kintsugi::core
