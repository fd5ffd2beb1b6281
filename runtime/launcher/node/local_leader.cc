#include "runtime/launcher/node/local_leader.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/journal/files.h"
#include "runtime/journal/text.h"

namespace kintsugi {
namespace {

constexpr Duration kAnnounceEvery = std::chrono::milliseconds(300);
// Of a grace period so much is left in any case to a leader that takes over within it: the node's own end bounds it.
constexpr int kLeastGrace = 4;

}  // namespace

LocalLeader::LocalLeader(boost::asio::io_context& io, NodeState& state, ElectionTransport& transport,
                         LeaderConnection& to_leader, const KeptRun& kept, NodeSplits& splits, NodeEnds& ends)
    : io_(io), state_(state), transport_(transport), to_leader_(to_leader), kept_(kept), splits_(splits), ends_(ends) {}

void LocalLeader::Found(const wire::NodeHello* first) {
  KINTSUGI_CHECK(state_.self.founds() && (first != nullptr) != state_.self.is_node(),
                 "rank 0 runs on the node that begins, or on the first one that asked its controller");
  core::Policy policy = state_.run().policy;
  // Not before: one that was started anew joins the run it belonged to, whose directory that is.
  if (!policy.save_directory.empty()) {
    Result<std::unique_ptr<SaveLease>> lease = SaveLease::Take(policy.save_directory, state_.run_id, state_.log);
    if (!lease.ok()) return ends_.Fail(lease.status());
    lease_ = std::move(lease).value();
  }
  policy.needs_consent = true;
  policy.consent_wait = state_.run().node_wait;
  // Where rank 0 runs.
  state_.master_address = first ? first->address : state_.run().node_address;
  if (first) state_.master_port = first->master_port;
  Lead(std::move(policy), {1, 1}, false);
}

void LocalLeader::TakeOver(const core::ElectionCore::Lead& lead) {
  Result<core::Policy> policy = journal::ReadPolicy(state_.policy);
  if (!policy.ok()) return ends_.Fail(policy.status().Annotate("the policy that the leader gave"));
  policy->takes_over = true;
  policy->began = state_.pulse.began;
  policy->checkpoints = state_.pulse.checkpoints;
  policy->incidents_before = state_.pulse.so_far.incidents;
  // Of one more than the last pulse counted, where the leader was lost between the two.
  const KeptHistory history = kept_.history.All();
  for (const wire::KeptIncident& incident : history.incidents)
    policy->incidents_before = std::max(policy->incidents_before, incident.id);
  policy->pause_asked = state_.pulse.so_far.pause_asked;
  policy->ranks_wanted = state_.pulse.so_far.ranks_wanted;
  policy->needs_consent = true;
  policy->part = !lead.majority;
  policy->consent_wait = state_.run().node_wait;
  if (state_.stop_asked)
    policy->grace =
        std::max<Duration>(policy->grace / kLeastGrace, *state_.stop_asked + policy->grace - SteadyClock::SteadyNow());
  if (!policy->save_directory.empty()) {
    Result<std::unique_ptr<SaveLease>> lease = SaveLease::GoOn(policy->save_directory, state_.run_id, state_.log);
    if (lease.ok())
      lease_ = std::move(lease).value();
    else
      state_.log->Write(LogLevel::kError, LogLine("save_dir_lost", {{"why", lease.status().message()}}));
  }
  Lead(std::move(policy).value(), {lead.term, static_cast<uint64_t>(state_.index()) + 1}, !lead.majority);
}

wire::RunSoFar LocalLeader::Before() const {
  wire::RunSoFar before = state_.pulse.so_far;
  if (before.time.total <= Duration()) return before;
  const TimePoint now = SteadyClock::SteadyNow();
  before.time.total += now - state_.pulse_at;  // other words than pulses came later: it led then
  before.time.down += now - std::max(to_leader_.heard_at(), state_.pulse_at);
  return before;
}

void LocalLeader::Lead(core::Policy policy, Term term, bool part) {
  policy.tie_rule = splits_.rule();
  LeaderOptions options{.run = state_.run(),
                        .term = term,
                        .part = part,
                        .master_address = state_.master_address,
                        .master_port = state_.master_port,
                        .run_id = state_.run_id,
                        .totals = kept_.retained.totals(),
                        .generation = state_.pulse.generation,
                        .before = Before(),
                        .history = kept_.history.All(),
                        .placement = kept_.block.placement(),
                        .on_ask_witness = [this] { splits_.WantLease(); }};
  options.run.policy = std::move(policy);
  options.run.bind_address = state_.run().node_address;
  options.run.port = 0;
  // Each leader's stays: together they are the run's.
  if (std::string& path = options.run.journal.path; !path.empty())
    path.replace(path.rfind('/') + 1, std::string::npos, journal::NameOfTerm(term.number));
  if (Status valid = Leader::Validate(options.run); !valid.ok()) return ends_.Fail(std::move(valid));
  leader_ =
      std::make_unique<Leader>(io_, std::move(options), state_.run().secret, nullptr, state_.log, [this] { OnDone(); });
  if (Status listening = leader_->Listen(); !listening.ok()) {
    leader_.reset();
    return ends_.Fail(std::move(listening));
  }
  state_.log->Write(LogLevel::kInfo, LogLine("leads", {{"node", std::to_string(state_.index())},
                                                       {"term", std::to_string(term.number)},
                                                       {"port", std::to_string(leader_->port())}}));
  leader_->OnProgress(listener_);
  to_leader_.Follow(term,
                    {{state_.index(), state_.run().node_address, leader_->port()}, part, kept_.block.placement()});
  leader_->Start();
  if (splits_.has_witness()) leader_->TakeWord(splits_.held_until());
  announced_at_ = SteadyClock::SteadyNow();
  transport_.TellAll(to_leader_.LeadsFrame());
}

void LocalLeader::StepDown(Term term) {
  KINTSUGI_CHECK(leader_ && term > leader_->term(), "a leader gives way to a newer term alone");
  state_.log->Write(LogLevel::kWarning, LogLine("steps_down", {{"node", std::to_string(state_.index())},
                                                               {"term", std::to_string(leader_->term().number)},
                                                               {"newer_term", std::to_string(term.number)}}));
  Leave();
  state_.election.StepDown(term.number, SteadyClock::SteadyNow());
}

void LocalLeader::Leave() {
  leader_.reset();
  if (lease_) lease_->HandOver();
  lease_.reset();
  splits_.GiveLeaseUp();
}

void LocalLeader::OnDone() {
  done_ = true;
  ends_.OnLeaderDone();
}

void LocalLeader::Announce(TimePoint now) {
  if (!leads() || now - announced_at_ < kAnnounceEvery) return;
  announced_at_ = now;
  for (const int node : leader_->NodesAway())
    if (node != state_.index()) transport_.Tell(node, to_leader_.LeadsFrame());
}

void LocalLeader::Poll() {
  const std::optional<core::TieRule> wanted = splits_.Poll(leads(), leads() && leader_->ended_for_all());
  if (wanted) leader_->WantTieRule(wanted);
  if (leads()) leader_->Poll();
}

void LocalLeader::OnWord(TimePoint until) {
  state_.election.OnWitness(until);
  if (leader_) leader_->TakeWord(until);
}

void LocalLeader::OnTieRule() const {
  if (leader_) leader_->TakeTieRule(splits_.rule());
}

}  // namespace kintsugi
