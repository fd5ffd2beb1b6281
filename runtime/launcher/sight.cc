// What the leader can see of the run, as plain data.
#include <algorithm>

#include "runtime/launcher/leader.h"
#include "runtime/launcher/node_parts.h"

namespace kintsugi {

RankSight Leader::LookAt(Rank rank) const {
  const core::ControllerCore& core = controller_->core();
  const auto& member = core.members()[static_cast<size_t>(rank.value())];
  const RankView& view = views_[static_cast<size_t>(rank.value())];
  RankSight seen{.rank = rank,
                 .node = NodeNumber(run(), NodeOf(rank)),
                 .incarnation = member.incarnation,
                 .life = member.life,
                 .connected = member.connected,
                 .pid = member.pid,
                 .step = view.step,
                 .respawns = member.respawns,
                 .late = core.LateBy(rank)};
  if (!view.page) return seen;
  seen.gate = core::GateWord::Unpack(view.page->gate_word);
  seen.phase = UnpackProgress(view.page->progress).phase;
  return seen;
}

RunSight Leader::Look() const {
  const core::ControllerCore& core = controller_->core();
  const ReportLedger& reports = controller_->reports();
  RunSight sight;
  sight.at = SteadyClock::SteadyNow();
  sight.job = run().job;
  sight.address = run().bind_address + ":" + std::to_string(controller_->port());
  sight.world_size = run().policy.world_size;
  sight.nodes = run().nodes;
  sight.phase = core.phase();
  sight.term = core.term();
  sight.generation = core.generation();
  sight.step = reports.newest();
  sight.loss = reports.LossOf(sight.step);
  sight.incidents = core.incidents();
  sight.over = tally_;
  sight.steps = step_times_;
  sight.time = times_.Account(sight.at);
  sight.saves = result_.saves;
  sight.pause_asked = core.pause_asked();
  sight.paused_at = core.paused_at();
  sight.snapshot = core.newest_snapshot();
  sight.snapshots_made = core.snapshots_made();
  sight.snapshots_abandoned = core.snapshots_abandoned();
  sight.dropped_messages = core.dropped_messages();
  sight.refused_frames = controller_->refused_frames();
  sight.refused_reports = reports.refused();
  sight.connections = controller_->counters();
  if (run().nodes > 1)
    for (int node : NodesAway()) sight.nodes_away.push_back(NodeNumber(run(), node));
  sight.spares_wanted = run().spares * run().nodes;
  if (run().nodes > 1)
    for (int node : SpareNodes()) {
      sight.spare_nodes.push_back(NodeNumber(run(), node));
      sight.spares_wanted += std::max(run().spares, LocalRanks());
    }
  for (const auto& [node, waiting] : spares_) sight.spares_waiting += waiting;
  for (int rank = 0; rank < run().policy.world_size; ++rank) sight.ranks.push_back(LookAt(Rank(rank)));
  return sight;
}

RunResult Leader::ResultSoFar() const {
  RunResult result;
  result.exit_code = result_.exit_code;
  result.text = result_.text;
  result.committed = ended_ ? result_.committed : controller_->reports().newest();
  result.incidents = result_.incidents;
  if (const auto& under_way = controller_->core().incident()) result.incidents.push_back({*under_way, std::nullopt});
  result.lives = result_.lives;
  result.fired = fired_.All();
  result.saves = result_.saves;
  result.begin = result_.begin;
  FillResult(&result);
  return result;
}

}  // namespace kintsugi
