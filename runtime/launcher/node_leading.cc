// Who leads: asked for at the start, elected when the leader is lost, and, where it is this node, what leading begins.
#include "runtime/journal/text.h"
#include "runtime/launcher/node_impl.h"
#include "runtime/launcher/node_parts.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi {
namespace {

constexpr Duration kAskEvery = std::chrono::milliseconds(100);
constexpr Duration kAnnounceEvery = std::chrono::milliseconds(300);

std::string Seconds(Duration duration) {
  return std::to_string(static_cast<int64_t>(ToMilliseconds(duration) / 1000)) + " s";
}

}  // namespace

// ---- the start ---------------------------------------------------------------------------------------------------

void NodeLauncher::Impl::Seek() {
  if (leads_ || set_up_ || ended_) return;
  const TimePoint now = SteadyClock::SteadyNow();
  const int others = options_.run.nodes - (is_node() ? 1 : 0);
  if (founds() && static_cast<int>(asked_.size()) == others) return Found();
  if (now >= seek_until_) return NobodyFound();
  if (founds() || now - asked_at_ < kAskEvery) return;
  asked_at_ = now;
  const std::string frame = wire::Encode(options_.run.job, Term(), wire::NodeMessage(Hello()));
  if (options_.controllers.empty()) electorate_.Tell(0, frame);
  for (int k = 0; k < options_.run.controllers; ++k)
    if (k != options_.controller) electorate_.Tell(options_.run.nodes + k, frame);
}

void NodeLauncher::Impl::NobodyFound() {
  const std::string limit = Seconds(options_.run.policy.join_timeout);
  if (!founds()) {
    const std::string whom =
        !options_.controllers.empty()
            ? "controller 0, at " + options_.controllers.front().ToString()
            : "node 0, at " + options_.rendezvous_host + ":" + std::to_string(options_.rendezvous_port);
    return Fail({StatusCode::kDeadlineExceeded, name() + " found no controller: " + whom + ", named none within " +
                                                    limit + (last_refusal_.empty() ? "" : " (" + last_refusal_ + ")")});
  }
  int missing = is_node() ? 1 : 0;
  while (asked_.count(missing)) ++missing;
  Fail({StatusCode::kDeadlineExceeded, "node " + std::to_string(missing) + " did not come within " + limit +
                                           ": is `kintsugi run --node-rank " + std::to_string(missing) +
                                           "` running there, with the same --nnodes, " +
                                           (is_node() ? "--rendezvous" : "--controller") + " and --secret-file?"});
}

std::string NodeLauncher::Impl::WhyRefused(const wire::NodeHello& hello) const {
  const std::string who = Name(hello.node_rank);
  if (hello.nodes != options_.run.nodes)
    return who + " says --nnodes " + std::to_string(hello.nodes) + ", " + name() + " " +
           std::to_string(options_.run.nodes);
  if (hello.local_ranks != LocalRanks())
    return who + " says --nproc " + std::to_string(hello.local_ranks) + ", " + name() + " " +
           std::to_string(LocalRanks());
  if (hello.controllers != options_.run.controllers)
    return who + " knows " + std::to_string(hello.controllers) + " controllers, " + name() + " " +
           std::to_string(options_.run.controllers) + ": name the same to all";
  if (hello.witness != (witness_ != nullptr))
    return who + (hello.witness ? " has" : " lacks") + " --witness: give it to every node, or to none";
  if (hello.node_rank == self())
    return who + " is here: give every node a --node-rank of its own, every controller a --controller-rank";
  return "";
}

// A launcher that is in no run asks who leads.
void NodeLauncher::Impl::OnAsked(const wire::NodeHello& hello, const Electorate::Reply& reply) {
  if (const std::string why = WhyRefused(hello); !why.empty()) {
    log_->Write(LogLevel::kWarning, LogLine("node_refused", {{"node", std::to_string(hello.node_rank)}, {"why", why}}));
    return reply(
        wire::Encode(options_.run.job, term_, wire::NodeOrder(wire::NodeWelcome{.accepted = false, .text = why})));
  }
  // Who leads knows where its nodes are: one that only says it is a node does not change that.
  if (leads_ && (leader_ || link_)) return reply(LeadsFrame());
  electorate_.Know({hello.node_rank, hello.address, hello.port});
  if (founds() && !set_up_ && hello.node_rank < options_.run.nodes) asked_.insert_or_assign(hello.node_rank, hello);
}

std::string NodeLauncher::Impl::LeadsFrame() const {
  return wire::Encode(options_.run.job, leads_term_, wire::NodeOrder(*leads_));
}

void NodeLauncher::Impl::OnOrder(const wire::NodeOrderFrame& frame) {
  if (const auto* refused = std::get_if<wire::NodeWelcome>(&frame.order); refused && !refused->accepted && !set_up_)
    return Fail({StatusCode::kInvalidArgument, "the controller refuses this node: " + refused->text});
  const auto* leads = std::get_if<wire::Leads>(&frame.order);
  if (!leads || ended_) return;
  core::Allegiance mine{
      .obeyed = term_, .leading = {}, .follows = {}, .linked = link_ != nullptr, .placement = placement_};
  if (leader_) mine.leading = leader_->term();
  if (leads_) mine.follows = leads_term_;
  const bool same_place = leads_ && leads_->controller.port == leads->controller.port;
  const core::LeadsAnswer answer = core::AnswerLeads(
      election_, mine, {frame.term, leads->part, leads->placement, same_place}, SteadyClock::SteadyNow());
  if (answer.steps_down) StepDown(frame.term);
  if (answer.links) Link(frame.term, *leads);
}

// ---- elections ---------------------------------------------------------------------------------------------------

core::ElectionCore::Standing NodeLauncher::Impl::Standing() const {
  std::set<Rank> live;
  for (const WorkerPool::Life& life : pool_.Lives()) live.insert(life.rank);
  core::ElectionCore::Standing standing;
  const std::optional<int> block = is_node() ? placement_.BlockOf(self(), options_.run.nodes) : std::nullopt;
  if (!block || block != block_ || !placement_.Counts(*block, pulse_.generation)) return standing;
  for (int r = *block * LocalRanks(); r < (*block + 1) * LocalRanks(); ++r)
    (live.count(Rank(r)) ? standing.live : standing.ended).push_back(Rank(r));
  return standing;
}

void NodeLauncher::Impl::Elect() {
  if (ended_) return;
  const TimePoint now = SteadyClock::SteadyNow();
  if (link_ && now - heard_at_ > options_.run.policy.silence) {
    const auto silence = static_cast<int64_t>(ToMilliseconds(options_.run.policy.silence));
    Unlink("no sign of life for " + std::to_string(silence) + " ms");
    Link(leads_term_, *leads_);
  }
  if (election_.leaderless()) Do(election_.OnTick(now, Standing()));
  // Whoever comes back, or starts anew, learns from this where the controller is.
  if (!leader_ || leader_done_ || now - announced_at_ < kAnnounceEvery) return;
  announced_at_ = now;
  for (int node : leader_->NodesAway())
    if (node != self()) electorate_.Tell(node, LeadsFrame());
}

void NodeLauncher::Impl::OnVoteRequest(const wire::VoteRequest& request, const Electorate::Reply& reply) {
  Learn(request.placement);
  const bool granted = election_.OnRequest(request.node, request.term, SteadyClock::SteadyNow());
  log_->Write(LogLevel::kInfo, LogLine("vote", {{"for", std::to_string(request.node)},
                                                {"term", std::to_string(request.term)},
                                                {"granted", granted ? "yes" : "no"}}));
  const core::ElectionCore::Standing standing = Standing();
  reply(wire::Encode(
      options_.run.job, term_,
      wire::NodeMessage(wire::Vote{self(), request.term, granted, standing.live, standing.ended, placement_})));
  if (!granted && leads_ && (leader_ || link_)) reply(LeadsFrame());
}

void NodeLauncher::Impl::Do(const core::ElectionCore::Decision& decision) {
  if (decision.give_up)
    return EndNow(core::kExitFailed, name() + " was cut off from the run for " + Seconds(options_.controller_wait));
  if (decision.lead && !decision.lead->majority)
    log_->Write(
        LogLevel::kWarning,
        LogLine("no_majority", {{"node", std::to_string(self())},
                                {"waited", Seconds(options_.controller_wait)},
                                {"hint", "the ranks here save what they have, without moving `latest`, and leave"}}));
  if (decision.ask)
    electorate_.TellAll(wire::Encode(options_.run.job, {decision.ask->term, static_cast<uint64_t>(self()) + 1},
                                     wire::NodeMessage(wire::VoteRequest{self(), decision.ask->term, placement_})));
  lease_wanted_ = lease_wanted_ || decision.ask_witness;
  if (decision.lead) TakeOver(*decision.lead);
}

// ---- leading -----------------------------------------------------------------------------------------------------

void NodeLauncher::Impl::Found() {
  core::Policy policy = options_.run.policy;
  // Not before: one that was started anew joins the run it belonged to, whose directory that is.
  if (!policy.save_directory.empty()) {
    Result<std::unique_ptr<SaveLease>> lease = SaveLease::Take(policy.save_directory, run_id_, log_);
    if (!lease.ok()) return Fail(lease.status());
    lease_ = std::move(lease).value();
  }
  policy.needs_consent = true;
  policy.consent_wait = options_.run.node_wait;
  // Where rank 0 runs.
  master_address_ = is_node() ? options_.run.node_address : asked_.at(0).address;
  if (!is_node()) master_port_ = asked_.at(0).master_port;
  Lead(std::move(policy), {1, 1}, false);
}

void NodeLauncher::Impl::TakeOver(const core::ElectionCore::Lead& lead) {
  Result<core::Policy> policy = journal::ReadPolicy(policy_);
  if (!policy.ok()) return Fail(policy.status().Annotate("the policy that the leader gave"));
  policy->takes_over = true;
  policy->began = pulse_.began;
  policy->checkpoints = pulse_.checkpoints;
  policy->needs_consent = true;
  policy->consent_wait = lead.majority ? options_.run.node_wait : Duration();
  if (!policy->save_directory.empty()) {
    Result<std::unique_ptr<SaveLease>> lease = SaveLease::GoOn(policy->save_directory, run_id_, log_);
    if (lease.ok())
      lease_ = std::move(lease).value();
    else
      log_->Write(LogLevel::kError, LogLine("save_dir_lost", {{"why", lease.status().message()}}));
  }
  Lead(std::move(policy).value(), {lead.term, static_cast<uint64_t>(self()) + 1}, !lead.majority);
}

void NodeLauncher::Impl::Lead(core::Policy policy, Term term, bool part) {
  policy.tie_rule = tie_rule_;
  LeaderOptions options{.run = options_.run,
                        .term = term,
                        .part = part,
                        .master_address = master_address_,
                        .master_port = master_port_,
                        .run_id = run_id_,
                        .totals = totals_,
                        .generation = pulse_.generation,
                        .placement = placement_,
                        .on_ask_witness = [this] { lease_wanted_ = true; }};
  options.run.policy = std::move(policy);
  options.run.bind_address = options_.run.node_address;
  options.run.port = 0;
  if (term.number > 1 && !options.run.journal.path.empty())
    options.run.journal.path += ".term" + std::to_string(term.number);
  if (Status valid = Leader::Validate(options.run); !valid.ok()) return Fail(std::move(valid));
  leader_ =
      std::make_unique<Leader>(io_, std::move(options), options_.run.secret, nullptr, log_, [this] { OnLeaderDone(); });
  if (Status listening = leader_->Listen(); !listening.ok()) {
    leader_.reset();
    return Fail(std::move(listening));
  }
  log_->Write(LogLevel::kInfo, LogLine("leads", {{"node", std::to_string(self())},
                                                 {"term", std::to_string(term.number)},
                                                 {"port", std::to_string(leader_->port())}}));
  leader_->OnProgress(listener_);
  Link(term, {{self(), options_.run.node_address, leader_->port()}, part, placement_});
  leader_->Start();
  if (witness_) leader_->TakeWord(witness_->held_until());
  announced_at_ = SteadyClock::SteadyNow();
  electorate_.TellAll(LeadsFrame());
}

// Another one leads, under a newer term: this one was not heard, and may not decide any more.
void NodeLauncher::Impl::StepDown(Term term) {
  log_->Write(LogLevel::kWarning, LogLine("steps_down", {{"node", std::to_string(self())},
                                                         {"term", std::to_string(leader_->term().number)},
                                                         {"newer_term", std::to_string(term.number)}}));
  leader_.reset();
  if (lease_) lease_->HandOver();
  lease_.reset();
  lease_wanted_ = false;
  election_.StepDown(SteadyClock::SteadyNow());
}

void NodeLauncher::Impl::OnLeaderDone() {
  leader_done_ = true;
  if (!ended_ || !pool_.running()) io_.stop();
}

// ---- the witness -------------------------------------------------------------------------------------------------

void NodeLauncher::Impl::PollWitness() {
  const bool leads = leader_ && !leader_done_;
  witness_->Poll({run_id_, name(), pulse_.generation, lease_wanted_ && !ended_, leads && !ended_,
                  leads && leader_->ended_for_all()});
  const std::optional<bool> reachable = witness_->reachable();
  if (leads && reachable) leader_->WantTieRule(*reachable ? core::TieRule::kWitness : core::TieRule::kLowestRank);
}

void NodeLauncher::Impl::OnWord(TimePoint until) {
  election_.OnWitness(until);
  if (leader_) leader_->TakeWord(until);
}

}  // namespace kintsugi
