#include "runtime/core/attendance.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

// Of the program's own: it would leave like this again.
bool IsMistake(const ProcessExited& exited) { return exited.left && exited.code != 0; }

std::string WhyNotBegun(const ProcessExited& exited, bool was_ready) {
  const std::string why = std::string("before ") + (was_ready ? "the run began" : "it was ready") + ", rank " +
                          exited.rank.ToString() + " " + exited.cause;
  // Who leaves content may have come to its end without joining; any other end speaks for itself.
  const bool content = exited.left && exited.code == 0;
  return why + (content ? ": does the program call Agent::Join and Agent::Run?" : "");
}

}  // namespace

Attendance::Attendance(Machines& below, Halt& halt, RunTakeover& takeover)
    : board_(below.board),
      processes_(below.processes),
      end_(below.end),
      faults_(below.faults),
      rounds_(below.rounds),
      snapshots_(below.snapshots),
      survey_(below.survey),
      scaling_(below.scaling),
      saves_(below.saves),
      rescue_(below.rescue),
      recovery_(below.recovery),
      halt_(halt),
      takeover_(takeover),
      repeats_(below.repeats) {}

// ---- who comes ---------------------------------------------------------------------------------------------------

bool Attendance::IsUnnamed(const Header& header) const {
  return !board_.policy.can_spawn && header.incarnation.value() == 0;
}

std::string Attendance::WhyRefused(const Header& header, const JoinRequest& join) const {
  const Rank rank = header.rank;
  const Member& member = board_.At(rank);
  const bool unnamed = IsUnnamed(header);
  // Without a launcher a rank that was given up is absent until another process comes.
  const bool given_up = member.life == Life::kDead || member.life == Life::kAbsent;
  if (!unnamed && (header.incarnation < member.incarnation || (header.incarnation == member.incarnation && given_up)))
    return "incarnation " + header.incarnation.ToString() + " of rank " + rank.ToString() +
           " was given up; the living one is " + member.incarnation.ToString();
  if (!takeover_.listening() && !board_.members.InRun(rank) && !scaling_.IsComing(rank)) return TakesNoPart(rank);
  if (IsHeldBack(join)) return "";
  if (board_.policy.can_spawn && header.incarnation > member.incarnation && !takeover_.listening())
    return "incarnation " + header.incarnation.ToString() + " was not started by this launcher";
  if (!unnamed && member.connected && join.pid != member.pid)
    return "process " + std::to_string(member.pid) + " is rank " + rank.ToString() + " already, process " +
           std::to_string(join.pid) + " cannot be it too: join from one process of a rank only";
  return "";
}

void Attendance::Refuse(const Header& header, const std::string& why) {
  board_.Act(Send{{board_.term, board_.generation(), header.rank, header.incarnation},
                  JoinReply{.accepted = false, .text = why}});
  board_.Drop(header.rank, why);
}

void Attendance::OnJoin(const Header& header, const JoinRequest& join) {
  const Rank rank = header.rank;
  const Member& member = board_.At(rank);
  // It obeys a newer controller: a controller that sees this leaves (the driver closes what is not answered).
  if (header.term > board_.term)
    return board_.Drop(rank, "its controller is of term " + std::to_string(header.term.number));
  if (board_.phase() == Phase::kEnded) {
    if (header.incarnation == member.incarnation && member.life == Life::kReady) end_.TellAgain(rank);
    return Refuse(header, "the run has ended");
  }
  if (const std::string why = WhyRefused(header, join); !why.empty()) return Refuse(header, why);
  if (IsHeldBack(join)) return takeover_.HoldBack(rank);
  // One that names no incarnation is told the one it gets.
  const Incarnation incarnation = IsUnnamed(header) ? member.incarnation.Next() : header.incarnation;
  if (incarnation > member.incarnation)
    if (const std::string why = BeginLife(rank, incarnation); !why.empty()) return Refuse(header, why);
  if (!takeover_.listening() && member.life == Life::kStarting && join.joined_before &&
      join.standing != Standing::kNew && board_.course.ever_ran && board_.policy.takes_over)
    return faults_.GiveUp({rank}, FaultKind::kConnectionLost, board_.now(), "it came too late to the new controller");
  Admit(header, join);
}

// A newer life than the one that is known. What comes of that may be the end of the run, or of the rank's part in it: why.
std::string Attendance::BeginLife(Rank rank, Incarnation incarnation) {
  Member& member = board_.At(rank);
  // A second live incarnation is a fault of the first.
  if (member.life == Life::kReady) {
    processes_.MarkDead(rank);
    faults_.Fault(rank, FaultKind::kProcessExit, "a newer process of the rank joined", board_.now());
    if (board_.phase() == Phase::kEnded) return "the run has ended";
    if (!board_.members.InRun(rank)) return TakesNoPart(rank);
  }
  member.incarnation = incarnation;
  board_.members.SetLife(member, Life::kStarting);
  return "";
}

std::string Attendance::TakesNoPart(Rank rank) const {
  return "rank " + rank.ToString() + " takes no part any more: the run went on with " +
         board_.members.kept().ToString();
}

void Attendance::Admit(const Header& header, const JoinRequest& join) {
  const Rank rank = header.rank;
  Member& member = board_.At(rank);
  KINTSUGI_CHECK(member.life == Life::kStarting || member.life == Life::kReady,
                 "rank " + rank.ToString() + " is let in, and has no life");
  processes_.SeeJoin(rank);
  member.pid = join.pid;
  if (std::exchange(member.host, join.host) != join.host) rounds_.ForgetPartners();
  member.watched_by_launcher = join.watched_by_launcher;
  if (takeover_.listening()) takeover_.TakeStanding(rank, header, join);
  JoinReply reply;
  reply.replacement = board_.course.ever_ran;
  reply.resume_step = board_.policy.resume_step;
  reply.resumes = !board_.policy.resume_directory.empty();
  reply.save_every = board_.policy.save_every;
  reply.verify_every = board_.policy.verify_every;
  reply.injections = member.injections;
  reply.crew = scaling_.CrewFor(rank).Told();
  board_.SendTo(rank, std::move(reply));
  TellAgain(rank);
  MaybeHeal();
}

// What was sent while the connection was down is lost; every order may be given twice.
void Attendance::TellAgain(Rank rank) {
  const Member& member = board_.At(rank);
  if (member.life != Life::kReady || !member.takes_part || takeover_.listening()) return;
  if (member.waiting && member.order) board_.SendTo(rank, *member.order);
  if (board_.InTraining() && !member.resumed)
    board_.SendTo(rank, ResumeOrder{board_.course.resume_step, rounds_.table().newest()});
  saves_.TellAgain(rank);
  snapshots_.TellAgain(rank);
}

// Nothing but connections was lost, and all are back: no new generation.
void Attendance::MaybeHeal() {
  if (board_.phase() != Phase::kConfirm || takeover_.listening() || board_.incident.evidence() != Evidence::kLost)
    return;
  if (board_.members.lost() > 0) return board_.SetDeadline(std::max(board_.deadline(), processes_.ReturnsUntil()));
  if (!std::all_of(board_.members.begin(), board_.members.end(), [](const Member& m) { return m.connected; })) return;
  board_.SetPhase(Phase::kRunning, "the connection is back");
  board_.incident.record().rung = Rung::kResume;
  board_.incident.record().resumed_at = board_.now();
  board_.CloseIncident();
  recovery_.GoOn();
}

void Attendance::OnReady(Rank rank, const Ready& ready) {
  Member& member = board_.At(rank);
  if (board_.members.InRun(rank)) recovery_.Unregister(rank, ready.unregistered);
  if (member.life == Life::kReady) return;  // a reconnected agent says it again
  board_.members.SetLife(member, Life::kReady);
  board_.registered.Take(member, ready);
  member.start_failure.clear();
  member.absent = false;
  if (board_.registered.IsNews(ready.warning)) board_.Note(rank, ready.warning);
  member.unconfirmed.reset();  // a launcher starts no process before the one before it has ended
  member.parked = !takeover_.listening() || member.standing != Standing::kRunning;
  if (takeover_.listening()) return takeover_.Reconsider();
  halt_.ReconsiderMajority();
  recovery_.OnReady();
  rescue_.OnReady();
  scaling_.OnReady(rank);
  if (scaling_.IsDue()) saves_.BeginRequested();
}

// ---- who goes ----------------------------------------------------------------------------------------------------

void Attendance::OnClosed(const ConnectionClosed& closed) {
  if (!board_.members.Has(closed.rank)) return;
  const Member& member = board_.At(closed.rank);
  if (member.incarnation != closed.incarnation || member.life == Life::kDead) return;
  processes_.SeeClosed(closed.rank);
  if (member.life == Life::kReady && board_.members.InRun(closed.rank))
    faults_.Suspect(closed.rank, FaultKind::kConnectionLost, "the control connection closed", board_.now());
}

void Attendance::OnExited(const ProcessExited& exited) {
  if (!board_.members.Has(exited.rank)) return;
  Member& member = board_.At(exited.rank);
  NoteExitOf(exited.rank, exited);
  if (takeover_.listening() && member.life == Life::kAbsent)
    return takeover_.Reconsider();  // of a life that this controller never saw
  if (member.incarnation != exited.incarnation || member.life == Life::kDead) return;
  if (!takeover_.listening() && !board_.members.InRun(exited.rank)) return OnNewcomerExited(exited);
  const bool was_ready = member.life == Life::kReady;
  // By what it was seen to do: its word that it has resumed may be lost with it. Who leaves by itself may do so behind the
  // last step, where it begins none.
  const Step at = std::max(member.begun, board_.course.resume_step);
  if (board_.InTraining() && !member.finished && (at > board_.course.resume_step || exited.left))
    repeats_.Died(exited.rank, at, exited.cause);
  const std::optional<Incarnation> before = exited.never_began ? member.unconfirmed : std::nullopt;
  processes_.MarkDead(exited.rank);
  member.unconfirmed = before;
  const TimePoint since = exited.since ? faults_.BeganAt(*exited.since) : board_.now();
  if (takeover_.listening()) {
    faults_.Record(exited.rank, FaultKind::kProcessExit, exited.cause, since);
    return takeover_.Reconsider();
  }
  if (!board_.course.ever_ran && (!was_ready || IsMistake(exited)))
    return end_.End(kExitStartup, WhyNotBegun(exited, was_ready));
  if (was_ready || !board_.incident.open())
    return faults_.Fault(exited.rank, FaultKind::kProcessExit, exited.cause, since);
  OnReplacementExited(exited);
}

// Nobody of the run has met it.
void Attendance::OnNewcomerExited(const ProcessExited& exited) {
  Member& member = board_.At(exited.rank);
  const std::optional<Incarnation> before = exited.never_began ? member.unconfirmed : std::nullopt;
  processes_.MarkDead(exited.rank);
  member.unconfirmed = before;
  if (scaling_.IsComing(exited.rank)) scaling_.OnLost(exited.rank, exited.cause);
}

// Its end was seen of a life that might have gone on.
void Attendance::NoteExitOf(Rank rank, const ProcessExited& exited) {
  Member& member = board_.At(rank);
  // Of a process that was asked for and never came nobody knows what it says of the one before it: its node may be
  // away, with that one alive.
  const bool came = !exited.never_began && (member.incarnation != exited.incarnation || member.life != Life::kStarting);
  if (!member.unconfirmed || *member.unconfirmed > exited.incarnation || !came) return;
  member.unconfirmed.reset();
  halt_.OnExitKnown();
}

// A replacement died before it was ready, or none came to be: nobody else is affected. Try again, or let the ladder
// choose anew where it had counted on this one (before STOP ends it will choose anyway; a dump needs no
// replacements).
void Attendance::OnReplacementExited(const ProcessExited& exited) {
  const Rank rank = exited.rank;
  Member& member = board_.At(rank);
  const std::string who = "rank " + rank.ToString() + " " + exited.cause;
  member.start_failure = exited.never_began ? exited.cause : who + " before it was ready";
  board_.Note(rank, member.start_failure);
  if (board_.save() == SaveState::kRescuing && rescue_.Rescues(rank))
    return faults_.Lock(exited.never_began ? exited.cause : who + " before it could save");
  if (board_.phase() == Phase::kDump || board_.phase() == Phase::kRename) return;
  processes_.Respawn(rank);
  if (member.life == Life::kDead && board_.phase() != Phase::kLock && board_.phase() != Phase::kStop)
    return faults_.Lock(NoRespawnText(rank, member.start_failure));
  halt_.ReconsiderMajority();
}

// ---- ranks that another node has ---------------------------------------------------------------------------------

// All lock again first: a rank that answers has heard of the move, and only with a majority of these does it hold.
void Attendance::OnMoved(const RanksMoved& moved) {
  const int first = moved.first.value();
  if (!AreInWorld(moved.first, moved.ranks) || !(takeover_.listening() || recovery_.MayMove(moved.first, moved.ranks)))
    return board_.Drop(moved.first, "its ranks cannot be moved now");
  for (int r = first; r < first + moved.ranks; ++r) MoveTo(Rank(r));
  if (takeover_.listening()) return;
  faults_.Lock("their node stays away: node " + std::to_string(moved.node) + " takes ranks " + moved.first.ToString() +
               " to " + std::to_string(first + moved.ranks - 1) + " over");
}

bool Attendance::AreInWorld(Rank first, int ranks) const {
  return first.value() >= 0 && ranks > 0 && first.value() <= board_.policy.world_size - ranks;
}

void Attendance::OnLauncherNew(const LauncherNew& launcher) {
  if (!AreInWorld(launcher.first, launcher.ranks))
    return board_.Drop(launcher.first, "its launcher's ranks are outside the world");
  for (int i = 0; i < launcher.ranks; ++i) board_.At(Rank(launcher.first.value() + i)).forgotten = true;
}

// None of them is here, and all that take part are waited for.
bool Attendance::MayDoWithout(Rank first, int ranks) const {
  if (!AreInWorld(first, ranks) || !recovery_.AwaitsProcesses()) return false;
  std::vector<Rank> awaited;
  for (int r = first.value(); r < first.value() + ranks; ++r)
    if (const Member& member = board_.At(Rank(r)); member.takes_part) {
      if (member.life != Life::kStarting) return false;
      awaited.emplace_back(r);
    }
  return !awaited.empty() && survey_.CanDoWithout(awaited);
}

// All lock again: what is chosen then goes by who is absent.
void Attendance::OnAbsent(const NodeAbsent& node) {
  if (!AreInWorld(node.first, node.ranks)) return board_.Drop(node.first, "its node's ranks are outside the world");
  const bool without = node.absent && MayDoWithout(node.first, node.ranks);
  if (node.absent && !without) return board_.Drop(node.first, "the run cannot go on without its node now");
  for (int r = node.first.value(); r < node.first.value() + node.ranks; ++r) board_.At(Rank(r)).absent = node.absent;
  if (without) faults_.Lock("the node of rank " + node.first.ToString() + " stays away: the run goes on without it");
}

void Attendance::MoveTo(Rank rank) {
  Member& member = board_.At(rank);
  member.left_behind = true;
  if (takeover_.listening()) return;
  member.unconfirmed.reset();  // nobody here will hear of its end
  member.trust.Leave(member.incarnation);
  member.start_failure.clear();
  processes_.StartNext(rank);
}

}  // namespace kintsugi::core
