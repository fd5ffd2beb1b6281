#include "runtime/launcher/leader/leader.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/journal/files.h"
#include "runtime/launcher/leader/node_hosts.h"
#include "runtime/launcher/leader/node_parts.h"
#include "runtime/launcher/leader/one_host.h"

namespace kintsugi {
namespace {

constexpr Duration kProgressInterval = std::chrono::milliseconds(100);

ControllerOptions ControllerOptionsOf(const LeaderOptions& options) {
  ControllerOptions controller;
  controller.policy = options.run.policy;
  controller.term = options.term;
  controller.job = options.run.job;
  controller.bind_address = options.run.bind_address;
  controller.port = options.run.port;
  controller.ports = options.run.ports;
  controller.tls = options.run.tls;
  if (options.run.nodes > 1) controller.limits = NodeLimits(ShapeOf(options.run).local_ranks);
  return controller;
}

std::optional<int> VotersOf(const LauncherOptions& run) {
  if (run.nodes == 1 || run.witness.empty()) return std::nullopt;
  return run.nodes + run.controllers;
}

const LeaderOptions& Valid(const LeaderOptions& options) {
  const Status valid = Leader::Validate(options.run);
  KINTSUGI_CHECK(valid.ok(), valid.message());
  return options;
}

}  // namespace

Status Leader::Validate(const LauncherOptions& run) {
  KINTSUGI_RETURN_IF_ERROR(run.policy.Validate());
  for (const Injection& injection : run.injections)
    if (injection.rank.value() >= run.policy.world_size)
      return {StatusCode::kInvalidArgument, "fault '" + ToString(injection) + "': there is no rank " +
                                                injection.rank.ToString() + " in a world of " +
                                                std::to_string(run.policy.world_size)};
  return Status::Ok();
}

Leader::Leader(boost::asio::io_context& io, LeaderOptions options, std::shared_ptr<const net::Secret> secret,
               WorkerPool* local, std::shared_ptr<GenerationLog> log, std::function<void()> on_done)
    : options_(std::move(options)),
      log_(std::move(log)),
      account_(Valid(options_).run.policy, options_.generation, SteadyClock::SteadyNow(), options_.before,
               options_.history),
      controller_(io, ControllerOptionsOf(options_), std::move(secret), duties_, log_),
      operators_(controller_, options_.run.policy.save_directory),
      workers_(controller_, account_, *this),
      splits_(controller_, account_, options_.run.policy.tie_rule, VotersOf(options_.run)),
      hosts_(MakeHosts(local)),
      meter_(controller_),
      ending_(io, options_.run, controller_, account_, operators_, *hosts_, log_, std::move(on_done)),
      duties_(options_.run, controller_, account_, {operators_, meter_, log_}, *hosts_, ending_,
              options_.on_ask_witness),
      control_(options_.run, controller_, account_, operators_, *hosts_, ending_) {}

Leader::~Leader() { operators_.AnswerAll("this launcher does not lead the run any more: ask again"); }

// The one place that asks which kind of hosts a run has.
std::unique_ptr<Hosts> Leader::MakeHosts(WorkerPool* local) {
  if (local) return std::make_unique<OneHost>(options_.run, *local, controller_, log_);
  const NodeHostsOptions nodes{options_.term,        options_.part,   options_.master_address,
                               options_.master_port, options_.run_id, options_.placement};
  HostEvents& above = *this;
  return std::make_unique<NodeHosts>(options_.run, nodes, controller_, account_, workers_, splits_, above, log_);
}

Status Leader::Listen() {
  KINTSUGI_RETURN_IF_ERROR(controller_.Listen());
  if (!options_.run.policy.takes_over) return Status::Ok();
  controller_.TakeTotals(options_.totals);
  for (const wire::KeptWorld& world : options_.history.worlds)
    controller_.reports().SetCrew(world.step, static_cast<size_t>(world.ranks), world.left, world.came);
  return Status::Ok();
}

void Leader::RecordJournal() {
  const LauncherOptions& run = options_.run;
  if (run.journal.path.empty()) return;
  if (const Status recorded = controller_.Record(run.journal); !recorded.ok())
    return log_->Write(LogLevel::kWarning, LogLine("not_recorded", {{"why", recorded.message()}}));
  // Of another run in the same folder: nobody has led this one after us.
  const size_t slash = run.journal.path.rfind('/');
  if (slash == std::string::npos) return;
  for (const std::string& file : journal::FilesIn(run.journal.path.substr(0, slash)))
    if (journal::TermOfName(file.substr(file.rfind('/') + 1)) > options_.term.number) unlink(file.c_str());
  // A journal that lies elsewhere is found through the run's folder too.
  const std::string here = run.run_directory + run.journal.path.substr(slash);
  if (run.run_directory.empty() || run.journal.path == here) return;
  unlink(here.c_str());
  if (symlink(run.journal.path.c_str(), here.c_str()) != 0)
    log_->Write(LogLevel::kWarning, LogLine("journal_elsewhere", {{"file", run.journal.path}}));
}

void Leader::Start() {
  RecordJournal();
  OnCame();
}

void Leader::OnCame() {
  if (account_.started() || account_.ended() || !hosts_->AllHere()) return;
  account_.Start();
  hosts_->OnStarting();
  controller_.Start();
  hosts_->OnStarted();
  splits_.OnStarted();
}

void Leader::OnGone(core::RankBlock ranks, const std::string& why) {
  for (int r = ranks.first.value(); r < ranks.first.value() + ranks.ranks; ++r)
    workers_.OnExited(Rank(r), Incarnation(), {.cause = "is gone: " + why, .at = SteadyClock::SteadyNow()});
}

void Leader::Poll() {
  const TimePoint now = SteadyClock::SteadyNow();
  if (now - last_progress_ >= kProgressInterval) {
    last_progress_ = now;
    meter_.Tell(now);
    hosts_->Check(now);
  }
  ending_.Poll(now);
  // Before anybody is answered: what was promised is known to who takes over.
  const bool pauses = account_.OnPauseAsked(controller_.core().saves().pause_asked());
  if (account_.OnRanksWanted(controller_.core().ranks_wanted()) || pauses) hosts_->PulseAll();
  account_.OnStandstill(AllAtSavePoint(), controller_.core().saves().paused_at().has_value(), now);
  operators_.Poll();
  hosts_->Poll(now);
}

bool Leader::AllAtSavePoint() const {
  const core::ControllerCore& core = controller_.core();
  const auto& members = core.members();
  const auto stands = [](const auto& member) { return member.save_point.has_value(); };
  return core.phase() == core::Phase::kRunning && std::any_of(members.begin(), members.end(), stands) &&
         std::all_of(members.begin(), members.end(),
                     [&](const auto& member) { return stands(member) || member.finished; });
}

void Leader::WantTieRule(std::optional<core::TieRule> wanted) {
  if (splits_.Want(wanted)) hosts_->PulseAll();
}

bool Leader::ended_for_all() const {
  return account_.ended() && controller_.core().phase() == core::Phase::kEnded && !controller_.core().minority();
}

void Leader::OnRequest(const std::string& request, net::ControlSocket::Respond respond) {
  control_.OnRequest(request, std::move(respond));
}

void Leader::Complete(RunResult* result) {
  result->hosts = hosts_->Names();
  result->resumed_from = controller_.reports().began_after();
  result->reports = controller_.reports().Committed(result->committed);
}

RunResult Leader::TakeResult() {
  RunResult result = account_.Take(SteadyClock::SteadyNow());
  Complete(&result);
  TellNotStruck(result);
  // Where no process was lost, a step of which a rank told nothing is one that it had nothing to tell of.
  const bool undisturbed = result.incidents.empty() && !options_.run.policy.takes_over;
  result.reports_lost = (undisturbed ? 0 : result.reports.missing) + hosts_->reports_lost();
  if (result.reports_lost > 0)
    log_->Write(LogLevel::kWarning,
                LogLine("reports_lost", {{"reports", std::to_string(result.reports_lost)},
                                         {"hint", "of steps that were committed: the sums of samples lack them"}}));
  return result;
}

void Leader::TellNotStruck(const RunResult& result) {
  for (const std::string& spec : result.not_struck) {
    const Result<Injection> injection = ParseInjection(spec);
    const bool too_late = injection.ok() && injection->step > result.committed;
    const std::string hint = too_late ? "the run ended after step " + result.committed.ToString()
                                      : "the rank did not come to this place: its program may not mark the phase, or "
                                        "not make so many collectives";
    log_->Write(LogLevel::kWarning, LogLine("not_struck", {{"injection", spec}, {"hint", hint}}));
  }
}

RunResult Leader::ResultSoFar() {
  RunResult result = account_.SoFar();
  if (!account_.ended()) result.committed = controller_.reports().newest();
  if (const auto& under_way = controller_.core().incident()) result.incidents.push_back({*under_way, std::nullopt});
  account_.Fill(&result, SteadyClock::SteadyNow());
  Complete(&result);
  return result;
}

}  // namespace kintsugi
