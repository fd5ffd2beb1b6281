// The run's loop, its time and its log.
#include <array>

#include "runtime/sim/elections.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

// Longer than any sequence of deadlines that the faults of a plan can use up, on top of the steps themselves.
constexpr Duration kHang = 900s;

}  // namespace

std::string_view PromiseName(Promise promise) {
  constexpr std::array<std::string_view, 12> kNames = {"none",        "same_step",  "bit_identical", "update_once",
                                                       "one_decider", "checkpoint", "samples_once",  "progress",
                                                       "bad_input",   "innocent",   "table",         "bounds"};
  return kNames[static_cast<size_t>(promise)];
}

std::string Violation::ToString() const {
  return "promise " + std::to_string(static_cast<int>(promise)) + " (" + std::string(PromiseName(promise)) +
         "): " + text;
}

Cluster::Cluster(Plan plan, LogFunction log, Hook* hook)
    : world_(std::move(plan), std::move(log), hook),
      state_checker_(world_, world_.violations),
      table_checker_(world_, world_.violations),
      election_checker_(world_, world_.violations),
      end_checker_(world_, state_checker_, world_.violations),
      network_(world_, agents_, *this),
      rot_(world_),
      held_(world_, rot_),
      collectives_(world_, trainers_),
      snapshots_(world_, agents_),
      trainers_(world_, state_checker_, collectives_, snapshots_, agents_, handlers_, *this),
      transfers_(world_, state_checker_, rot_, held_, snapshots_, handlers_),
      checkpoints_(world_, state_checker_, rot_, held_, handlers_),
      handlers_(world_, state_checker_, network_, held_, collectives_, trainers_, transfers_, checkpoints_, agents_),
      spares_(world_, *this),
      processes_(world_, rot_, network_, collectives_, transfers_, spares_, *this),
      agents_(world_, state_checker_, table_checker_, held_, network_, collectives_, snapshots_, trainers_, handlers_,
              processes_, *this),
      next_(world_.size) {
  for (const PlannedFault& fault : world_.plan.faults) faults_.push_back({fault});
}

Outcome Cluster::Run() {
  world_.Log("plan: seed " + std::to_string(world_.plan.seed) + ": " + world_.plan.ToString());
  for (size_t i = 0; i < faults_.size(); ++i)
    if (faults_[i].plan.at) world_.In(*faults_[i].plan.at, [this, i] { Strike(faults_[i]); });
  BeginElections();
  const std::vector<ControllerAction> begun = world_.core().Start(world_.Now());
  if (world_.hook) world_.hook->OnStart(world_.Now(), begun);
  for (const ControllerAction& action : begun) Act(action);
  Answer(world_.seat().store.Advance(world_.core().generation()));
  // Where no launcher starts them, somebody else does.
  for (size_t r = 0; r < world_.size && !world_.plan.policy.can_spawn; ++r)
    StartProcess(Rank(static_cast<int32_t>(r)), Incarnation());
  world_.In(world_.plan.tick, [this] { launchers_.empty() ? Tick() : TickSeats(); });
  const TimePoint hang = world_.start + kHang + 2 * static_cast<int64_t>(world_.plan.steps) * world_.plan.step_time;
  try {
    while (!world_.scheduler.empty() && world_.violations.none()) {
      world_.scheduler.RunNext();
      if (world_.Now() > hang)
        world_.Break(Promise::kProgress, "the run hangs in " + std::string(PhaseName(world_.core().phase())));
    }
  } catch (const std::exception& e) {
    world_.Break(Promise::kTable, std::string("exception: ") + e.what());
  }
  return Conclude();
}

Outcome Cluster::Conclude() {
  Outcome& outcome = world_.outcome;
  for (const Seat& seat : world_.seats.all()) outcome.incidents += seat.core().incidents();
  if (world_.violations.none()) {
    // Of several controllers the one that ended well, or else the first that ended at all.
    const RunEnded* ended = nullptr;
    for (const Seat& seat : world_.seats.all())
      if (seat.ended && (!ended || seat.ended->exit_code == kExitSuccess)) ended = &*seat.ended;
    if (ended) {
      outcome.exit_code = ended->exit_code;
      outcome.text = ended->text;
    } else if (world_.plan.elections) {
      outcome.exit_code = kExitStartup;
    }
    end_checker_.CheckEnd(ended);
  }
  outcome.violations = world_.violations.all();
  outcome.took = world_.Now() - world_.start;
  return outcome;
}

void Cluster::Tick() {
  Feed(core::Tick{});
  if (!Over()) table_checker_.CheckProgress();
  if (!world_.seat().ended) world_.In(world_.plan.tick, [this] { Tick(); });
}

}  // namespace kintsugi::sim
