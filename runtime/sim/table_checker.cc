#include "runtime/sim/table_checker.h"

#include <algorithm>

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// After the last fault and the last commit a run goes on or ends within this time: the longest wait of the default
// limits is that of a repair whose receiver never answers, and after it everything is tried once more.
constexpr Duration kProgressLimit = 90s;
// An incident that nothing adds to has an end, whatever its attempts run into.
constexpr Duration kIncidentLimit = 75s;

}  // namespace

void TableChecker::BeginTakeover(std::optional<Generation> confirms) {
  Of() = History();
  Of().phase = Phase::kConfirm;
  Of().before_confirm = confirms;
}

void TableChecker::GiveBack(Rank first, int count) {
  History& history = Of();
  for (int r = first.value(); r < first.value() + count; ++r) --history.spawns[Rank(r)];
}

void TableChecker::CheckTransition(const Transition& transition) {
  History& history = Of();
  if (transition.from != history.phase) sink_.Break(Promise::kTable, "a transition from where the incident is not");
  if (!IsTransition(transition.from, transition.to))
    sink_.Break(Promise::kTable, "no transition " + std::string(PhaseName(transition.from)) + " -> " +
                                     std::string(PhaseName(transition.to)));
  history.phase = transition.to;
  if (transition.to == Phase::kConfirm) history.before_confirm = world_.core().generation();
  if (transition.to == Phase::kLock && history.lock_generation.value() > 0 &&
      transition.generation < history.lock_generation)
    sink_.Break(Promise::kTable, "LOCK of an older generation");
  if (transition.from == Phase::kLock && transition.to != Phase::kEnded) {
    if (transition.generation < history.lock_generation ||
        (transition.generation == history.lock_generation && transition.to != Phase::kLock))
      sink_.Break(Promise::kTable, "an attempt without a generation of its own");
    if (transition.to != Phase::kLock) history.lock_generation = transition.generation;
  }
  if (transition.from == Phase::kConfirm && transition.to == Phase::kRunning && history.before_confirm &&
      transition.generation != history.before_confirm)
    sink_.Break(Promise::kTable, "a healed gap cost a generation");
  if (transition.from == Phase::kEnded) sink_.Break(Promise::kTable, "a transition after the end");
}

void TableChecker::CheckSpawn(Rank rank, Incarnation incarnation) {
  History& history = Of();
  // One that comes into the run begins anew.
  if (!world_.core().crew().Has(rank)) history.spawns[rank] = history.rescues[rank] = 0;
  // One that is started only to save what is held is outside of the budget. A rank that is lost in DUMP is started anew
  // at once, before the phase changes, so that only the sum tells the two kinds apart there.
  ++(history.phase == Phase::kDump ? history.rescues : history.spawns)[rank];
  const int budget = 1 + world_.plan.policy.max_respawns;
  const int rescues = world_.core().members()[static_cast<size_t>(rank.value())].rescues;
  if (rescues > 2 || history.spawns[rank] > budget || history.spawns[rank] + history.rescues[rank] > budget + 2)
    sink_.Break(Promise::kTable, "rank " + rank.ToString() + " is started beyond its budget");
  if (world_.seat().ended) sink_.Break(Promise::kTable, "a process is started after the end");
  const Process* const before = world_.processes.Newest(rank);
  if (!before || world_.plan.elections) return;
  if (incarnation <= before->incarnation) sink_.Break(Promise::kOneDecider, "incarnations do not grow");
  if (before->alive && !world_.seat().given_up.count({rank, before->incarnation}))
    sink_.Break(Promise::kOneDecider, "rank " + rank.ToString() + " is started while it lives");
}

void TableChecker::CheckSend(const Send& send) {
  const auto* reply = std::get_if<JoinReply>(&send.message);
  if (reply && !reply->accepted) return;
  const auto* order = std::get_if<PhaseOrder>(&send.message);
  // Where all that had a shard at one step are lost, those that live may have to go back to what launchers hold.
  if (order && world_.plan.gate != GateKind::kOff && !(world_.plan.policy.adopts && world_.ShardAtRisk()))
    for (const RepairMove& move : order->moves)
      // What a rank holds of a snapshot a controller that took over may have heard too late.
      if (!world_.losses.lost(move.destination.value()) &&
          !(move.snapshot_of.value() >= 0 && world_.core().policy().takes_over))
        sink_.Break(Promise::kInnocent,
                    "rank " + move.destination.ToString() + ", which nothing struck, needs a repair");
  if (world_.seat().given_up.count({send.header.rank, send.header.incarnation}))
    sink_.Break(Promise::kOneDecider, "incarnation " + send.header.incarnation.ToString() + " of rank " +
                                          send.header.rank.ToString() + " is spoken to after its death");
}

void TableChecker::CheckKill(const KillProcess& kill) {
  if (world_.core().phase() != Phase::kEnded && !world_.losses.lost(kill.rank.value()) &&
      kill.incarnation == Incarnation(1))
    sink_.Break(Promise::kInnocent,
                "rank " + kill.rank.ToString() + ", which nothing struck, is given up: " + kill.reason);
}

void TableChecker::CheckCrew(const core::CrewChanged& crew) {
  const int ranks = static_cast<int>(crew.ranks.size());
  int& word = Of().word;
  if (crew.left.empty() && crew.came.empty()) return;  // told again
  if (ranks == world_.core().ranks_wanted())
    word = ranks;
  else if (!crew.came.empty() && word > 0 && ranks > word)
    sink_.Break(Promise::kTable, "the run has " + std::to_string(ranks) + " ranks again, and an operator wanted " +
                                     std::to_string(word));
}

// What was asked for costs no step that somebody holds.
void TableChecker::CheckIncident(const core::IncidentRecord& record) {
  const auto& struck = world_.outcome.struck;
  const bool deaths_alone = std::all_of(struck.begin(), struck.end(), [](const auto& fault) {
    const FaultType type = fault.first.second;
    return type == FaultType::kReplace || type == FaultType::kDrain || type == FaultType::kKill ||
           type == FaultType::kExit || type == FaultType::kSave;
  });
  if (!world_.losses.asked() || !deaths_alone || world_.ShardAtRisk() || world_.plan.gate == GateKind::kOff ||
      record.rung != Rung::kReload || !record.step || !record.begun)
    return;
  if (record.begun->value() > record.step->value() + 1)
    sink_.Break(Promise::kInnocent, "steps after " + record.step->ToString() + " are done again, up to " +
                                        record.begun->ToString() + ", although every shard was held");
}

// What one event sets off is bounded by the world: orders, kills, spawns, and the records of one incident.
void TableChecker::CheckActions(size_t count) {
  if (count > 64 + 16 * world_.size)
    sink_.Break(Promise::kBounds, "one event gives " + std::to_string(count) + " actions");
}

void TableChecker::CheckWaits() {
  if (!world_.core().WaitsAreBounded())
    sink_.Break(Promise::kBounds, "a wait without a deadline in " + std::string(PhaseName(world_.core().phase())));
}

void TableChecker::CheckProgress() {
  const auto& incident = world_.core().incident();
  if (incident && world_.Now() - std::max(incident->detected_at, world_.course.last_struck) > kIncidentLimit)
    sink_.Break(Promise::kProgress, "an incident has no end: " + std::to_string(incident->attempts) +
                                        " attempts within " + Milliseconds(world_.Now() - incident->detected_at) +
                                        " ms");
  if (world_.Now() - world_.course.last_progress > kProgressLimit)
    sink_.Break(Promise::kProgress, "nothing moves in " + std::string(PhaseName(world_.core().phase())) + " for " +
                                        Milliseconds(kProgressLimit) + " ms");
}

void TableChecker::CheckObeyed(const Process& p, Generation generation, const char* what) {
  if (generation >= p.newest_heard) return;
  sink_.Break(Promise::kOneDecider, "rank " + p.rank.ToString() + " " + what + " of generation " +
                                        generation.ToString() + " and has heard of " + p.newest_heard.ToString());
}

void TableChecker::CheckRefused(const Process& p, bool refused, Term term) {
  if (refused) return;
  sink_.Break(Promise::kOneDecider, "rank " + p.rank.ToString() + " obeys term " + std::to_string(term.number) +
                                        " and has heard of term " + std::to_string(p.newest_term.number));
}

}  // namespace kintsugi::sim
