// Who comes, goes and comes back: joins, lost connections, processes that have ended.
#include <utility>

#include "runtime/core/controller_core.h"

namespace kintsugi::core {

void ControllerCore::OnJoin(const Header& header, const JoinRequest& join) {
  const Rank rank = header.rank;
  Member& member = At(rank);
  const auto refuse = [&](const std::string& why) {
    out_.push_back(Send{{term_, generation_, rank, header.incarnation}, JoinReply{.accepted = false, .text = why}});
    Drop(rank, why);
  };
  // It obeys a newer controller: whoever sees this leaves (the driver closes what is not answered).
  if (header.term > term_) return Drop(rank, "its controller is of term " + std::to_string(header.term.number));
  if (phase_ == Phase::kEnded) {
    // It may have missed the end with its connection.
    if (header.incarnation == member.incarnation && member.life == Life::kReady)
      SendTo(rank, EndOrder{ended_.exit_code, ended_.text});
    return refuse("the run has ended");
  }
  const bool unnamed = !policy_.can_spawn && header.incarnation.value() == 0;
  // Without a launcher a rank that was given up is absent until another process comes.
  const bool given_up = member.life == Life::kDead || member.life == Life::kAbsent;
  if (!unnamed && (header.incarnation < member.incarnation || (header.incarnation == member.incarnation && given_up)))
    return refuse("incarnation " + header.incarnation.ToString() + " of rank " + rank.ToString() +
                  " was given up; the living one is " + member.incarnation.ToString());
  // A process that has not heard of any generation waits until it is known whether there is a run to come back to: the
  // driver asks again.
  if (taking_over_ && !join.joined_before) {
    member.knocks = true;
    if (member.life == Life::kStarting) member.unconfirmed.reset();  // found, and new: the one before it has ended
    return MaybeTakenOver();
  }
  if (policy_.can_spawn && header.incarnation > member.incarnation && !taking_over_)
    return refuse("incarnation " + header.incarnation.ToString() + " was not started by this launcher");
  if (!unnamed && member.connected && join.pid != member.pid)
    return refuse("process " + std::to_string(member.pid) + " is rank " + rank.ToString() + " already, process " +
                  std::to_string(join.pid) + " cannot be it too: join from one process of a rank only");
  // A rank that nobody here started names no incarnation; it is told the one it gets.
  const Incarnation incarnation = unnamed ? member.incarnation.Next() : header.incarnation;
  if (incarnation > member.incarnation) {
    // A second live incarnation is a fault of the first.
    if (member.life == Life::kReady) {
      MarkDead(rank);
      Fault(rank, FaultKind::kProcessExit, "a newer process of the rank joined", now_);
      if (phase_ == Phase::kEnded) return refuse("the run has ended");
    }
    member.incarnation = incarnation;
    members_.SetLife(member, Life::kStarting);
  }
  if (!taking_over_ && member.life == Life::kStarting && join.joined_before && join.standing != Standing::kNew &&
      ever_ran_ && policy_.takes_over)
    return GiveUp({rank}, FaultKind::kConnectionLost, now_, "it came too late to the new controller");
  members_.SetConnected(member, now_);
  member.pid = join.pid;
  if (std::exchange(member.host, join.host) != join.host) snapshots_.ForgetPartners();
  member.watched_by_launcher = join.watched_by_launcher;
  if (taking_over_) TakeStanding(member, header, join);
  detector_.Watch(rank, now_);
  JoinReply reply;
  reply.replacement = ever_ran_;
  reply.resume_step = policy_.resume_step;
  reply.resumes = !policy_.resume_directory.empty();
  reply.save_every = policy_.save_every;
  reply.verify_every = policy_.verify_every;
  reply.injections = member.injections;
  SendTo(rank, std::move(reply));
  TellAgain(rank);
  MaybeHeal();
}

void ControllerCore::TellAgain(Rank rank) {
  // What was sent while the connection was down is lost; every order may be given twice.
  Member& member = At(rank);
  if (member.life != Life::kReady || taking_over_) return;
  if (member.waiting && member.order) SendTo(rank, *member.order);
  if ((phase_ == Phase::kRunning || phase_ == Phase::kConfirm) && !member.resumed)
    SendTo(rank, ResumeOrder{resume_step_});
  if (save_ == SaveState::kArming && pause_.Awaits(rank)) SendTo(rank, PauseAt{pause_.at()});
  OrderSnapshot(rank);
}

void ControllerCore::MaybeHeal() {
  if (phase_ != Phase::kConfirm || !healable_ || taking_over_) return;
  if (members_.lost() > 0) {
    const Duration window = policy_.ConfirmWindow();
    deadline_ =
        std::max(deadline_, std::min(members_.returned_at() + window, phase_began_ + kReturnWindowsMax * window));
    return;
  }
  if (!std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.connected; })) return;
  SetPhase(Phase::kRunning, "the connection is back");
  incident_->rung = Rung::kResume;
  incident_->resumed_at = now_;
  CloseIncident();
  WatchForHangs();
  AwaitResumed();
  ArmSnapshot();
  MaybeFinish();
  BeginRequestedSave();
}

void ControllerCore::Register(Member& member, const Ready& ready) {
  RegistrySummary registry = ready.registry;
  unregistered_.TakeFrom(&registry);  // it is told with its first order
  registries_changed_ = registries_changed_ || !(member.registry == registry && member.layouts == ready.layouts);
  member.registry = std::move(registry);
  member.layouts = ready.layouts;
  member.registered = true;
}

// What was recorded of the whole state is of one that is no more.
void ControllerCore::Unregister(Rank rank, const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  Unregistered said;
  said.Add(keys);
  said.TakeFrom(&At(rank).registry);
  if (!unregistered_.Add(keys)) return;
  snapshots_.DropAfter(kintsugi::Step(0));
  agreed_.clear();
  for (Member& member : members_) {
    if (member.damaged_keys.empty()) continue;
    std::erase_if(member.damaged_keys, [&](const std::string& key) { return said.Has(key); });
    if (member.damaged_keys.empty()) member.needs_repair = false;  // what was damaged is gone, the rest is whole
  }
}

// Who has not said so itself is told with its next order.
void ControllerCore::ForgetUnregistered() {
  if (unregistered_.empty()) return;
  for (Member& member : members_) unregistered_.TakeFrom(&member.registry);
  std::erase_if(moves_, [this](RepairMove& move) {
    if (move.keys.empty()) return false;  // all of its layout
    std::erase_if(move.keys, [this](const std::string& key) { return unregistered_.Has(key); });
    return move.keys.empty();
  });
}

// ROLLBACK is the last task of an incident: nobody is told after it.
bool ControllerCore::AllUnregistered() {
  if (unregistered_.empty()) return true;
  for (size_t r = 0; r < members_.size(); ++r) {
    const std::string kept = unregistered_.FirstIn(members_[r].registry);
    if (kept.empty()) continue;
    const Rank rank(static_cast<int32_t>(r));
    Fault(rank, FaultKind::kHandlerFailed,
          "tensor '" + PrintableKey(kept) + "' was unregistered in ROLLBACK on other ranks, but not on rank " +
              rank.ToString() + ": every rank that registered it must do so",
          now_);
    return false;
  }
  return true;
}

void ControllerCore::OnReady(const Header& header, const Ready& ready) {
  Member& member = At(header.rank);
  Unregister(header.rank, ready.unregistered);
  if (member.life == Life::kReady) return;  // a reconnected agent says it again
  members_.SetLife(member, Life::kReady);
  Register(member, ready);
  member.start_failure.clear();
  // Ranks are mostly alike: said once.
  if (!ready.warning.empty() && std::exchange(told_warning_, ready.warning) != ready.warning)
    out_.push_back(Notice{header.rank, ready.warning});
  member.unconfirmed.reset();  // a launcher starts no process before the one before it has ended
  member.parked = !taking_over_ || member.standing != Standing::kRunning;
  if (taking_over_) return MaybeTakenOver();
  ReconsiderMajority();
  if (phase_ == Phase::kAdmit && members_.all_ready()) AfterAdmit();
  MaybeRescued();
}

bool ControllerCore::MayMove(Rank first, int ranks) const {
  if (phase_ != Phase::kAdmit || !ever_ran_ || !incident_ || stop_requested_ || first.value() < 0 || ranks < 1 ||
      first.value() > policy_.world_size - ranks)
    return false;
  const auto begin = members_.begin() + first.value();
  return std::all_of(begin, begin + ranks, [](const Member& m) { return m.life == Life::kStarting; });
}

// Their node's processes, should they live, are of lives that were given up. All lock again first: who answers has heard
// of the move, and only with a majority of these does it hold.
void ControllerCore::OnMoved(const RanksMoved& moved) {
  const bool in_world =
      moved.first.value() >= 0 && moved.ranks > 0 && moved.first.value() <= policy_.world_size - moved.ranks;
  if (!in_world || !(taking_over_ || MayMove(moved.first, moved.ranks)))
    return Drop(moved.first, "its ranks cannot be moved now");
  for (int r = moved.first.value(); r < moved.first.value() + moved.ranks; ++r) {
    const Rank rank(r);
    Member& member = At(rank);
    member.left_behind = true;
    if (taking_over_) continue;
    member.unconfirmed.reset();  // nobody here will hear of its end
    member.held.reset();
    member.doubted = member.incarnation;
    member.incarnation = member.incarnation.Next();
    member.start_failure.clear();
    member.from_spare = spares_.Take(rank);
    out_.push_back(SpawnProcess{rank, member.incarnation});
  }
  if (taking_over_) return;
  EnterLock("their node stays away: node " + std::to_string(moved.node) + " takes ranks " + moved.first.ToString() +
            " to " + std::to_string(moved.first.value() + moved.ranks - 1) + " over");
}

void ControllerCore::OnClosed(const ConnectionClosed& closed) {
  if (!InWorld(closed.rank)) return;
  Member& member = At(closed.rank);
  if (member.incarnation != closed.incarnation || member.life == Life::kDead) return;
  members_.SetClosed(member);
  member.closed_at = now_;
  // Its signs of life came over this connection: from here on the confirmation window decides, not the silence limit
  // that began with the last of them.
  if (!member.watched_by_launcher) detector_.Forget(closed.rank);
  if (member.life == Life::kReady)
    Suspect(closed.rank, FaultKind::kConnectionLost, "the control connection closed", now_);
}

void ControllerCore::OnExited(const ProcessExited& exited) {
  if (!InWorld(exited.rank)) return;
  Member& member = At(exited.rank);
  // Of a process that was asked for and never came nobody knows what it says of the one before it: its node may be
  // away, with that one alive.
  const bool came = !exited.never_began && (member.incarnation != exited.incarnation || member.life != Life::kStarting);
  if (member.unconfirmed && *member.unconfirmed <= exited.incarnation && came) {
    member.unconfirmed.reset();
    ReconsiderMajority();
    MaybeExitsKnown();
  }
  if (taking_over_ && member.life == Life::kAbsent)
    return MaybeTakenOver();  // of a life that this controller never saw
  if (member.incarnation != exited.incarnation || member.life == Life::kDead) return;
  const bool was_ready = member.life == Life::kReady;
  NoteCrash(exited.rank, exited.cause);
  const std::optional<Incarnation> before = exited.never_began ? member.unconfirmed : std::nullopt;
  MarkDead(exited.rank);
  member.unconfirmed = before;
  if (taking_over_) {
    RecordFault(exited.rank, FaultKind::kProcessExit, exited.cause, exited.since.value_or(now_));
    return MaybeTakenOver();
  }
  const std::string who = "rank " + exited.rank.ToString() + " " + exited.cause;
  if (!was_ready && !ever_ran_)
    return End(kExitStartup, who + " before it was ready: does the program call Agent::Join and Agent::Run?");
  if (was_ready || !incident_)
    return Fault(exited.rank, FaultKind::kProcessExit, exited.cause, exited.since.value_or(now_));
  // A replacement died before it was ready, or none came to be: nobody else is affected. Try again, or let the ladder
  // choose anew where it had counted on this one (before STOP ends it will choose anyway; a dump needs no
  // replacements).
  member.start_failure = exited.never_began ? exited.cause : who + " before it was ready";
  out_.push_back(Notice{exited.rank, member.start_failure});
  if (save_ == SaveState::kRescuing && IsRescued(exited.rank))
    return EnterLock(exited.never_began ? exited.cause : who + " before it could save");
  if (phase_ == Phase::kDump || phase_ == Phase::kRename) return;
  MaybeRespawn(exited.rank);
  if (At(exited.rank).life == Life::kDead && phase_ != Phase::kLock && phase_ != Phase::kStop)
    return EnterLock(NoRespawnText(exited.rank, member.start_failure));
  ReconsiderMajority();
}

}  // namespace kintsugi::core
