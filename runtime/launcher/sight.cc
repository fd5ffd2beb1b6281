// What can be seen of the run, as plain data.
#include <algorithm>

#include "runtime/launcher/leader.h"
#include "runtime/launcher/node_parts.h"

namespace kintsugi {

RunSight SightOf(Controller& controller, const std::string& job, const std::string& host) {
  const core::ControllerCore& core = controller.core();
  const ReportLedger& reports = controller.reports();
  RunSight sight;
  sight.at = SteadyClock::SteadyNow();
  sight.job = job;
  sight.address = host + ":" + std::to_string(controller.port());
  sight.world_size = static_cast<int>(core.members().size());
  sight.phase = core.phase();
  sight.term = core.term();
  sight.generation = core.generation();
  sight.step = reports.newest();
  sight.loss = reports.LossOf(sight.step);
  sight.incidents = core.incidents();
  sight.pause_asked = core.saves().pause_asked();
  sight.paused_at = core.saves().paused_at();
  sight.snapshot = core.snapshots().table().newest();
  sight.snapshots_made = core.snapshots().made();
  sight.snapshots_abandoned = core.snapshots().abandoned();
  sight.dropped_messages = core.dropped_messages();
  sight.refused_frames = controller.refused_frames();
  sight.refused_reports = reports.refused();
  sight.connections = controller.counters();
  for (int number = 0; number < sight.world_size; ++number) {
    const auto& member = core.members()[static_cast<size_t>(number)];
    sight.ranks.push_back({.rank = Rank(number),
                           .incarnation = member.incarnation,
                           .life = member.life,
                           .connected = member.connected,
                           .pid = member.pid,
                           .respawns = member.respawns,
                           .late = core.LateBy(Rank(number))});
  }
  return sight;
}

void Leader::LookAt(RankSight* seen) const {
  const RankView& view = views_[static_cast<size_t>(seen->rank.value())];
  seen->node = NodeNumber(run(), NodeOf(seen->rank));
  seen->step = view.step;
  if (!view.page) return;
  seen->gate = core::GateWord::Unpack(view.page->gate_word);
  seen->phase = UnpackProgress(view.page->progress).phase;
}

RunSight Leader::Look() const {
  RunSight sight = SightOf(*controller_, run().job, run().bind_address);
  sight.nodes = run().nodes;
  sight.over = tally_;
  sight.steps = step_times_;
  sight.time = times_.Account(sight.at);
  sight.saves = result_.saves;
  if (run().nodes > 1)
    for (int node : NodesAway()) sight.nodes_away.push_back(NodeNumber(run(), node));
  sight.spares_wanted = run().spares * run().nodes;
  if (run().nodes > 1)
    for (int node : SpareNodes()) {
      sight.spare_nodes.push_back(NodeNumber(run(), node));
      sight.spares_wanted += std::max(run().spares, LocalRanks());
    }
  for (const auto& [node, waiting] : spares_) sight.spares_waiting += waiting;
  for (RankSight& rank : sight.ranks) LookAt(&rank);
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
  result.saves = result_.saves;
  result.begin = result_.begin;
  FillResult(&result);
  return result;
}

}  // namespace kintsugi
