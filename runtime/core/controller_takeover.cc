// A controller that takes a run over knows nothing but its policy: agents and launchers say where the run stands. While
// it listens (CONFIRM) it orders nothing. Where every rank turns out to be in its loop, in one generation, the run was
// never disturbed and goes on as it is; anything else is an incident, and goes to LOCK.
//
// Also here: the consent that a new generation needs, whoever began the run.
#include <algorithm>
#include <set>

#include "runtime/base/check.h"
#include "runtime/core/controller_core.h"

namespace kintsugi::core {
namespace {

// Replacements of a rank whose earlier lives this controller has not seen must be newer than all of these.
Incarnation FirstOfTerm(Term term) { return Incarnation(term.number << 20); }

}  // namespace

void ControllerCore::BeginTakeover() {
  phase_ = Phase::kConfirm;
  taking_over_ = true;
  checkpoints_.Begin(policy_.checkpoints);
  deadline_ = now_ + policy_.ConfirmWindow();
  for (Member& member : members_) {
    member.fresh = true;
    member.unconfirmed = Incarnation();
    member.given_up_at = now_;
  }
}

// What it says of itself, before it has a place among the members.
void ControllerCore::TakeStanding(Member& member, const Header& header, const JoinRequest& join) {
  member.standing = join.standing;
  member.joined_generation = header.generation;
  member.fresh = join.standing == Standing::kNew;
  members_.SetResumed(member, join.standing == Standing::kRunning);
  generation_ = std::max(generation_, header.generation);
}

void ControllerCore::OnFound(const ProcessFound& found) {
  if (!taking_over_ || !InWorld(found.rank)) return;
  Member& member = At(found.rank);
  if (found.incarnation < member.incarnation ||
      (found.incarnation == member.incarnation && member.life != Life::kAbsent))
    return;
  member.incarnation = found.incarnation;
  members_.SetLife(member, Life::kStarting);
  member.unconfirmed.reset();
  if (!member.knocks)
    member.unconfirmed = found.incarnation;  // it may be in the run, and have promised itself to another
}

// Once everybody has spoken who can: nobody waits for a process that its launcher knows to have ended, nor for one that
// waits for us.
void ControllerCore::MaybeTakenOver() {
  if (taking_over_ && std::all_of(members_.begin(), members_.end(), [this](const Member& m) {
        return m.life == Life::kReady || (m.knocks && (m.life == Life::kStarting || !policy_.can_spawn)) ||
               (m.life != Life::kStarting && !m.unconfirmed);
      }))
    TakenOver();
}

void ControllerCore::TakenOver() {
  taking_over_ = false;
  deadline_ = TimePoint::Max();
  ever_ran_ = policy_.began || std::any_of(members_.begin(), members_.end(), [](const Member& m) {
                return m.life == Life::kReady && m.standing >= Standing::kLocked;
              });
  if (stop_requested_ && !ever_ran_) return RequestSave(true);  // which ends it
  // Before the run ever went everybody starts from what it registered.
  for (Member& member : members_) member.needs_repair = member.needs_repair || (ever_ran_ && member.fresh);
  if (const Status mapped = MapReplicas(); !mapped.ok())
    out_.push_back(Notice{Rank(0), "the replica map cannot be rebuilt: " + mapped.message()});
  const bool undisturbed =
      members_.all_ready() && replicas_known_ && !incident_ &&
      std::all_of(members_.begin(), members_.end(), [this](const Member& m) {
        return m.standing == Standing::kRunning && m.joined_generation == generation_ && m.connected;
      });
  if (undisturbed) {
    SetPhase(Phase::kRunning, "term " + std::to_string(term_.number) + ": nothing else is wrong");
    for (Member& member : members_) member.left_behind = false;
    KINTSUGI_CHECK(members_.unresumed() == 0, "a run that goes on untouched has ranks outside of their loops");
    WatchForHangs();
    ArmSnapshot();
    MaybeFinish();
    return BeginRequestedSave();
  }
  if (!incident_) {
    OpenIncident(Rank(0), FaultKind::kControllerLost, "the controller died within an incident", now_);
    incident_->ranks.clear();
  }
  std::vector<Rank> missing;
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].life == Life::kAbsent) missing.push_back(Rank(static_cast<int32_t>(r)));
  for (Rank rank : missing) {
    Member& member = At(rank);
    member.incarnation = std::max(member.incarnation, FirstOfTerm(term_));
    MarkDead(rank);
    member.needs_repair = ever_ran_;
    RecordFault(rank, FaultKind::kSilence, "neither it nor its launcher came to the new controller", now_);
    member.respawns = 0;  // it may have been on its way, for an earlier loss
  }
  EnterLock(missing.empty() ? "the controller died within an incident" : "ranks are lost with the controller");
}

// What ranks held that were lost with the controller before: the other members of their groups know. Where a whole
// group is lost nobody does; then each of its ranks counts as the only holder of something, so that nothing is taken
// for complete that may not be.
void ControllerCore::ClaimForLost(std::map<Rank, std::map<int, GroupClaim>>* claims) const {
  std::set<int> layouts;
  for (const Member& member : members_)
    for (const auto& [layout, claim] : member.layouts) {
      layouts.insert(layout);
      for (Rank rank : claim.ranks)
        if (InWorld(rank) && !members_.At(rank).registered) (*claims)[rank].emplace(layout, claim);
    }
  for (size_t r = 0; r < members_.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    if (members_[r].registered) continue;
    for (int layout : layouts) (*claims)[rank].emplace(layout, GroupClaim{{rank}, 1});
  }
}

// ---- consent -------------------------------------------------------------------------------------------------------

void ControllerCore::AwaitMajority() {
  if (majority_.Await(now_))
    out_.push_back(Notice{Rank(0), "no majority: the ranks that answer wait for the others, " +
                                       std::to_string(static_cast<int>(ToMilliseconds(policy_.consent_wait) / 1000)) +
                                       " s at most; then they save and leave"});
  deadline_ = majority_.until();
  // Who was found at the take-over and has not come may hang: once its launcher has ended it, and it is ours, it
  // counts.
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].life == Life::kStarting && members_[r].unconfirmed == members_[r].incarnation)
      Kill(Rank(static_cast<int32_t>(r)), "it did not come to the new controller");
  AskWitnessWhereItDecides();
}

// Nothing waits for its answer that would not wait anyway.
void ControllerCore::AskWitnessWhereItDecides() {
  if (now_ < deadline_ && majority_.Count(members_) == Consent::kAskWitness) out_.push_back(AskWitness{});
}

// A process was seen to have ended, ranks came back, or the witness has spoken.
void ControllerCore::ReconsiderMajority() {
  if (!majority_.awaited() || phase_ != Phase::kLock || !NobodyWaits()) return;
  majority_.Has(members_, now_) ? AfterLock() : AskWitnessWhereItDecides();
}

// An attempt that rests on the witness's word ends with it, before anything else is done: what was decided since would
// be decided by two.
void ControllerCore::CheckWord() {
  if (majority_.LostWord(members_, now_)) EnterLock("the witness's word is not ours any more");
}

}  // namespace kintsugi::core
