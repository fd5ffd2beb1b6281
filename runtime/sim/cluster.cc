// The parts, the loop, and what becomes of a run.
#include "runtime/sim/cluster.h"

#include <array>

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
      network_(world_, agents_, controllers_, HostsOf()),
      rot_(world_),
      held_(world_, rot_),
      collectives_(world_, trainers_),
      snapshots_(world_, agents_),
      refusals_(world_, processes_),
      trainers_(world_, state_checker_, collectives_, snapshots_, refusals_, agents_, handlers_, faults_),
      relayouts_(world_, state_checker_, held_, snapshots_, handlers_),
      transfers_(world_, state_checker_, rot_, held_, snapshots_, relayouts_, handlers_),
      checkpoints_(world_, state_checker_, rot_, held_, handlers_),
      handlers_(world_, state_checker_, network_, held_, collectives_, refusals_, trainers_, relayouts_, transfers_,
                checkpoints_, agents_),
      spares_(world_, controllers_),
      processes_(world_, rot_, network_, collectives_, transfers_, spares_, HostsOf()),
      agents_(world_, state_checker_, table_checker_, held_, network_, collectives_, snapshots_, trainers_, relayouts_,
              handlers_, processes_, HostsOf()),
      controllers_(world_, table_checker_, election_checker_, end_checker_, network_, HostsOf(), HostsOf(), faults_),
      one_host_(world_, table_checker_, network_, held_, spares_, processes_, agents_, controllers_),
      takeover_(world_, table_checker_, network_, agents_, controllers_, one_host_),
      launchers_(world_),
      lines_(world_, network_, launchers_, followers_, seats_),
      ranks_(world_, held_, processes_, launchers_, lines_),
      seats_(world_, table_checker_, controllers_, launchers_, lines_, ranks_),
      followers_(world_, election_checker_, network_, held_, agents_, launchers_, lines_, ranks_),
      electors_(world_, table_checker_, election_checker_, network_, controllers_, launchers_, ranks_, seats_,
                followers_),
      elected_hosts_(world_, table_checker_, network_, agents_, controllers_, launchers_, ranks_, seats_, electors_),
      node_faults_(world_, election_checker_, network_, collectives_, controllers_, launchers_, lines_, ranks_, seats_,
                   followers_, electors_),
      memory_faults_(world_, rot_, held_, trainers_, transfers_, processes_, agents_),
      process_faults_(world_, processes_, controllers_, takeover_, memory_faults_),
      trainer_faults_(world_, collectives_, transfers_, processes_),
      connection_faults_(world_, network_),
      faults_(world_, HostsOf(), node_faults_, process_faults_, trainer_faults_, memory_faults_, connection_faults_) {}

Hosts& Cluster::HostsOf() {
  if (world_.plan.elections) return elected_hosts_;
  return one_host_;
}

Outcome Cluster::Run() {
  world_.Log("plan: seed " + std::to_string(world_.plan.seed) + ": " + world_.plan.ToString());
  faults_.Begin();
  HostsOf().Prepare();
  controllers_.Begin();
  HostsOf().Begin();
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
    for (Seat& seat : world_.seats.all())
      if (seat.ended && (!ended || seat.ended->exit_code == kExitSuccess)) {
        ended = &*seat.ended;
        world_.seats.Sit(seat);  // it is judged by the crew it knew
      }
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

}  // namespace kintsugi::sim
