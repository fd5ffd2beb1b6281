#include "runtime/core/halt.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace kintsugi::core {
namespace {

using enum HaltState;

// More attempts than any sequence of real faults needs: something is wrong that recovery cannot mend.
constexpr int kAttemptsMax = 100;
// So many are told of, and twice as many, and so on: a power of two.
constexpr int kAttemptsUntold = 4;
// From the order to kill a process to its launcher's word that it has ended, where that launcher is here.
constexpr Duration kReapLimit = std::chrono::seconds(1);
// From one such word to the next of processes that were killed together.
constexpr Duration kNextWord = std::chrono::milliseconds(100);

}  // namespace

Halt::Halt(Machines& below)
    : board_(below.board),
      processes_(below.processes),
      end_(below.end),
      survey_(below.survey),
      hangs_(below.hangs),
      rounds_(below.rounds),
      gate_(below.gate),
      checkpoints_(below.checkpoints),
      repeats_(below.repeats),
      scaling_(below.scaling),
      saves_(below.saves),
      comparison_(below.comparison),
      rescue_(below.rescue),
      recovery_(below.recovery) {}

void Halt::SetState(HaltState to) {
  KINTSUGI_CHECK(IsTransition(state_, to), "no transition of a halt " + std::string(HaltStateName(state_)) + " -> " +
                                               std::string(HaltStateName(to)) + " in " +
                                               std::string(PhaseName(board_.phase())));
  state_ = to;
}

// ---- LOCK --------------------------------------------------------------------------------------------------------

void Halt::Lock(const std::string& reason) {
  if (board_.course.listening) return;  // once it is known who is there
  KINTSUGI_CHECK(board_.incident.open(), "LOCK without an incident");
  if (board_.incident.attempt() >= kAttemptsMax + 2 * board_.policy.world_size)
    return end_.EndWithoutSave("gave up after " + std::to_string(board_.incident.attempt()) +
                               " attempts at one incident; last: " + reason);
  CheckLength(reason);
  saves_.Cancel();
  board_.SetPhase(Phase::kLock, reason);
  SetState(kAnswers);
  board_.members.Check();
  board_.RaiseGeneration(board_.NextGeneration());
  board_.incident.BeginAttempt(reason, board_.generation());
  board_.plan.moves.clear();
  board_.plan.replaced.clear();
  rounds_.Disarm();
  GoBackToCrew(reason);
  for (Rank rank : board_.members.ranks()) {
    Member& member = board_.At(rank);
    // Until it answers, a rank offers nothing; a process that joins during LOCK answers to the next one.
    member.report = {rank, GateState::kCommitted, {}, false};
    board_.members.SetResumed(member, false);
    member.finished.reset();
    member.finished_changed = false;
    member.save_point.reset();
    member.left_save_point.reset();
    member.objects_ahead = false;
    if (member.life == Life::kReady) member.parked = false;
  }
  KINTSUGI_CHECK(static_cast<size_t>(board_.members.unresumed()) == board_.members.crew().size(),
                 "all are locked, and a rank counts as being in its loop");
  gate_.Close(board_.members.crew());
  rescue_.Forget();
  board_.Order(board_.LiveRanks(), board_.policy.LockLimit(), [](Rank) { return LockOrder{}; });
  if (board_.NobodyWaits()) AfterLock();
}

// An attempt in another world that did not bring the run back: all that took part before do so again, until it is known
// what they hold. But where ranks came who were found to hold by now what those before have lost, it is the run's.
void Halt::GoBackToCrew(const std::string& reason) {
  Roster& members = board_.members;
  const bool relayout = board_.plan.relayout.has_value();
  if (members.crew() == members.kept() && !relayout) return;
  KINTSUGI_CHECK(before_.has_value(), "the crew was changed, and what the one before held is forgotten");
  const ReplicaMap before = *std::exchange(before_, std::nullopt);
  if (relayout && LeaveRelayout(before, reason)) return TakeCut();
  if (!relayout && members.crew().size() > members.kept().size() &&
      !HoldsAll(before, [&](Rank rank) { return Holds(rank, members.kept()); }) &&
      HoldsAll(board_.replicas(), [&](Rank rank) { return Holds(rank, members.crew()); }))
    return recovery_.SettleCrew();
  members.Revert();
  board_.registered.Use(before);
  comparison_.ForgetRecord();
  if (scaling_.waits()) scaling_.Refuse("a fault came in between: " + reason);
}

// What was registered before counts still, and is as it was. True: but it is not all there any more, and what was cut anew, on which
// all have agreed, is. As far as it is known before they have answered.
bool Halt::LeaveRelayout(const ReplicaMap& before, const std::string& reason) {
  RepairPlan& plan = board_.plan;
  const bool lost = !HoldsAll(before, [&](Rank rank) { return Holds(rank, board_.members.kept()); });
  plan.relayout.reset();
  plan.holders.clear();
  if (plan.cut && lost && HoldsAll(plan.cut->map, [this](Rank rank) { return IsWhole(rank) || IsGiven(rank); }))
    return true;
  ++plan.relayouts_failed;
  plan.relayout_failure = reason;
  plan.cut ? plan.cut->given.clear() : DropCut();
  return false;
}

bool Halt::Holds(Rank rank, const Crew& crew) const {
  return crew.Has(rank) && (IsWhole(rank) || board_.At(rank).trust.held());
}

bool Halt::IsWhole(Rank rank) const {
  return board_.At(rank).life == Life::kReady && !board_.At(rank).trust.needs_repair();
}

// It was given all it has, and nothing has struck it since.
bool Halt::IsGiven(Rank rank) const {
  const std::vector<Rank>& given = board_.plan.cut->given;
  return board_.At(rank).life == Life::kReady && std::binary_search(given.begin(), given.end(), rank);
}

bool Halt::HoldsAll(const ReplicaMap& map, const std::function<bool(Rank)>& holds) const {
  return std::all_of(map.shards().begin(), map.shards().end(), [&](const ReplicaMap::Shard& shard) {
    return std::any_of(shard.holders.begin(), shard.holders.end(), holds);
  });
}

// It is the run's from here on. What launchers hold of those that are lost is as it was registered before.
void Halt::TakeCut() {
  const RepairPlan::Cut cut = *board_.plan.cut;
  for (Rank rank : cut.crew.ranks()) {
    Trust& trust = board_.At(rank).trust;
    if (!IsGiven(rank)) {
      trust.DoubtHeld();
      continue;
    }
    trust.Settle();
    trust.Outgrow();
  }
  board_.plan.cut.reset();
  board_.members.Change(cut.crew);
  board_.registered.Use(cut.map);
  board_.registered.TakeNext(board_.members, cut.crew, cut.generation);
  comparison_.ForgetRecord();
  board_.Note(Rank(0), "what was held before is lost: on with what was cut anew, among " + cut.crew.ToString());
  recovery_.SettleCrew();
}

// What is lost of what was registered before may show as late as here: those that live and answer hold both.
bool Halt::TakeCutWhereNeeded() {
  RepairPlan& plan = board_.plan;
  if (plan.choice.step || !plan.cut) return false;
  std::vector<LockReport> reports;
  for (Rank rank : board_.LiveRanks())
    if (plan.cut->crew.Has(rank)) reports.push_back(board_.At(rank).report);
  const StepChoice choice = ChooseStep(reports, plan.cut->map);
  if (!choice.step) return false;
  plan.choice = choice;
  TakeCut();
  return true;
}

// The next orders say that it does not count.
void Halt::DropCut() {
  board_.plan.cut.reset();
  for (size_t seat = 0; seat < board_.members.seats(); ++seat) board_.members[seat].next.reset();
}

// Faults follow each other, and attempts that fail for themselves: the first ones pass unnoticed, and none goes on for ever.
void Halt::CheckLength(const std::string& reason) {
  const IncidentRecord& record = board_.incident.record();
  const int attempts = board_.incident.attempt();
  const Duration since = board_.now() - record.detected_at;
  if (attempts < kAttemptsUntold) return;
  if ((attempts & (attempts - 1)) == 0) board_.Act(AttemptsGrow{record.id, attempts, since, reason});
  if (since < board_.policy.IncidentLimit() || !board_.course.given_up.empty()) return;
  board_.course.given_up = "the run did not come back in " + std::to_string(attempts) + " attempts within " +
                           WholeSeconds(since) + ": save and leave; last: " + reason;
  board_.Note(Rank(0), board_.course.given_up);
}

void Halt::OnLockReply(Rank rank, const LockReply& reply) {
  Member& member = board_.At(rank);
  if (board_.phase() != Phase::kLock || !member.waiting) return;
  board_.Heard(rank, Phase::kLock);
  // Later attempts lock ranks that stand where the earlier ones left them.
  if (board_.course.ever_ran && board_.incident.attempt() == 1) {
    std::optional<Step>& begun = board_.incident.record().begun;
    begun = std::max(begun.value_or(Step()), reply.step);
  }
  if (reply.state == GateState::kUpdating || reply.state == GateState::kTorn) member.trust.Widen();
  // A rank with a few damaged tensors still stands at a step, but its shard is not an offer.
  member.report = {rank, reply.state, reply.step, reply.valid && !member.trust.needs_repair()};
  if (board_.NobodyWaits()) AfterLock();
}

void Halt::AfterLock() {
  KINTSUGI_CHECK(board_.phase() == Phase::kLock && board_.NobodyWaits(), "LOCK is over before all have answered");
  if (!board_.majority.MayGoOn(board_.members, board_.now())) return AwaitMajority();
  recovery_.MapWhatIsKnown();
  board_.plan.choice = board_.registered.mapped() ? ChooseStep(Reports(), board_.replicas()) : StepChoice{};
  if (!TakeCutWhereNeeded() && !board_.plan.choice.step && AwaitAway()) return;
  Stop();
}

std::vector<LockReport> Halt::Reports() const {
  std::vector<LockReport> reports;
  for (Rank rank : board_.LiveRanks()) {
    const Member& member = board_.At(rank);
    KINTSUGI_CHECK(!member.report.valid || !member.trust.needs_repair(),
                   "rank " + rank.ToString() + " needs a repair and counts as holding a step");
    reports.push_back(member.report);
  }
  AddHeld(&reports);
  return reports;
}

// What is held counts like the report of a rank that waits there. After an error of the process's own it counts only
// beside a second copy, with which it is compared.
void Halt::AddHeld(std::vector<LockReport>* reports) const {
  for (Rank rank : board_.members.ranks()) {
    const Member& member = board_.At(rank);
    const std::optional<HeldState>& held = member.trust.held();
    if (!held || (member.life == Life::kReady && !member.trust.fresh())) continue;
    reports->push_back({.rank = rank, .state = GateState::kCommitted, .step = held->step, .doubtful = !held->clean});
  }
}

// ---- what is waited for beside the ranks that are here -----------------------------------------------------------

void Halt::AwaitMajority() {
  SetState(kMajority);
  if (board_.majority.Await(board_.now()))
    board_.Note(Rank(0), "no majority: the ranks that answer wait for the others, " +
                             WholeSeconds(board_.majority.wait()) + " at most; then they save and leave");
  board_.SetDeadline(board_.majority.until());
  // Who was found at the take-over and has not come may hang: once its launcher has ended it, and it is ours, it
  // counts.
  for (Rank rank : board_.members.ranks())
    if (const Member& member = board_.At(rank);
        member.life == Life::kStarting && member.unconfirmed == member.incarnation)
      processes_.Kill(rank, "it did not come to the new controller");
  AskWitnessWhereItDecides();
}

// Nothing waits for its answer that would not wait anyway.
void Halt::AskWitnessWhereItDecides() {
  if (board_.now() < board_.deadline() && board_.majority.Count(board_.members) == Consent::kAskWitness)
    board_.Act(AskWitness{});
}

void Halt::ReconsiderMajority() {
  if (state_ != kMajority || !board_.NobodyWaits()) return;
  board_.majority.Has(board_.members, board_.now()) ? AfterLock() : AskWitnessWhereItDecides();
}

void Halt::CheckWord() {
  if (board_.majority.LostWord(board_.members, board_.now())) Lock("the witness's word is not ours any more");
}

// Until when somebody may still say what a process holds that was given up: its launcher is about to see its end, its
// node is away and may come back, or has come back and ends one after the other.
TimePoint Halt::AwayUntil() const {
  TimePoint until;
  if (!board_.policy.adopts || !board_.course.ever_ran) return until;
  const Duration limit = board_.policy.needs_consent && !board_.course.leaving ? board_.majority.wait() : kReapLimit;
  for (const Member& member : board_.members)
    if (member.unconfirmed) until = std::max({until, member.given_up_at + limit, next_word_until_});
  return until;
}

// Where nobody who answers holds all that is needed, what those hold who do not answer is worth waiting for.
bool Halt::AwaitAway() {
  const TimePoint until = AwayUntil();
  if (until <= board_.now()) return false;
  const bool late = board_.phase() == Phase::kStop;
  if (late || until > board_.now() + kReapLimit)
    board_.Note(Rank(0), "a shard is held by nobody who answers: waiting for what was given up, " +
                             WholeSeconds(until - board_.now()) + " at most");
  SetState(late ? kAwayLate : kAway);
  board_.SetDeadline(until);
  return true;
}

// The last resort. All copies of the newest state are lost, and of the process before a live one its launcher still holds
// an older step: the live one gives its place up to another that adopts that.
bool Halt::GiveWayToHeld() {
  const auto held = [this](Rank rank) {
    const Trust& trust = board_.At(rank).trust;
    return !trust.fresh() && trust.held() && trust.held()->clean ? trust.held() : std::nullopt;
  };
  std::vector<LockReport> reports;
  for (Rank rank : board_.LiveRanks()) {
    const Member& member = board_.At(rank);
    if (const auto older = held(rank))
      reports.push_back({.rank = rank, .step = older->step});
    else if (!member.trust.needs_repair())
      reports.push_back(member.report);
  }
  AddHeld(&reports);
  const StepChoice choice = board_.registered.mapped() ? ChooseStep(reports, board_.replicas()) : StepChoice{};
  if (!choice.step) return false;
  std::vector<Rank> give_way = board_.LiveRanks();
  std::erase_if(give_way, [&](Rank rank) { return !held(rank) || held(rank)->step != *choice.step; });
  if (give_way.empty()) return false;
  const std::string why = "of step " + choice.step->ToString() + " its launcher holds what nobody else has";
  for (Rank rank : give_way) {
    board_.Note(rank, why);
    board_.At(rank).trust.Find(/*fresh=*/true);  // what it held counts no more than what one that has just begun does
    processes_.Kill(rank, why);
    processes_.Respawn(rank);
  }
  Lock(why);
  return true;
}

// The ends of those that were killed together are told together. In STOP the step was chosen without it: all meet anew.
void Halt::OnExitKnown() {
  next_word_until_ = board_.now() + kNextWord;
  ReconsiderMajority();
  if ((state_ != kAway && state_ != kAwayLate) || !board_.NobodyWaits()) return;
  if (state_ == kAwayLate) return Lock("what a lost process held is known");
  const bool all = std::none_of(board_.members.begin(), board_.members.end(),
                                [](const Member& m) { return m.unconfirmed.has_value(); });
  if (all) return AfterLock();
  board_.SetDeadline(std::min(board_.deadline(), next_word_until_));
}

bool Halt::OnDeadline() {
  if (board_.phase() == Phase::kStop && AwaitBusy()) return true;
  if (state_ != kMajority && state_ != kAway && state_ != kAwayLate) return false;
  if (state_ == kMajority) {
    board_.majority.GiveUp();
    Lock("no majority came");  // in a generation that no other part has
  } else {
    state_ == kAwayLate ? AfterStop() : AfterLock();
  }
  return true;
}

// Who is late and busy, by its own word, is waited for: its agent says when it is too late. Others pay first.
bool Halt::AwaitBusy() {
  if (state_ != kParking || board_.course.leaving) return false;
  const std::vector<Rank> late = board_.members.Where([](const Member& m) -> bool { return m.waiting; });
  if (late.empty() || !std::all_of(late.begin(), late.end(), [this](Rank rank) { return hangs_.IsBusy(rank); }))
    return false;
  board_.SetDeadline(board_.now() + board_.policy.StopLimit());
  return true;
}

// ---- STOP --------------------------------------------------------------------------------------------------------

void Halt::Stop() {
  KINTSUGI_CHECK(board_.majority.minority() || board_.majority.Has(board_.members, board_.now()),
                 "ranks are stopped without the consent that generation " + board_.generation().ToString() + " needs");
  const StepChoice& choice = board_.plan.choice;
  board_.SetPhase(Phase::kStop, std::string(StepReasonName(choice.reason)));
  SetState(kParking);
  // Who hangs has had its time already: one rank the learnt limit, all together the longest healthy step.
  const std::optional<Duration> ran_out = board_.incident.TakeRanOut();
  // Where all stand in one place nobody is to blame, and what they are in may be their own: that has its whole time.
  const bool hung =
      ran_out || (board_.incident.record().signal == FaultKind::kHang && !board_.incident.Named().empty());
  Duration limit = hung ? std::min(hangs_.ParkLimit(), board_.policy.StopLimit()) : board_.policy.StopLimit();
  if (ran_out) limit = std::min(limit, *ran_out);
  // What is left of the grace period is for writing.
  Duration stop_limit = board_.policy.StopHandlerLimit();
  if (board_.course.leaving) {
    limit = std::min(limit, board_.policy.grace / 4);
    stop_limit = std::min(stop_limit, board_.policy.grace / 8);
  }
  const StopOrder order{choice.step.value_or(Step()),
                        choice.step.has_value(),
                        stop_limit,
                        limit,
                        board_.incident.Named(),
                        board_.course.leaving ? Duration() : board_.policy.Hangs().activity};
  // Who exceeds one of its limits is told of by its agent; here the sum of the longest is the bound.
  board_.Order(board_.LiveRanks(), order.stop_limit + order.park_limit, [&](Rank rank) {
    StopOrder each = order;
    each.step_limit = StepLimit(rank);
    return each;
  });
  if (board_.NobodyWaits()) AfterStop();
}

// The stop handler has freed it of what it waited for, whatever the incident began with: it has as long to come out of
// its step as it may stand still in one.
Duration Halt::StepLimit(Rank rank) const {
  const IncidentRecord& record = *board_.incident.current();
  const bool together = record.signal == FaultKind::kHang && record.ranks.empty();
  return together ? Duration() : hangs_.StepLimit(rank).value_or(Duration());
}

void Halt::OnParked(Rank rank, const Parked& parked) {
  Member& member = board_.At(rank);
  if (board_.phase() != Phase::kStop || !member.waiting) return;
  board_.Heard(rank, Phase::kStop);
  member.parked = true;
  member.objects_ahead = parked.objects_ahead;
  const StepChoice& choice = board_.plan.choice;
  const bool at_step = choice.step && parked.state == GateState::kCommitted && parked.step == *choice.step;
  // One with damaged tensors that went on at its gate has computed with them.
  const bool spread = member.report.state == GateState::kAtGate && choice.step == member.report.step;
  // Before the run ever went nobody stands at a step.
  if (board_.course.ever_ran && (!parked.valid || !at_step || (member.trust.needs_repair() && spread)))
    member.trust.Tear();  // more than the named tensors
  if (board_.NobodyWaits()) AfterStop();
}

// ---- the choice --------------------------------------------------------------------------------------------------

void Halt::AfterStop() {
  KINTSUGI_CHECK(board_.phase() == Phase::kStop && board_.NobodyWaits(), "STOP is over before all are parked");
  board_.incident.record().parked_at = board_.now();
  // Beside a lost process an exception may be no more than its echo: then nothing is counted.
  repeats_.CountFailures(
      board_.members.all_ready() && board_.members.Where([](const Member& m) { return m.trust.fresh(); }).empty(),
      board_.incident.attempt() == 1);
  if (!board_.course.ever_ran) return RestartStart();
  IncidentFacts facts = survey_.Take();
  board_.plan.decision = Decide(&facts);
  const Rung rung = board_.plan.decision.rung;
  if (rung == Rung::kExit && LacksState(facts, board_.replicas()) && (AwaitAway() || GiveWayToHeld())) return;
  if (board_.plan.cut) DropCut();
  SetState(kNone);
  board_.incident.Try(board_.plan.decision);
  if (rung == Rung::kReload) ReloadFrom(facts);
  if (board_.plan.decision.crew) ChangeCrew(&facts);
  board_.incident.record().step = board_.plan.choice.step;
  if (rung == Rung::kDump) return rescue_.Enter();
  if (rung == Rung::kExit) return end_.EndWithoutSave(WhyNoRung());
  if (board_.plan.FromSnapshot())
    board_.plan.moves = rounds_.table().PlanMoves(board_.replicas(), *board_.plan.choice.step);
  else if (board_.plan.relayout)
    board_.plan.moves.clear();  // nobody gets what another holds
  else if (rung != Rung::kReload)
    board_.plan.moves = PlanMoves(facts, board_.replicas());
  recovery_.Enter(std::string(RungName(rung)));
}

RungDecision Halt::Decide(IncidentFacts* facts) {
  FindOlder(facts);
  facts->smaller = survey_.FindSmaller(*facts);
  facts->asked = scaling_.TakeWanted();
  RungDecision decision = DecideRung(*facts, board_.replicas());
  if (decision.rung != Rung::kRetry || !IsRetriedInVain()) return decision;
  facts->leaving = repeats_.hopeless();
  return DecideRung(*facts, board_.replicas());
}

// What a reload may go back to: it holds nothing that may be damaged, nor, where there is something as old as that, what the
// ranks leave out.
void Halt::FindOlder(IncidentFacts* facts) {
  RepairPlan& plan = board_.plan;
  const auto find = [&](const std::optional<Step>& before) {
    const SnapshotTable::Usable usable = rounds_.FindUsable(board_.replicas(), before);
    facts->snapshot = usable.step;
    facts->no_snapshot = usable.why;
    const Checkpoint* checkpoint = checkpoints_.NewestBefore(before);
    facts->checkpoint_exists = checkpoint != nullptr;
    facts->checkpoint = checkpoint ? std::optional(checkpoint->step) : std::nullopt;
    for (RankFacts& rank : facts->ranks) rank.has_snapshot = usable.step && rounds_.table().Keeps(rank.rank);
    plan.reload_before = before;
  };
  if (plan.back_from && (!plan.choice.step || *plan.choice.step >= *plan.back_from)) {
    facts->back_from = plan.back_from;
    find(std::min(*plan.back_from, plan.suspect_from.value_or(*plan.back_from)));
    facts->goes_back = facts->snapshot || facts->checkpoint_exists;
    if (facts->goes_back) return;
  }
  find(plan.suspect_from);
  facts->goes_back = facts->back_from && facts->snapshot && plan.choice.step && *facts->snapshot < *plan.choice.step;
  if (facts->goes_back) find(facts->snapshot->Next());
}

// A collective that fails at one step again and again, with nobody to blame. Of an incident the first attempt counts:
// while a network is down, many fail within a second.
bool Halt::IsRetriedInVain() {
  if (board_.incident.record().signal != FaultKind::kCommError || !board_.plan.choice.step ||
      board_.incident.attempt() != 1)
    return false;
  return repeats_.Retried(*board_.plan.choice.step, board_.incident.record().cause);
}

// The world of this attempt. Who leaves stays parked, with what it holds, until the run has gone on: a fault before that
// comes back to all of them. Who comes has nothing yet.
void Halt::ChangeCrew(IncidentFacts* facts) {
  const Crew crew = *board_.plan.decision.crew;
  before_ = board_.replicas();
  if (survey_.OffersAnyLayout()) {
    BeginRelayout(crew, *facts);
  } else {
    Result<ReplicaMap> map = board_.registered.MapOf(board_.members, crew, board_.policy.takes_over);
    KINTSUGI_CHECK(map.ok(), "another world was chosen that has no map: " + map.status().message());
    board_.members.Change(crew);
    board_.registered.Use(std::move(map).value());
  }
  comparison_.ForgetRecord();  // digests are over what partners mirror, too
  gate_.Close(crew);
  *facts = survey_.Take();
}

// Who leaves takes part until what it holds is elsewhere. The map of what they hold then is made once all have cut it.
void Halt::BeginRelayout(const Crew& crew, const IncidentFacts& facts) {
  const std::optional<Step> back_to = board_.plan.decision.rung == Rung::kShrink ? facts.smaller.back_to : std::nullopt;
  board_.plan.reload_snapshot = back_to.has_value();
  if (back_to) board_.plan.choice = {back_to, StepReason::kAbandoned};
  std::vector<Rank> leaving;
  for (const RankFacts& rank : facts.ranks) {
    if (back_to ? !rank.has_snapshot : rank.condition != Condition::kGood) continue;
    board_.plan.holders.push_back(rank.rank);
    if (!crew.Has(rank.rank)) leaving.push_back(rank.rank);
  }
  KINTSUGI_CHECK(!board_.plan.holders.empty(), "state is cut anew that nobody holds");
  board_.plan.relayout = crew;
  board_.members.Change(crew.With(leaving));
}

void Halt::ReloadFrom(const IncidentFacts& facts) {
  RepairPlan& plan = board_.plan;
  plan.reload_snapshot = ReloadsFromSnapshot(facts);
  const Checkpoint* checkpoint = checkpoints_.NewestBefore(plan.reload_before);
  KINTSUGI_CHECK(plan.reload_snapshot ? facts.snapshot.has_value() : checkpoint != nullptr,
                 "a reload was chosen, and there is nothing to reload");
  if (!plan.reload_snapshot) plan.reload = *checkpoint;
  plan.choice = {plan.reload_snapshot ? *facts.snapshot : plan.reload.step, StepReason::kAbandoned};
  for (Member& member : board_.members) member.trust.Tear();
}

std::string Halt::WhyNoRung() const {
  const std::string found_none = "no rung of the ladder holds: ";
  if (!repeats_.hopeless().empty()) return found_none + repeats_.hopeless();
  const std::vector<RungReason>& reasons = board_.plan.decision.reasons;
  const std::string last = reasons.size() < 2 ? "" : reasons[reasons.size() - 2].text;  // the last rung before it
  return board_.incident.FirstCause() + found_none + last;
}

void Halt::RestartStart() {
  SetState(kNone);
  if (board_.majority.minority()) return end_.End(kExitStartup, "no majority of the ranks came");
  if (!board_.course.given_up.empty()) return end_.EndUnbegun(board_.course.given_up);
  // Nothing is lost yet: everybody starts from the registered state or the checkpoint. Where that is damaged, a new
  // process registers it again.
  for (Rank rank : board_.LiveRanks())
    if (board_.At(rank).trust.needs_repair()) {
      processes_.Kill(rank, "its state was damaged before the run began");
      processes_.Respawn(rank);
    }
  for (Rank rank : board_.members.Where([](const Member& m) { return m.life == Life::kDead; }))
    return end_.End(kExitStartup, NoRespawnText(rank, board_.At(rank).start_failure));
  board_.plan.choice = {board_.policy.resume_step, StepReason::kAbandoned};
  board_.plan.decision = {Rung::kRespawn, {}};
  board_.incident.record().step = board_.plan.choice.step;
  board_.incident.record().rung = Rung::kRespawn;
  for (Member& member : board_.members) member.trust.Settle();
  recovery_.Enter("the run has not begun");
}

}  // namespace kintsugi::core
