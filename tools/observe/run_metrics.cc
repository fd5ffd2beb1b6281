#include "tools/observe/run_metrics.h"

#include <array>

#include "runtime/launcher/run/status_line.h"

namespace kintsugi::observe {
namespace {

using Kind = MetricsText::Kind;
using Life = core::ControllerCore::Life;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
double Count(uint64_t count) { return static_cast<double>(count); }

void NodeMetrics(const NodeStatus& status, const Served& served, MetricsText* out) {
  out->Family("kintsugi", Kind::kInfo, "The run that this launcher belongs to, and which of its nodes it is.");
  out->Sample(1, {{"run", status.job}, {"node", std::to_string(status.node)}, {"version", status.version}});
  out->Gauge("kintsugi_leading", status.leads,
             "1 where this launcher leads the run; only that one has the run's metrics.");
  out->Gauge("kintsugi_hears_leader", status.hears_leader, "1 where this launcher hears the leader, or leads itself.");
  out->Gauge("kintsugi_controller_term", Count(status.term.number),
             "Newest term of a leader that this launcher knows.");
  out->Gauge("kintsugi_node_processes", status.processes, "Processes of ranks that run on this host.");
  if (status.certificate_ends)
    out->Gauge("kintsugi_certificate_ends_seconds",
               std::chrono::duration<double>(status.certificate_ends->time_since_epoch()).count(),
               "When this host's certificate, or one that it hangs on, ends: Unix time.", "seconds");
  out->Gauge("kintsugi_linger_seconds", Seconds(served.linger),
             "How long the end is served at most, until somebody has read it (--metrics-linger).", "seconds");
  if (!served.exit_code) return;
  // With the run's name: it is looked for when nothing is served any more, kintsugi_info neither.
  out->Family("kintsugi_exit_code", Kind::kGauge, "The run is over: 0 well, 75 to be resumed, else it failed.");
  out->Sample(*served.exit_code, {{"run", status.job}});
}

void ProgressMetrics(const RunStatus& run, MetricsText* out) {
  out->Family("kintsugi_phase", Kind::kGauge, "1 for the phase that the controller is in.");
  for (int i = 0; i < core::kPhaseCount; ++i) {
    const auto phase = static_cast<core::Phase>(i);
    out->Sample(phase == run.phase, {{"phase", core::PhaseName(phase)}});
  }
  out->Gauge("kintsugi_generation", Count(run.generation.value()), "Number of the present membership.");
  out->Gauge("kintsugi_step", Count(run.step.value()), "Newest step that a rank has reported.");
  out->Gauge("kintsugi_paused", run.paused_at.has_value(), "1 where all ranks stand because an operator asked for it.");
  if (run.loss) out->Gauge("kintsugi_loss", *run.loss, "Loss of that step.");
  out->Counter("kintsugi_steps", Count(run.steps.begun()),
               "Steps that the run has begun; one that is done again counts once.");
  out->Family("kintsugi_step_seconds", Kind::kHistogram,
              "From one step's beginning to the next one's; steps that an incident interrupted are left out.",
              "seconds");
  out->Histogram(run.steps.seconds());
}

void TimeMetrics(const TimeAccount& time, const TimeAccount& risen, MetricsText* out) {
  out->Gauge("kintsugi_goodput_ratio", time.goodput(), "Useful share of the time since this launcher began to lead.",
             "ratio");
  out->Family("kintsugi_spent_seconds", Kind::kGauge, "Where that time went.", "seconds");
  out->Sample(Seconds(time.useful()), {{"on", "useful"}});
  out->Sample(Seconds(time.starting), {{"on", "starting"}});
  out->Sample(Seconds(time.down), {{"on", "down"}});
  out->Sample(Seconds(time.redone), {{"on", "redone"}});
  out->Sample(Seconds(time.saving), {{"on", "saving"}});
  out->Sample(Seconds(time.paused), {{"on", "paused"}});
  out->Counter("kintsugi_run_seconds", Seconds(risen.total), "All of that time.", "seconds");
  out->Family("kintsugi_lost_seconds", Kind::kCounter, "What was not useful of it.", "seconds");
  out->Sample(Seconds(risen.starting), {{"on", "starting"}});
  out->Sample(Seconds(risen.down), {{"on", "down"}});
  out->Sample(Seconds(risen.redone), {{"on", "redone"}});
  out->Sample(Seconds(risen.saving), {{"on", "saving"}});
  out->Sample(Seconds(risen.paused), {{"on", "paused"}});
}

void IncidentMetrics(const RunStatus& run, MetricsText* out) {
  const IncidentTally& over = run.over;
  out->Family("kintsugi_incidents", Kind::kCounter,
              "Incidents that are over, by what was noticed first and how they were repaired.");
  for (const auto& [what, count] : over.by_cause)
    out->Sample(Count(count), {{"signal", core::FaultKindName(what.first)},
                               {"rung", what.second ? core::RungName(*what.second) : "none"}});
  out->Family("kintsugi_incident_seconds", Kind::kHistogram, "From a fault until all ranks stepped again.", "seconds");
  out->Histogram(over.down);
  out->Family("kintsugi_recovery_seconds", Kind::kCounter, "Time that incidents spent in each phase.", "seconds");
  for (const auto& [phase, spent] : over.in_phase) out->Sample(Seconds(spent), {{"phase", core::PhaseName(phase)}});
  out->Counter("kintsugi_lost_steps", Count(over.steps_lost), "Steps that were done again, unfinished ones included.");
  out->Counter("kintsugi_streamed_bytes", Count(over.bytes_streamed), "State that was streamed to repair ranks.",
               "bytes");
}

void SaveMetrics(const RunStatus& run, MetricsText* out) {
  out->Family("kintsugi_saves", Kind::kCounter, "Checkpoints, by what became of them.");
  out->Sample(Count(run.saves.made), {{"outcome", "made"}});
  out->Sample(Count(run.saves.failed), {{"outcome", "failed"}});
  if (run.saves.newest) {
    out->Gauge("kintsugi_checkpoint_step", Count(run.saves.newest->checkpoint.step.value()),
               "Step of the newest checkpoint.");
    out->Gauge("kintsugi_checkpoint_age_seconds", Seconds(run.at - run.saves.newest->known_at),
               "Since that checkpoint became visible, or was found when this launcher began to lead.", "seconds");
  }
  out->Family("kintsugi_snapshots", Kind::kCounter, "Attempts at in-memory snapshots, by what became of them.");
  out->Sample(Count(run.snapshots_made), {{"outcome", "made"}});
  out->Sample(Count(run.snapshots_abandoned), {{"outcome", "abandoned"}});
  if (run.snapshot != Step())
    out->Gauge("kintsugi_snapshot_step", Count(run.snapshot.value()), "Step of the newest snapshot.");
}

void RankMetrics(const RunStatus& run, MetricsText* out) {
  std::array<uint64_t, 4> in_state{};
  for (const RankStatus& rank : run.ranks) ++in_state[static_cast<size_t>(rank.life)];
  out->Gauge("kintsugi_world_ranks", Count(static_cast<size_t>(run.world_size)), "Ranks that take part in the run.");
  out->Gauge("kintsugi_world_places", Count(static_cast<size_t>(run.places)),
             "The most ranks that ever take part in it.");
  out->Gauge("kintsugi_world_wanted", Count(static_cast<size_t>(run.ranks_wanted > 0 ? run.ranks_wanted : run.places)),
             "Ranks that are to take part: so many as an operator asked for, else all places.");
  out->Family("kintsugi_ranks", Kind::kGauge, "Ranks, by the state of their process.");
  for (const Life life : {Life::kAbsent, Life::kStarting, Life::kReady, Life::kDead})
    out->Sample(Count(in_state[static_cast<size_t>(life)]), {{"state", LifeName(life)}});
  out->Family("kintsugi_rank_late_seconds", Kind::kGauge,
              "How far a rank comes behind the median one, of those that are slow step after step.", "seconds");
  for (const RankStatus& rank : run.ranks)
    if (rank.late) out->Sample(Seconds(*rank.late), {{"rank", rank.rank.ToString()}});
  out->Gauge("kintsugi_nodes_away", Count(run.nodes_away.size()), "Nodes whose launcher is not connected.");
  out->Family("kintsugi_node_away", Kind::kGauge,
              "1 for each of them; its host as it said, empty where it never came.");
  for (const NodePresence& node : run.hosts)
    if (!node.here) out->Sample(1, {{"node", node.name}, {"host", node.host}, {"address", node.address}});
  out->Gauge("kintsugi_spare_nodes", Count(run.spare_nodes.size()),
             "Nodes that wait for the ranks of one that is lost.");
  out->Family("kintsugi_spares", Kind::kGauge, "Processes that wait for a rank whose process is gone.");
  out->Sample(run.spares_wanted, {{"state", "wanted"}});
  out->Sample(run.spares_waiting, {{"state", "waiting"}});
}

void StrangerMetrics(const RunStatus& run, MetricsText* out) {
  const net::TransportCounters& seen = run.connections;
  out->Family("kintsugi_refused_connections", Kind::kCounter,
              "Connections that were refused before they said who they are.");
  for (const auto& [name, count] : seen.Fields())
    if (name.starts_with("refused_")) out->Sample(Count(count), {{"why", name.substr(8)}});
  out->Counter("kintsugi_refused_frames", Count(run.refused_frames), "Frames of ranks that were refused.");
  out->Counter("kintsugi_refused_reports", Count(run.refused_reports), "Reports of steps that the run is far from.");
  out->Counter("kintsugi_dropped_messages", Count(run.dropped_messages), "Messages of an older generation or phase.");
}

}  // namespace

std::string MetricsOf(const NodeStatus& status, const Served& served, Dialect dialect) {
  MetricsText out(dialect);
  NodeMetrics(status, served, &out);
  if (status.run) {
    ProgressMetrics(*status.run, &out);
    TimeMetrics(status.run->time, served.times, &out);
    IncidentMetrics(*status.run, &out);
    SaveMetrics(*status.run, &out);
    RankMetrics(*status.run, &out);
    StrangerMetrics(*status.run, &out);
  }
  return out.Take();
}

}  // namespace kintsugi::observe
