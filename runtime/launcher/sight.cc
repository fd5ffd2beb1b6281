// What a controller knows by itself of what can be seen of a run.
#include "runtime/controller/controller.h"
#include "runtime/launcher/progress_meter.h"
#include "runtime/launcher/run_sight.h"

namespace kintsugi {

RunSight SightOf(Controller& controller, const std::string& job, const std::string& host) {
  const core::ControllerCore& core = controller.core();
  const ReportLedger& reports = controller.reports();
  RunSight sight;
  sight.at = SteadyClock::SteadyNow();
  sight.job = job;
  sight.address = host + ":" + std::to_string(controller.port());
  sight.world_size = static_cast<int>(core.crew().size());
  sight.places = core.crew().seats();
  sight.ranks_wanted = core.ranks_wanted();
  sight.phase = core.phase();
  sight.term = core.term();
  sight.generation = core.generation();
  sight.step = NewestStep(controller);
  sight.loss = reports.LossOf(reports.newest());
  sight.incidents = core.incidents();
  if (const auto& incident = core.incident(); incident && incident->parked_at)
    sight.standing_since = incident->fault_at;
  sight.pause_asked = core.saves().pause_asked();
  sight.paused_at = core.saves().paused_at();
  sight.snapshot = core.snapshots().table().newest();
  sight.snapshots_made = core.snapshots().made();
  sight.snapshots_abandoned = core.snapshots().abandoned();
  sight.dropped_messages = core.dropped_messages();
  sight.refused_frames = controller.refused_frames();
  sight.refused_reports = reports.refused();
  sight.connections = controller.counters();
  for (Rank rank : core.crew().ranks()) {
    const auto& member = core.members()[static_cast<size_t>(rank.value())];
    sight.ranks.push_back({.rank = rank,
                           .incarnation = member.incarnation,
                           .life = member.life,
                           .connected = member.connected,
                           .pid = member.pid,
                           .respawns = member.respawns,
                           .late = core.LateBy(rank)});
  }
  return sight;
}

}  // namespace kintsugi
