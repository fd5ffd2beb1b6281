#include "runtime/core/takeover.h"

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/check.h"

namespace kintsugi::core {

void RunTakeover::Begin() {
  KINTSUGI_CHECK(board_.policy.takes_over, "a run is taken over that this controller begins itself");
  board_.BeginIn(Phase::kConfirm);
  board_.course.listening = true;
  checkpoints_.Begin(board_.policy.checkpoints);
  board_.SetDeadline(board_.now() + board_.policy.ConfirmWindow());
  for (Member& member : board_.members) {
    member.trust.Find(true);
    member.unconfirmed = Incarnation();
    member.given_up_at = board_.now();
  }
}

void RunTakeover::OnFound(const ProcessFound& found) {
  if (!listening() || !board_.members.Has(found.rank)) return;
  Member& member = board_.At(found.rank);
  member.found = true;
  if (found.incarnation < member.incarnation ||
      (found.incarnation == member.incarnation && member.life != Life::kAbsent))
    return Reconsider();
  member.incarnation = found.incarnation;
  board_.members.SetLife(member, Life::kStarting);
  member.unconfirmed.reset();
  if (!member.held_back)
    member.unconfirmed = found.incarnation;  // it may be in the run, and have promised itself to another
}

void RunTakeover::HoldBack(Rank rank) {
  KINTSUGI_CHECK(listening(), "rank " + rank.ToString() + " is left waiting by a controller that knows");
  Member& member = board_.At(rank);
  member.held_back = true;
  if (member.life == Life::kStarting) member.unconfirmed.reset();  // found, and new: the one before it has ended
  Reconsider();
}

void RunTakeover::TakeStanding(Rank rank, const Header& header, const JoinRequest& join) {
  KINTSUGI_CHECK(listening(), "rank " + rank.ToString() + " says where it stands to a controller that knows");
  Member& member = board_.At(rank);
  member.standing = join.standing;
  member.joined_generation = header.generation;
  member.trust.Find(join.standing == Standing::kNew);
  member.trust.Adopt(join.joined_before);  // the controller before may have told it to
  board_.members.SetResumed(member, join.standing == Standing::kRunning);
  board_.RaiseGeneration(std::max(board_.generation(), header.generation));
  TakeCrew(rank, join);
}

// The newest one in which anybody went on: an attempt at another one that did not bring the run back is of no account.
void RunTakeover::TakeCrew(Rank rank, const JoinRequest& join) {
  if (join.crew_since <= crew_since_) return;
  const Result<Crew> crew = Crew::Of(board_.policy.world_size, join.crew);
  if (!crew.ok()) return board_.Note(rank, "what it says of the crew is left: " + crew.status().message());
  crew_since_ = join.crew_since;
  board_.members.Change(*crew);
  board_.members.Keep();
}

// Nobody is waited for who waits for us, nor a process that its launcher knows to have ended. One that is here without
// the run's state may have been about to map it: what its launcher holds is told with what it has found.
bool RunTakeover::HasSpoken(const Member& member) const {
  const Policy& policy = board_.policy;
  if (member.life == Life::kReady) return member.found || !member.trust.fresh() || !policy.adopts;
  if (member.held_back && (member.life == Life::kStarting || !policy.can_spawn)) return true;
  return member.life != Life::kStarting && !member.unconfirmed;
}

// Once everybody has spoken who can.
void RunTakeover::Reconsider() {
  if (listening() && std::all_of(board_.members.begin(), board_.members.end(),
                                 [this](const Member& member) { return HasSpoken(member); }))
    Conclude();
}

bool RunTakeover::IsUndisturbed() const {
  return board_.members.all_ready() && board_.registered.mapped() && !board_.incident.open() &&
         std::all_of(board_.members.begin(), board_.members.end(), [this](const Member& m) {
           return m.standing == Standing::kRunning && m.joined_generation == board_.generation() && m.connected;
         });
}

void RunTakeover::Conclude() {
  KINTSUGI_CHECK(listening() && board_.phase() == Phase::kConfirm, "a run is taken over twice");
  board_.course.listening = false;
  board_.SetDeadline(TimePoint::Max());
  TellCrew();
  // Memory is held of processes alone that were in their loops.
  board_.course.ever_ran =
      board_.policy.began || std::any_of(board_.members.begin(), board_.members.end(), [](const Member& m) {
        return m.trust.held() || (m.life == Life::kReady && m.standing >= Standing::kLocked);
      });
  const bool ever_ran = board_.course.ever_ran;
  if (board_.course.leaving && !ever_ran) return saves_.Request(true);  // which ends it
  // Before the run ever went everybody starts from what it registered.
  for (Member& member : board_.members)
    if (ever_ran && member.trust.fresh()) member.trust.Tear();
  recovery_.MapWhatIsKnown();
  if (!IsUndisturbed()) return GiveUpAbsent();
  board_.SetPhase(Phase::kRunning, "term " + std::to_string(board_.term.number) + ": nothing else is wrong");
  for (Member& member : board_.members) member.left_behind = member.forgotten = false;
  KINTSUGI_CHECK(board_.members.unresumed() == 0, "a run that goes on untouched has ranks outside of their loops");
  recovery_.GoOn();
}

// Who took no part any more when the controller before it went may not have heard that.
void RunTakeover::TellCrew() {
  const Crew& crew = board_.members.crew();
  if (crew.whole()) return;
  for (size_t r = 0; r < board_.members.seats(); ++r)
    if (const Rank rank(static_cast<int32_t>(r)); !crew.Has(rank)) processes_.Dismiss(rank);
  board_.Act(CrewChanged{crew.ranks(), {}, board_.course.resume_step});
}

void RunTakeover::GiveUpAbsent() {
  const std::string within = "the controller died within an incident";
  if (!board_.incident.open()) faults_.OpenBlamingNobody(FaultKind::kControllerLost, within, board_.now());
  const std::vector<Rank> absent = board_.members.Where([](const Member& m) { return m.life == Life::kAbsent; });
  for (Rank rank : absent) {
    Member& member = board_.At(rank);
    member.incarnation =
        std::max(member.incarnation, processes_.FirstOfTerm());  // its earlier lives nobody here has seen
    processes_.MarkDead(rank);
    faults_.Record(rank, FaultKind::kSilence, "neither it nor its launcher came to the new controller", board_.now());
    member.respawns = 0;  // it may have been on its way, for an earlier loss
  }
  faults_.Lock(absent.empty() ? within : "ranks are lost with the controller");
}

}  // namespace kintsugi::core
