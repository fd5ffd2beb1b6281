// The leader itself: set-up, what the controller wants done, transitions, the end.
#include "runtime/launcher/leader.h"

#include <unistd.h>

#include <algorithm>

#include "runtime/controller/incident_line.h"
#include "runtime/journal/text.h"
#include "runtime/launcher/node_parts.h"

namespace kintsugi {
namespace {

constexpr Duration kProgressInterval = std::chrono::milliseconds(100);
// Of the grace period so much is for the processes to leave once the run has ended.
constexpr int kToLeave = 10;
constexpr Duration kLastTurn = std::chrono::milliseconds(20);
constexpr size_t kCheckpointsKept = 16;

// What a launcher must know that takes over; where the run stands it learns from the ranks.
std::string PolicyOfTheRun(core::Policy policy) {
  policy.takes_over = policy.began = false;
  policy.checkpoints.clear();
  policy.tie_rule = core::TieRule::kLowestRank;
  return journal::WriteFields(policy);
}

void Count(const core::IncidentRecord& record, TimePoint now, IncidentTally* tally) {
  ++tally->by_cause[{record.signal, record.rung}];
  // The first one began before anything was wrong.
  for (const core::PhaseSpan& span : record.phases)
    tally->in_phase[span.phase] += span.end - std::min(span.end, std::max(span.begin, record.detected_at));
  tally->down.Observe(record.resumed_at.value_or(now) - record.fault_at);
  tally->steps_lost += StepsLost(record);
  tally->bytes_streamed += record.bytes_moved;
}

}  // namespace

Leader::Leader(boost::asio::io_context& io, LeaderOptions options, WorkerPool* local,
               std::shared_ptr<GenerationLog> log, std::function<void()> on_done)
    : io_(io),
      options_(std::move(options)),
      local_(local),
      log_(std::move(log)),
      on_done_(std::move(on_done)),
      leave_(io),
      placement_(options_.placement),
      tie_rule_(run().policy.tie_rule),
      running_generation_(options_.generation),
      began_(run().policy.began),
      checkpoints_(run().policy.checkpoints),
      views_(static_cast<size_t>(run().policy.world_size)),
      times_(SteadyClock::SteadyNow()) {
  const core::Policy& policy = run().policy;
  if (!policy.resume_directory.empty() && !policy.resume_by_trainer && !policy.takes_over)
    checkpoints_.push_back({run().policy.resume_step, run().policy.resume_directory});
  result_.begin = SteadyClock::SteadyNow();
  if (!checkpoints_.empty()) result_.saves.newest = {checkpoints_.back(), result_.begin};
}

Leader::~Leader() {
  if (desk_) desk_->AnswerAll("this launcher does not lead the run any more: ask again");
}

Status Leader::Listen(std::shared_ptr<const net::Secret> secret) {
  KINTSUGI_RETURN_IF_ERROR(run().policy.Validate());
  for (const Injection& injection : run().injections)
    if (injection.rank.value() >= run().policy.world_size)
      return {StatusCode::kInvalidArgument, "fault '" + ToString(injection) + "': there is no rank " +
                                                injection.rank.ToString() + " in a world of " +
                                                std::to_string(run().policy.world_size)};
  ControllerOptions controller;
  controller.policy = run().policy;
  controller.term = options_.term;
  controller.job = run().job;
  controller.bind_address = run().bind_address;
  controller.port = run().port;
  controller.ports = run().ports;
  controller.tls = run().tls;
  if (run().nodes > 1) controller.limits = LinkLimits(LocalRanks());
  controller_ = std::make_unique<Controller>(io_, controller, std::move(secret), *this, log_);
  desk_.emplace(*controller_, run().policy.save_directory);
  KINTSUGI_RETURN_IF_ERROR(controller_->Listen());
  if (run().policy.takes_over) controller_->TakeTotals(options_.totals);
  if (run().nodes == 1) return Status::Ok();
  hub_ = std::make_unique<NodeHub>(
      NodeHubOptions{run().job, options_.term, run().nodes, LocalRanks(), options_.master_address, options_.master_port,
                     NodeBeat(run().policy), PolicyOfTheRun(run().policy), options_.run_id, !run().witness.empty(),
                     run().controllers, run().policy.silence},
      *controller_, *this, log_);
  controller_->ServeNodes(*hub_);
  if (!run().witness.empty()) ties_.emplace(run().nodes + run().controllers, run().policy.tie_rule);
  const TimePoint now = SteadyClock::SteadyNow();
  for (int node = 0; node < run().nodes + run().controllers + core::kSpareNodesMax; ++node)
    nodes_.push_back({node, {}, now, {}, {}});
  if (!options_.part) placement_.Begin(options_.term.number);
  TakePlacement();
  return Status::Ok();
}

void Leader::Record() {
  if (run().journal.path.empty()) return;
  if (const Status recorded = controller_->Record(run().journal); !recorded.ok())
    return log_->Write(LogLevel::kWarning, LogLine("not_recorded", {{"why", recorded.message()}}));
  // A journal that lies elsewhere is found through the run's folder too.
  const std::string here = run().run_directory + "/" + journal::kFileName;
  if (run().run_directory.empty() || run().journal.path == here) return;
  unlink(here.c_str());
  if (symlink(run().journal.path.c_str(), here.c_str()) != 0)
    log_->Write(LogLevel::kWarning, LogLine("journal_elsewhere", {{"file", run().journal.path}}));
}

void Leader::Start() {
  Record();
  StartWhenComplete();
}

// What is known elsewhere until somebody wants the result.
void Leader::FillResult(RunResult* result) const {
  result->asked = stop_asked_.has_value();
  result->end = SteadyClock::SteadyNow();
  result->fired = fired_.All();
  result->time = times_.Account(result->end);
  for (const Node& node : nodes_) {
    const std::optional<int> block = BlockOf(node.number);
    if (!block && !(node.seen && IsSpare(node.number))) continue;
    result->hosts.push_back("node " + std::to_string(NodeNumber(run(), node.number)) + ", " + node.place.address +
                            ", " + (block ? "ranks " + RanksOf(*block) : "a spare"));
  }
  result->resumed_from = controller_->reports().began_after();
  result->reports = controller_->reports().Committed(result->committed);
}

RunResult Leader::TakeResult() {
  FillResult(&result_);
  result_.reports_lost = result_.reports.missing + (local_ ? local_->reports_lost() : 0);
  if (result_.reports_lost > 0)
    log_->Write(LogLevel::kWarning,
                LogLine("reports_lost", {{"reports", std::to_string(result_.reports_lost)},
                                         {"hint", "of steps that were committed: the sums of samples lack them"}}));
  return std::move(result_);
}

void Leader::Poll() {
  const TimePoint now = SteadyClock::SteadyNow();
  if (now - last_progress_ >= kProgressInterval) {
    last_progress_ = now;
    ReportProgress();
    CheckNodes();
    MoveBlocks();
  }
  CheckGrace();
  const bool paused = controller_->core().saves().paused_at().has_value();
  times_.OnSaving(!paused && AllAtSavePoint(), now);
  times_.OnPaused(paused, now);
  if (paused) step_times_.OnResuming();  // the step before is not timed to the one after
  desk_->Poll();
  if (hub_) hub_->Poll(now);
  if (hub_) TellPlaces();
  tells_at_once_ = true;
  const Duration slack = NodeBeat(run().policy) / 4;
  if (hub_ && now - last_pulse_ >= slack) {
    last_pulse_ = now;
    PulseNodes(PulseEvery() + slack);
  }
  // A second for each hundred nodes: nobody waits for it.
  const Duration often = std::chrono::seconds(1 + run().nodes / 100);
  if (hub_ && now - last_totals_ >= often && controller_->reports().folded().step != told_totals_) {
    last_totals_ = now;
    told_totals_ = controller_->reports().folded().step;
    TellTotals();
  }
}

bool Leader::AllAtSavePoint() const {
  const core::ControllerCore& core = controller_->core();
  const auto& members = core.members();
  const auto stands = [](const auto& member) { return member.save_point.has_value(); };
  return core.phase() == core::Phase::kRunning && std::any_of(members.begin(), members.end(), stands) &&
         std::all_of(members.begin(), members.end(),
                     [&](const auto& member) { return stands(member) || member.finished; });
}

void Leader::Spawn(Rank rank, Incarnation incarnation) {
  if (local_) return local_->Spawn(rank, incarnation);
  const int node = NodeOf(rank);
  if (!hub_->Send(node, wire::SpawnWorker{rank, incarnation})) NodeAt(node).to_spawn[rank] = incarnation;
}

void Leader::Kill(Rank rank, Incarnation incarnation, const std::string& reason) {
  if (local_) return local_->Kill(rank, incarnation, reason);
  // A node that is away is told when it comes back.
  hub_->Send(NodeOf(rank), wire::KillWorker{rank, incarnation, reason});
}

void Leader::Stop() {
  if (!stop_asked_) stop_asked_ = SteadyClock::SteadyNow();
  controller_->Feed(core::OperatorStop{});
}

void Leader::OnTransition(const core::Transition& t) {
  log_->Set(t.generation);
  began_ = began_ || t.to == core::Phase::kRunning;
  if (t.to == core::Phase::kRunning && t.from != core::Phase::kConfirm) {
    const auto& incident = controller_->core().incident();
    times_.OnResuming(incident && incident->step ? *incident->step : run().policy.resume_step,
                      SteadyClock::SteadyNow());
    step_times_.OnResuming();
  }
  if (t.to == core::Phase::kRunning) running_generation_ = t.generation;
  log_->Write(LogLevel::kInfo, LogLine("phase", {{"from", std::string(core::PhaseName(t.from))},
                                                 {"to", std::string(core::PhaseName(t.to))},
                                                 {"gen", t.generation.ToString()},
                                                 {"incident", std::to_string(t.incident)},
                                                 {"attempt", std::to_string(t.attempt)},
                                                 {"elapsed_ms", std::to_string(static_cast<int64_t>(ToMilliseconds(
                                                                    SteadyClock::SteadyNow() - result_.begin)))},
                                                 {"reason", t.reason}}));
  ReportProgress();
}

void Leader::OnIncident(const core::IncidentRecord& record) {
  IncidentResult incident{record, std::nullopt};
  fired_.Attribute(&incident);
  const TimePoint now = SteadyClock::SteadyNow();
  const core::IncidentRecord& told = incident.record;
  // A gap that healed stopped nobody.
  if (told.rung != Rung::kResume) times_.OnIncident(told.fault_at, told.resumed_at.value_or(now));
  Say(LogLevel::kWarning, IncidentLine(told, now));
  desk_->OnIncident(told);
  Count(told, now, &tally_);
  if (run().observer) run().observer->OnIncident(run().job, incident, result_.begin);
  result_.incidents.push_back(std::move(incident));
}

// As many as a controller keeps.
void Leader::OnCheckpoint(const core::Checkpoint& checkpoint) {
  std::erase(checkpoints_, checkpoint);
  if (checkpoints_.size() >= kCheckpointsKept) checkpoints_.erase(checkpoints_.begin());
  checkpoints_.push_back(checkpoint);
  result_.saves.OnMade(checkpoint, SteadyClock::SteadyNow());
}

void Leader::Say(LogLevel level, const std::string& line) {
  log_->Write(level, line);
  for (const Node& node : nodes_)
    if (hub_->connected(node.number)) hub_->Send(node.number, wire::NodeNews{level, line});
}

void Leader::OnNotice(Rank rank, const std::string& text) {
  log_->Write(LogLevel::kInfo, LogLine("notice", {{"rank", rank.ToString()}, {"text", text}}));
}

// A disk that does not answer, a handler that never returns, nodes that are away: whoever asked for the stop kills what
// is left of the run soon, and it ends better with a word.
void Leader::CheckGrace() {
  const TimePoint now = SteadyClock::SteadyNow();
  if (!stop_asked_ || ended_ || now < *stop_asked_ + run().policy.grace - run().policy.grace / kToLeave) return;
  const auto grace = static_cast<int64_t>(ToMilliseconds(run().policy.grace));
  const std::string why = "the grace period of " + std::to_string(grace) + " ms was over in phase " +
                          std::string(core::PhaseName(controller_->core().phase())) + " before anything was saved";
  if (checkpoints_.empty()) return OnEnded({core::kExitFailed, why + "; there is no checkpoint", Step(), std::nullopt});
  const core::Checkpoint& newest = checkpoints_.back();
  OnEnded({core::kExitResumable, why + "; resume from " + newest.directory + " (step " + newest.step.ToString() + ")",
           newest.step, std::nullopt});
}

void Leader::OnEnded(const core::RunEnded& ended) {
  if (ended_) return;  // the grace period was over before
  ended_ = true;
  if (local_) local_->Leave();
  result_.exit_code = ended.exit_code;
  result_.text = ended.text;
  result_.final_digest = ended.final_digest;
  result_.committed = ended.committed;
  desk_->AnswerAll("the run ended before that: " + ended.text);
  log_->Write(ended.exit_code == 0 ? LogLevel::kInfo : LogLevel::kWarning,
              LogLine("run_ended", {{"exit", std::to_string(ended.exit_code)}, {"reason", ended.text}}));
  for (const Node& node : nodes_) hub_->Send(node.number, EndOrder());
  leave_.expires_after(LeaveLimit(stop_asked_, run().policy.grace));
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (!error) EndNow(result_.text);
  });
  StopIfDone();
}

void Leader::EndNow(const std::string& why) {
  if (!ended_) {
    ended_ = true;
    result_.exit_code = core::kExitFailed;
    result_.text = why;
  }
  if (desk_) desk_->AnswerAll("the run was ended at once: " + why);
  if (local_) local_->Leave();
  if (local_) local_->KillAll();
  on_done_();
}

void Leader::StopIfDone() {
  // A node leaves once its own ranks have; until then it may have reports to tell.
  if (!ended_ || (local_ && local_->running()) || (hub_ && hub_->any_connected())) return;
  // One turn more, so that lines still in the pipes come out.
  leave_.expires_after(kLastTurn);
  leave_.async_wait([this](const boost::system::error_code& error) {
    if (!error) on_done_();
  });
}

}  // namespace kintsugi
