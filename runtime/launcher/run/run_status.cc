// What a controller knows by itself of what can be seen of a run.
#include "runtime/launcher/run/run_status.h"

#include "runtime/controller/controller.h"
#include "runtime/launcher/run/progress_meter.h"

namespace kintsugi {

RunStatus StatusOf(Controller& controller, const std::string& job, const std::string& host) {
  const core::ControllerCore& core = controller.core();
  const ReportLedger& reports = controller.reports();
  RunStatus status;
  status.at = SteadyClock::SteadyNow();
  status.job = job;
  status.address = host + ":" + std::to_string(controller.port());
  status.world_size = static_cast<int>(core.crew().size());
  status.places = core.crew().seats();
  status.ranks_wanted = core.ranks_wanted();
  status.phase = core.phase();
  status.term = core.term();
  status.generation = core.generation();
  status.step = NewestStep(controller);
  status.loss = reports.LossOf(reports.newest());
  status.incidents = core.incidents();
  if (const auto& incident = core.incident(); incident && incident->parked_at)
    status.standing_since = incident->fault_at;
  status.pause_asked = core.saves().pause_asked();
  status.paused_at = core.saves().paused_at();
  status.snapshot = core.snapshots().table().newest();
  status.snapshots_made = core.snapshots().made();
  status.snapshots_abandoned = core.snapshots().abandoned();
  status.dropped_messages = core.dropped_messages();
  status.refused_frames = controller.refused_frames();
  status.refused_reports = reports.refused();
  status.connections = controller.counters();
  for (Rank rank : core.crew().ranks()) {
    const auto& member = core.members()[static_cast<size_t>(rank.value())];
    status.ranks.push_back({.rank = rank,
                            .incarnation = member.incarnation,
                            .life = member.life,
                            .connected = member.connected,
                            .pid = member.pid,
                            .respawns = member.respawns,
                            .late = core.LateBy(rank)});
  }
  return status;
}

}  // namespace kintsugi
