#include "runtime/core/recovery.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "callbacks/state/key.h"
#include "runtime/base/check.h"
#include "runtime/core/save_balance.h"

namespace kintsugi::core {
namespace {

// A phase can fail as the echo of a death that has not been seen yet; the cause gets this long to show itself.
constexpr Duration kEchoWindow = std::chrono::milliseconds(50);

// A rank whose handlers fail this often in one incident, with no other cause in sight, is given up. An error that may
// be the echo of another rank's failure weighs half, so that the rank with a cause of its own is always the first to
// go.
constexpr int kEchoFailure = 1;
constexpr int kOwnFailure = 2;
constexpr int kFailuresMax = 3 * kOwnFailure;

bool IsHandlerPhase(Phase phase) {
  return phase >= Phase::kClean && phase <= Phase::kRollback && phase != Phase::kAdmit;
}

bool IsEcho(StatusCode code) {
  return code == StatusCode::kCommFailure || code == StatusCode::kCancelled || code == StatusCode::kInterrupted ||
         code == StatusCode::kDeadlineExceeded;
}

// A connection's other end is gone, or the order is.
bool IsPeersEnd(StatusCode code) { return IsEcho(code) && code != StatusCode::kDeadlineExceeded; }

// It is the checkpoint that failed, not the rank: the one before it is tried, or nothing is left to try.
bool IsUnreadable(StatusCode code) { return code == StatusCode::kDataLoss || code == StatusCode::kNotFound; }

// It fits no rank of this program: another model, objects that do not say how they go on. Or it may not be read.
// Nothing changes by trying again.
bool IsMisfit(StatusCode code) {
  return code == StatusCode::kInvalidArgument || code == StatusCode::kFailedPrecondition ||
         code == StatusCode::kPermissionDenied;
}

// Of the trainer's handlers the one that this phase calls; "": none, the library's own work.
std::string_view HandlerOf(Phase phase) {
  switch (phase) {
    case Phase::kClean:
      return "clean";
    case Phase::kRebuild:
      return "rebuild_group";
    case Phase::kRepair:
      return "repair";
    case Phase::kRollback:
      return "rollback";
    default:
      return "";
  }
}

// Of a run that never began: what somebody asked for is wrong, or what it needs is.
int ExitOf(StatusCode code) { return code == StatusCode::kInvalidArgument ? kExitUsage : kExitStartup; }

}  // namespace

Recovery::Recovery(Board& board, Processes& processes, Faults& faults, RunEnd& end, Comparison& comparison,
                   SnapshotRounds& rounds, SnapshotOrders& snapshots, HangWatch& hangs, Scaling& scaling, Saves& saves,
                   CheckpointList& checkpoints, Repeats& repeats, Roads& roads)
    : board_(board),
      processes_(processes),
      faults_(faults),
      end_(end),
      comparison_(comparison),
      rounds_(rounds),
      snapshots_(snapshots),
      hangs_(hangs),
      scaling_(scaling),
      saves_(saves),
      checkpoints_(checkpoints),
      repeats_(repeats),
      roads_(roads),
      times_(board.policy.Phases()) {}

// ---- CLEAN, ADMIT ------------------------------------------------------------------------------------------------

void Recovery::Enter(const std::string& reason) {
  board_.SetPhase(Phase::kClean, reason);
  const PhaseOrder order{.phase = Phase::kClean,
                         .step = *board_.plan.choice.step,
                         .limit = times_.Limit(Phase::kClean, board_.policy.HandlerLimit())};
  board_.Order(board_.members.Where([](const Member& m) { return m.life == Life::kReady && m.parked; }), order.limit,
               [&](Rank) { return order; });
  if (board_.NobodyWaits()) AfterPhase();
}

void Recovery::Admit(const std::string& reason) {
  board_.SetPhase(Phase::kAdmit, reason);
  board_.SetDeadline(board_.now() + board_.policy.join_timeout);
  for (Rank rank : board_.members.Where([](const Member& m) { return m.life == Life::kDead; })) {
    processes_.Respawn(rank);
    if (board_.At(rank).life != Life::kDead) continue;
    const std::string text = NoRespawnText(rank, board_.At(rank).start_failure);
    return board_.course.ever_ran ? faults_.Lock(text) : end_.End(kExitStartup, text);
  }
  OnReady();
}

void Recovery::OnReady() {
  if (board_.phase() != Phase::kAdmit || !board_.members.all_ready()) return;
  Rebuild();
}

bool Recovery::AwaitsProcesses() const {
  return board_.phase() == Phase::kAdmit && board_.course.ever_ran && board_.incident.open() && !board_.course.leaving;
}

bool Recovery::MayMove(Rank first, int ranks) const {
  if (!AwaitsProcesses() || first.value() < 0 || ranks < 1 || first.value() > board_.policy.world_size - ranks)
    return false;
  const auto begin = board_.members.all().begin() + first.value();
  return std::all_of(begin, begin + ranks, [](const Member& m) { return m.life == Life::kStarting && m.takes_part; });
}

Status Recovery::MapReplicas() {
  KINTSUGI_RETURN_IF_ERROR(board_.registered.Map(board_.members, board_.policy.takes_over));
  rounds_.ForgetPartners();
  return Status::Ok();
}

void Recovery::MapWhatIsKnown() {
  if (!board_.policy.takes_over) return;
  if (board_.registered.changed())
    if (const Status mapped = MapReplicas(); !mapped.ok())
      board_.Note(Rank(0), "the replica map cannot be rebuilt: " + mapped.message());
  if (board_.registered.mapped()) rounds_.TakeFound(board_.replicas());
}

void Recovery::OnMisfit(const std::string& error) {
  // The survivors have proved that they fit together: it is the newcomers that do not.
  const std::vector<Rank> newcomers = board_.members.Where([](const Member& m) { return m.trust.fresh(); });
  if (!board_.course.ever_ran || newcomers.empty()) return end_.End(kExitStartup, error);
  faults_.GiveUp(newcomers, FaultKind::kHandlerFailed, board_.now(), error);
}

// ---- what is no part of the state any more -----------------------------------------------------------------------

// What was recorded of the whole state is of one that is no more.
void Recovery::Unregister(Rank rank, const std::vector<std::string>& keys) {
  if (keys.empty() || !board_.registered.Remove(board_.At(rank), keys)) return;
  rounds_.DropAfter(Step(0));
  comparison_.ForgetRecord();
  for (Member& member : board_.members) member.trust.Drop(keys);
}

// A rank that has not said so itself is told with its next order.
void Recovery::ForgetUnregistered() {
  const Unregistered& gone = board_.registered.gone();
  if (gone.empty()) return;
  for (Member& member : board_.members) gone.TakeFrom(&member.registry);
  std::erase_if(board_.plan.moves, [&gone](RepairMove& move) {
    if (move.keys.empty()) return false;  // all of its layout
    std::erase_if(move.keys, [&gone](const std::string& key) { return gone.Has(key); });
    return move.keys.empty();
  });
}

// ROLLBACK is the last task of an incident: nobody is told after it.
bool Recovery::AllUnregistered() {
  const Unregistered& gone = board_.registered.gone();
  if (gone.empty()) return true;
  for (Rank rank : board_.members.ranks()) {
    const std::string kept = gone.FirstIn(board_.At(rank).registry);
    if (kept.empty()) continue;
    faults_.Fault(rank, FaultKind::kHandlerFailed,
                  "tensor '" + PrintableKey(kept) + "' was unregistered in ROLLBACK on other ranks, but not on rank " +
                      rank.ToString() + ": every rank that registered it must do so",
                  board_.now());
    return false;
  }
  return true;
}

// ---- REBUILD, REPAIR ---------------------------------------------------------------------------------------------

void Recovery::Rebuild() {
  ForgetUnregistered();
  // A replacement that registers what its predecessor did changes nothing.
  if (board_.registered.changed() && !board_.plan.relayout)
    if (const Status mapped = MapReplicas(); !mapped.ok()) return OnMisfit(mapped.message());
  if (board_.phase() == Phase::kAdmit) board_.SetPhase(Phase::kRebuild, "all ranks are ready");
  KINTSUGI_CHECK(board_.registered.mapped(), "REBUILD without a map of replicas");
  RepairPlan& plan = board_.plan;
  if (board_.course.ever_ran) plan.replaced = board_.members.Where([](const Member& m) { return m.trust.fresh(); });
  plan.replaced.resize(std::min(plan.replaced.size(), IncidentCase::kNamedMax));
  if (!plan.choice.step) plan.choice = {board_.policy.resume_step, StepReason::kAbandoned};
  const Duration limit = times_.Limit(Phase::kRebuild, board_.policy.HandlerLimit());
  board_.Order(board_.LiveOfNextCrew(), limit, [&](Rank rank) {
    return PhaseOrder{.phase = Phase::kRebuild,
                      .step = *plan.choice.step,
                      .limit = limit,
                      .partners = plan.relayout ? std::vector<Rank>() : board_.replicas().Partners(rank),
                      .begins = !board_.course.ever_ran,
                      .relayout = plan.relayout.has_value()};
  });
}

// ---- state that is cut anew --------------------------------------------------------------------------------------

// Who holds what then is known: all that hold anything now, and all that will, move it.
void Recovery::CutAnew() {
  Result<ReplicaMap> map = board_.registered.MapOfNext(board_.members, *board_.plan.relayout);
  if (!map.ok()) return faults_.Lock("state is not cut anew: " + map.status().message());
  board_.registered.Use(std::move(map).value());
  Relayout();
}

void Recovery::Relayout() {
  const RepairPlan& plan = board_.plan;
  for (Rank rank : plan.holders)
    KINTSUGI_CHECK(board_.members.crew().Has(rank) && (plan.FromSnapshot() || !board_.At(rank).trust.needs_repair()),
                   "rank " + rank.ToString() + " gives away what it does not hold");
  if (board_.incident.open()) {
    board_.incident.record().rebuilt_at = board_.now();
    board_.incident.NoteSources(plan.holders);
  }
  board_.SetPhase(
      Phase::kRepair,
      "state is cut anew for " + plan.relayout->ToString() +
          (plan.FromSnapshot() ? ", from the in-memory snapshot of step " + plan.choice.step->ToString() : ""));
  const Duration limit = board_.policy.RepairLimit();
  board_.Order(board_.LiveRanks(), limit, [&](Rank rank) {
    return PhaseOrder{.phase = Phase::kRepair,
                      .step = *plan.choice.step,
                      .rung = plan.decision.rung,
                      .limit = limit,
                      .partners = plan.relayout->Has(rank) ? board_.replicas().Partners(rank) : std::vector<Rank>(),
                      .moves = plan.moves,
                      .from_snapshot = plan.FromSnapshot(),
                      .relayout = true,
                      .holders = plan.holders};
  });
}

void Recovery::NoteCut() {
  RepairPlan& plan = board_.plan;
  plan.cut = {*plan.relayout, board_.generation(), board_.replicas(), {}};
  if (!plan.FromSnapshot()) {
    std::set_difference(plan.relayout->ranks().begin(), plan.relayout->ranks().end(), plan.holders.begin(),
                        plan.holders.end(), std::back_inserter(plan.cut->given));
    return;
  }
  // What was registered before is of a step that is given up.
  plan.cut->given = plan.relayout->ranks();
  for (Member& member : board_.members) member.trust.Tear();
}

// All have gone over to what they cut: what was registered before is nobody's from here on.
void Recovery::SettleRelayout() {
  const Crew crew = *std::exchange(board_.plan.relayout, std::nullopt);
  board_.plan.holders.clear();
  board_.plan.cut.reset();
  board_.registered.TakeNext(board_.members, crew, board_.generation());
  board_.members.Change(crew);
  rounds_.ForgetPartners();
  TrustAll();
}

bool Recovery::Reloads() const {
  if (board_.course.ever_ran) return board_.plan.decision.rung == Rung::kReload;
  return board_.policy.resume_step.value() > 0 || board_.policy.resume_by_trainer;
}

// Every move has a source, and none is a rank in doubt, unless it adopts before it sends. A snapshot's sources go
// back to it themselves. Where nothing is reloaded, who lost its state gets it back (which tensors are damaged its
// trainer says, and that may be none of its state).
void Recovery::CheckMoves(bool reload, bool from_snapshot) const {
  std::vector<bool> repaired(board_.members.seats());
  for (const RepairMove& move : board_.plan.moves) {
    KINTSUGI_CHECK(board_.members.crew().Has(move.destination), "a move goes to a rank that takes no part");
    repaired[static_cast<size_t>(move.destination.value())] = true;
    const auto what = [&] {
      return "layout " + std::to_string(move.layout) + " of rank " + move.destination.ToString() + " is repaired from ";
    };
    KINTSUGI_CHECK(move.adopt || !move.sources.empty(), what() + "nobody");
    for (Rank source : move.sources) {
      KINTSUGI_CHECK(source != move.destination, what() + "itself");
      KINTSUGI_CHECK(from_snapshot || !board_.At(source).trust.needs_repair() || board_.plan.Adopts(source),
                     what() + "rank " + source.ToString() + ", which is in doubt itself");
    }
  }
  if (reload) return;
  for (Rank rank : board_.members.ranks()) {
    const Member& member = board_.At(rank);
    KINTSUGI_CHECK(
        repaired[static_cast<size_t>(rank.value())] || !member.trust.needs_repair() || member.trust.is_damaged_only(),
        "rank " + rank.ToString() + " needs a repair, and nothing moves to it");
  }
}

void Recovery::Repair() {
  ForgetUnregistered();
  const RepairPlan& plan = board_.plan;
  if (board_.incident.open()) board_.incident.record().rebuilt_at = board_.now();
  const bool reload = Reloads();
  const bool from_snapshot = board_.course.ever_ran && plan.ReloadsSnapshot();
  const std::string& directory = board_.course.ever_ran ? plan.reload.directory : board_.policy.resume_directory;
  board_.SetPhase(Phase::kRepair, from_snapshot ? "from the in-memory snapshot of step " + plan.choice.step->ToString()
                                  : reload      ? "from " + directory
                                                : std::to_string(plan.moves.size()) + " moves");
  CheckMoves(reload, from_snapshot);
  if (!reload && plan.moves.empty()) return AfterPhase();
  for (const RepairMove& move : plan.moves) {
    if (move.adopt) board_.At(move.destination).trust.Adopt();
    if (board_.incident.open()) board_.incident.NoteSources(move.sources);
  }
  const Duration limit = RepairLimit(reload);
  board_.Order(board_.LiveRanks(), limit, [&](Rank rank) {
    return PhaseOrder{.phase = Phase::kRepair,
                      .step = *plan.choice.step,
                      .rung = reload ? Rung::kReload : plan.decision.rung,
                      .limit = limit,
                      .partners = board_.replicas().Partners(rank),
                      .moves = plan.moves,
                      .directory = reload && !from_snapshot ? directory : std::string(),
                      .from_snapshot = from_snapshot};
  });
}

// Who hangs costs no more than it must. Where nobody had hung, the next attempt has all its time.
Duration Recovery::RepairLimit(bool reload) const {
  if (!board_.course.ever_ran || repair_ran_out_) return board_.policy.RepairLimit();
  uint64_t bytes = 0;
  for (const RepairMove& move : board_.plan.moves)
    bytes += RegisteredBytes(board_.At(move.destination).registry, move.layout);
  if (reload)
    for (Rank rank : board_.members.ranks()) bytes += RegisteredBytes(board_.At(rank).registry);
  return board_.policy.RepairLimit(bytes);
}

// ---- what the ranks say ------------------------------------------------------------------------------------------

void Recovery::OnDone(Rank rank, const PhaseDone& done) {
  if (done.phase != board_.phase() || !board_.At(rank).waiting) return;
  board_.Heard(rank, board_.phase());
  Unregister(rank, done.unregistered);
  if (done.code != StatusCode::kOk) return OnFailed(rank, done);
  if (!done.next.empty() && board_.plan.relayout) board_.At(rank).next = done.next.front();
  if (board_.incident.open()) {
    board_.incident.record().bytes_moved += done.bytes_moved;
    board_.incident.Remark(done.text);
    if (GoesBack(done)) return;
  }
  if (board_.phase() == Phase::kRepair && board_.policy.resume_by_trainer && !board_.course.ever_ran)
    loaded_[rank] = done.loaded;
  if (board_.phase() == Phase::kVerify) comparison_.Take(rank, done);
  const bool tries_again = retry_at() != TimePoint::Max();
  if (!board_.NobodyWaits() && !tries_again) LimitTheLast();
  if (!board_.NobodyWaits() || tries_again) return;
  times_.Note(board_.phase(), board_.now() - board_.phase_began());
  AfterPhase();
}

// Once an incident: it goes as far back as it can, and where that is not far enough the ranks say so again.
bool Recovery::GoesBack(const PhaseDone& done) {
  if (board_.phase() != Phase::kRollback || done.back_from.value() == 0 || board_.plan.back_from) return false;
  board_.plan.back_from = done.back_from;
  faults_.Lock("the ranks leave out what comes from step " + done.back_from.ToString() + " on: the run goes back");
  return true;
}

// Before the first incident nobody knows how long CLEAN takes here. All do the same in it: those who are done tell.
void Recovery::LimitTheLast() {
  if (board_.phase() != Phase::kClean ||
      2 * static_cast<size_t>(board_.members.waiting()) > board_.members.crew().size())
    return;
  const Duration limit = times_.Within(board_.now() - board_.phase_began(), board_.policy.HandlerLimit());
  board_.SetDeadline(std::min(board_.deadline(), board_.phase_began() + limit + board_.policy.AnswerSlack()));
}

void Recovery::OnFailed(Rank rank, const PhaseDone& done) {
  board_.Note(rank, std::string(PhaseName(done.phase)) + " failed: " + done.text);
  const bool ever_ran = board_.course.ever_ran;
  const bool from_snapshot = ever_ran && board_.plan.FromSnapshot();
  if (board_.phase() == Phase::kRepair && (Reloads() || from_snapshot) &&
      (IsUnreadable(done.code) || (IsMisfit(done.code) && !from_snapshot))) {
    if (from_snapshot) return snapshots_.OnUnreadable(rank, done.text);
    if (!ever_ran)
      return end_.End(ExitOf(done.code), "cannot resume from " + board_.policy.resume_directory + ": " + done.text);
    checkpoints_.PutAside(board_.plan.reload, done.text);
    return faults_.Lock(checkpoints_.damage());
  }
  // What was registered before is as it was, and in its old layout nobody is the worse for this.
  if (board_.plan.relayout && !IsEcho(done.code))
    return faults_.Lock("state is not cut anew: rank " + rank.ToString() + ": " + done.text);
  // Nor does a configuration that its handlers refuse become another one in a new process.
  if (!ever_ran && done.code == StatusCode::kInvalidArgument)
    return end_.End(ExitOf(done.code), "rank " + rank.ToString() +
                                           " cannot start: " + std::string(PhaseName(done.phase)) + ": " + done.text);
  // What was adopted is no worse for a receiver that is gone.
  if (done.phase == Phase::kRepair && board_.plan.Adopts(rank) && !IsPeersEnd(done.code))
    board_.At(rank).trust.DoubtHeld();
  CountFailure(rank, done, IsEcho(done.code));
}

void Recovery::CountFailure(Rank rank, const PhaseDone& done, bool echo) {
  Member& member = board_.At(rank);
  if (!board_.incident.open()) faults_.Open(rank, FaultKind::kHandlerFailed, done.text, board_.now());
  roads_.Take(rank, done.unreached);
  member.handler_failures += echo ? kEchoFailure : kOwnFailure;
  if (!echo && CountHandler(rank, done)) return;
  if (member.handler_failures >= kFailuresMax) {
    const std::string text = "its handlers failed again and again, last: " + done.text;
    for (Member& other : board_.members) other.handler_failures = 0;
    return faults_.GiveUp({rank}, FaultKind::kHandlerFailed, board_.now(), text);
  }
  if (echo) {
    Failed& failed = FailedNow();
    failed.at = board_.now() + kEchoWindow;
    failed.ran_out = failed.ran_out || done.code == StatusCode::kDeadlineExceeded;
    if (failed.text.empty()) failed.text = ": rank " + rank.ToString() + ": " + done.text;
    return;
  }
  // A failed repair leaves its receiver in doubt; a source is only read, and other handlers touch derived things only.
  if (done.phase == Phase::kRepair) member.trust.Widen();
  faults_.Fault(rank, FaultKind::kHandlerFailed, done.text, board_.now());
}

// True: it is no use to try it again.
bool Recovery::CountHandler(Rank rank, const PhaseDone& done) {
  const std::string_view handler = HandlerOf(done.phase);
  // What it threw, or refuses: a disk or a peer may do better next time.
  if (handler.empty() || (done.code != StatusCode::kInternal && !IsMisfit(done.code))) return false;
  repeats_.HandlerFailed(rank, handler, done.text, board_.At(rank).respawns < board_.policy.max_respawns);
  if (repeats_.hopeless().empty()) return false;
  if (board_.course.ever_ran)
    faults_.Fault(rank, FaultKind::kHandlerFailed, done.text, board_.now());
  else
    end_.End(kExitStartup, "the run cannot start: " + repeats_.hopeless());
  return true;
}

Recovery::Failed& Recovery::FailedNow() {
  if (retry_.of != board_.transitions()) retry_ = {.of = board_.transitions()};
  return retry_;
}

// Who is late may wait for another in a collective of its handlers: STOP frees it.
bool Recovery::RanOut() {
  if (!IsHandlerPhase(board_.phase()) || board_.NobodyWaits()) return false;
  const bool all = static_cast<size_t>(board_.members.waiting()) == board_.LiveRanks().size();
  if (board_.course.leaving && !all) return false;  // no time for the innocent among them
  // A rank that does not come out of that, or is late again and again, is the one.
  FailedNow().ran_out = true;
  const std::string_view handler = HandlerOf(board_.phase());
  const Duration limit = board_.now() - board_.phase_began();
  Retry();
  if (board_.incident.open()) board_.incident.NoteRanOut(handler, limit);
  return true;
}

void Recovery::Retry() {
  const Failed failed = std::exchange(FailedNow(), {.of = board_.transitions()});
  roads_.Conclude();
  if (const std::optional<Roads::CutOff> cut = roads_.FindCutOff()) return DoWithout(*cut);
  const std::string text = std::string(PhaseName(board_.phase())) + " failed without another cause" + failed.text;
  std::vector<Rank> hopeless;
  repair_ran_out_ = repair_ran_out_ || (failed.ran_out && board_.phase() == Phase::kRepair);
  if (failed.ran_out)
    for (Rank rank : board_.members.Where([](const Member& m) -> bool { return m.waiting; }))
      if ((board_.At(rank).handler_failures += kOwnFailure) >= kFailuresMax) hopeless.push_back(rank);
  if (!board_.incident.open()) faults_.Open(Rank(0), FaultKind::kStalled, text, board_.now());
  // Those that wait for one that hangs may say so before its own limit is over.
  if (failed.ran_out)
    board_.incident.NoteRanOut(HandlerOf(board_.phase()),
                               std::max(board_.now() - board_.phase_began(), board_.policy.StopLimit()));
  if (hopeless.empty()) return faults_.Lock(text);
  for (Member& member : board_.members) member.handler_failures = 0;
  faults_.GiveUp(hopeless, FaultKind::kStalled, board_.now(), text + ", again and again");
}

// A spare node has the ranks of the host that others cannot reach; without one what is held is saved while all are there.
void Recovery::DoWithout(const Roads::CutOff& cut) {
  if (!board_.course.ever_ran) return end_.EndUnbegun(cut.text);
  if (board_.policy.node_ranks > 0 && roads_.spare_nodes() > 0) {
    board_.Act(NodeCutOff{cut.ranks.front(), cut.text});
    std::vector<Rank> ranks = cut.ranks;
    std::erase_if(ranks, [this](Rank rank) { return board_.At(rank).life == Life::kDead; });
    return faults_.GiveUp(ranks, FaultKind::kConnectionLost, board_.now(), cut.text);
  }
  board_.course.given_up = cut.text + ": save and leave";
  faults_.Lock(board_.course.given_up);
}

// ---- on to the next phase ----------------------------------------------------------------------------------------

void Recovery::AfterPhase() {
  switch (board_.phase()) {
    case Phase::kClean:
      if (!board_.members.all_ready()) return Admit("replacements are on their way");
      board_.SetPhase(Phase::kRebuild, "all ranks are ready");
      return Rebuild();
    case Phase::kRebuild:
      return board_.plan.relayout ? CutAnew() : Repair();
    case Phase::kRepair:
      return Verify();
    case Phase::kVerify:
      return Rollback();
    case Phase::kRollback:
      return AllUnregistered() ? Resume() : void();
    default:
      KINTSUGI_CHECK(false, "no phase follows " + std::string(PhaseName(board_.phase())));
  }
}

// The step from which the run goes on is the one that every rank's loader found.
Status Recovery::TakeLoaded() {
  const auto loaded = std::exchange(loaded_, {});
  if (loaded.empty()) return {StatusCode::kInternal, "nobody loaded " + board_.policy.resume_directory};
  const auto& [first, step] = *loaded.begin();
  for (const auto& [rank, other] : loaded)
    if (other != step || step.value() == 0)
      return {StatusCode::kFailedPrecondition,
              "cannot resume from " + board_.policy.resume_directory +
                  (step.value() == 0 ? ": the repair handler of rank " + first.ToString() +
                                           " did not say which step it loaded (HandlerContext::loaded_step)"
                                     : ": rank " + first.ToString() + " loaded step " + step.ToString() + ", rank " +
                                           rank.ToString() + " step " + other.ToString())};
  board_.plan.choice = {step, StepReason::kAbandoned};
  checkpoints_.Begin({{step, board_.policy.resume_directory}});
  return Status::Ok();
}

void Recovery::Verify() {
  if (board_.policy.resume_by_trainer && !board_.course.ever_ran)
    if (const Status told = TakeLoaded(); !told.ok()) return end_.End(kExitStartup, told.message());
  if (board_.incident.open()) board_.incident.record().repaired_at = board_.now();
  comparison_.Begin();
  board_.SetPhase(Phase::kVerify, "compare digests in each replica group");
  const PhaseOrder order{.phase = Phase::kVerify,
                         .step = *board_.plan.choice.step,
                         .limit = times_.Limit(Phase::kVerify, board_.policy.RepairLimit())};
  board_.Order(board_.LiveOfNextCrew(), order.limit, [&](Rank) { return order; });
}

void Recovery::Rollback() {
  if (!comparison_.Agree()) return;
  board_.plan.relayout ? NoteCut() : TrustAll();
  comparison_.Remember();
  board_.SetPhase(Phase::kRollback, "digests agree");
  const Duration limit = times_.Limit(Phase::kRollback, board_.policy.HandlerLimit());
  board_.Order(board_.LiveOfNextCrew(), limit, [&](Rank rank) {
    return PhaseOrder{.phase = Phase::kRollback,
                      .step = *board_.plan.choice.step,
                      .rung = board_.plan.decision.rung,
                      .limit = limit,
                      .partners = board_.replicas().Partners(rank),
                      .from_snapshot = board_.plan.relayout && board_.plan.FromSnapshot(),
                      .relayout = board_.plan.relayout.has_value()};
  });
}

// What was compared counts.
void Recovery::TrustAll() {
  for (Member& member : board_.members) {
    member.left_behind = false;
    member.forgotten = false;
    member.trust.Settle();
  }
}

void Recovery::Resume() {
  const Step step = *board_.plan.choice.step;
  board_.SetPhase(Phase::kRunning, "step " + step.ToString());
  board_.course.ever_ran = true;
  board_.course.resume_step = step;
  board_.course.went_on_at = board_.now();
  board_.plan.suspect_from.reset();
  if (const auto from = std::exchange(board_.plan.back_from, std::nullopt))
    checkpoints_.ForgetFrom(std::max(*from, step.Next()));
  repair_ran_out_ = false;
  rounds_.DropAfter(step);
  comparison_.ForgetAfter(step);
  board_.Act(StepDecided{step});
  repeats_.HandlersHeld();
  if (board_.plan.relayout) SettleRelayout();
  KINTSUGI_CHECK(board_.members.all_ready(), "the run goes on while a rank is not there");
  SettleCrew();
  for (Rank rank : board_.LiveRanks()) {
    Member& member = board_.At(rank);
    member.trust.Outgrow();
    KINTSUGI_CHECK(!member.trust.needs_repair(), "the run goes on while rank " + rank.ToString() + " needs a repair");
    board_.members.SetResumed(member, false);
    member.parked = false;
    member.handler_failures = 0;
    member.begun = step;
    member.wait_began = board_.now();
    board_.SendTo(rank, ResumeOrder{step, rounds_.table().newest()});
  }
  AwaitResumed();
  saves_.BeginRequested();
}

// Who takes no part any more ends with a word.
void Recovery::SettleCrew() {
  const Crew before = board_.members.kept();
  const Crew& now = board_.members.crew();
  if (before == now) return;
  board_.members.Keep();
  std::vector<Rank> left, came;
  for (Rank rank : before.ranks())
    if (!now.Has(rank)) left.push_back(rank);
  for (Rank rank : now.ranks())
    if (!before.Has(rank)) came.push_back(rank);
  if (board_.incident.open()) board_.incident.record().left = left, board_.incident.record().came = came;
  scaling_.OnLeaving(left);
  for (Rank rank : left) processes_.Dismiss(rank);
  rounds_.DropAfter(Step(0));                                // what is in them is of the crew before
  checkpoints_.ForgetFrom(board_.plan.choice.step->Next());  // where it went back
  board_.Act(CrewChanged{now.ranks(), left, *board_.plan.choice.step, came});
  scaling_.OnCrewKept();
}

void Recovery::AwaitResumed() {
  if (board_.members.unresumed() > 0) board_.SetDeadline(board_.now() + board_.policy.HandlerLimit());
}

void Recovery::OnResumed(Rank rank) {
  Member& member = board_.At(rank);
  if (!board_.InTraining() || member.resumed) return;
  board_.members.SetResumed(member, true);
  if (board_.phase() == Phase::kConfirm) return;
  // It answers no order: one that came after it, to compare or to save, may be under way.
  if (board_.incident.open())
    board_.incident.NoteRank({rank, Phase::kRunning, board_.incident.attempt(), member.wait_began, board_.now()});
  if (board_.members.unresumed() > 0) return;
  board_.SetDeadline(TimePoint::Max());
  hangs_.Start();
  snapshots_.Arm();
  if (!board_.incident.open()) return;
  board_.incident.record().resumed_at = board_.now();
  board_.CloseIncident();
}

void Recovery::GoOn() {
  hangs_.Start();
  AwaitResumed();
  snapshots_.Arm();
  saves_.MaybeFinish();
  saves_.BeginRequested();
}

}  // namespace kintsugi::core
