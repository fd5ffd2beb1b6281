#include "runtime/launcher/node/node_elector.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/controller/alike.h"
#include "runtime/core/allegiance.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi {
namespace {

constexpr Duration kAskEvery = std::chrono::milliseconds(100);
// Until what was said last is on its way.
constexpr Duration kLastWord = std::chrono::milliseconds(300);

}  // namespace

NodeElector::NodeElector(NodeState& state, ElectionTransport& transport, LeaderConnection& to_leader, LocalBlock& block,
                         NodeReporter& reporter, NodeSplits& splits, LocalLeader& local_leader, NodeEnds& ends)
    : state_(state),
      transport_(transport),
      to_leader_(to_leader),
      block_(block),
      reporter_(reporter),
      splits_(splits),
      local_leader_(local_leader),
      ends_(ends) {}

// ---- the start ---------------------------------------------------------------------------------------------------

Status NodeElector::Listen() {
  const LauncherOptions& run = state_.run();
  const NodeLauncherOptions& options = state_.options;
  ElectionTransport::Handlers handlers;
  handlers.message = [this](const wire::NodeFrame& frame, const ElectionTransport::Reply& reply) {
    OnMessage(frame, reply);
  };
  handlers.order = [this](const wire::NodeOrderFrame& frame) { OnOrder(frame); };
  handlers.refused = [this](int, const Status& why) {
    if (!state_.set_up) ends_.Fail(why.Annotate(state_.self.name() + " found no controller"));
  };
  std::string host = run.node_address;
  int port = 0;
  if (!state_.self.is_node()) {
    host = options.controllers[static_cast<size_t>(options.controller)].host;
    port = options.controllers[static_cast<size_t>(options.controller)].port;
  } else if (options.controllers.empty()) {
    // Its own port, so that launchers on one host do not take that of the rendezvous, and the same one when it starts
    // anew.
    if (state_.index() == 0) host = options.rendezvous_host;
    port = options.rendezvous_port + state_.index();
  }
  const bool exact = !state_.self.is_node() || state_.self.founds();
  KINTSUGI_RETURN_IF_ERROR(transport_.Listen(run.job, run.secret, run.tls, host,
                                             static_cast<uint16_t>(port <= 65535 ? port : 0), exact, run.ports,
                                             std::move(handlers)));
  for (size_t k = 0; k < options.controllers.size(); ++k)
    if (static_cast<int>(k) != options.controller)
      transport_.Know({run.nodes + static_cast<int>(k), options.controllers[k].host, options.controllers[k].port});
  if (options.controllers.empty() && state_.index() != 0)
    transport_.Know({0, options.rendezvous_host, options.rendezvous_port});
  return Status::Ok();
}

void NodeElector::BeginToSeek(TimePoint now) {
  seek_until_ = now + state_.run().policy.join_timeout;
  words_.Begin(now);
}

void NodeElector::Poll(TimePoint now) {
  Seek(now);
  Elect(now);
}

void NodeElector::Seek(TimePoint now) {
  if (to_leader_.leads() || state_.set_up || state_.ended) return;
  const int others = state_.run().nodes - (state_.self.is_node() ? 1 : 0);
  if (state_.self.founds() && static_cast<int>(asked_.size()) == others)
    return local_leader_.Found(state_.self.is_node() ? nullptr : &asked_.at(0));
  if (now >= seek_until_) return NobodyFound();
  if (words_.IsDue(now)) TellWaiting(now);
  if (state_.self.founds() || now - asked_at_ < kAskEvery) return;
  asked_at_ = now;
  const std::string frame =
      wire::Encode(state_.run().job, Term(), wire::NodeMessage(reporter_.Hello(transport_.port())));
  if (state_.options.controllers.empty()) transport_.Tell(0, frame);
  for (int k = 0; k < state_.run().controllers; ++k)
    if (k != state_.options.controller) transport_.Tell(state_.run().nodes + k, frame);
}

std::vector<int> NodeElector::Missing() const {
  std::vector<int> missing;
  for (int node = state_.self.is_node() ? 1 : 0; node < state_.run().nodes; ++node)
    if (!asked_.count(node)) missing.push_back(node);
  return missing;
}

void NodeElector::TellWaiting(TimePoint now) {
  const std::string waited = WholeSeconds(words_.waited(now)), limit = WholeSeconds(state_.run().policy.join_timeout);
  if (state_.self.founds())
    return state_.log->Write(
        LogLevel::kWarning,
        LogLine("waits_for_nodes", {{"missing", ListOf(Missing())},
                                    {"for", waited},
                                    {"at_most", limit},
                                    {"hint", "start `kintsugi run --node-rank N` there, with the same --rendezvous" +
                                                 LoopbackHint(state_.run().node_address)}}));
  const int whom = state_.options.controllers.empty() ? 0 : state_.run().nodes;
  const std::string why = transport_.WhyNotReached(whom);
  state_.log->Write(
      LogLevel::kWarning,
      LogLine("waits_for_leader", {{"place", SoughtPlace()},
                                   {"for", waited},
                                   {"at_most", limit},
                                   {"why", why.empty() ? "it was reached, and waits for other nodes" : why},
                                   {"hint", why.empty() ? "its log names them" : MeetingHint(why)}}));
}

// Where the first leader is said to be.
std::string NodeElector::SoughtPlace() const {
  const NodeLauncherOptions& options = state_.options;
  return options.controllers.empty() ? options.rendezvous_host + ":" + std::to_string(options.rendezvous_port)
                                     : options.controllers.front().ToString();
}

void NodeElector::NobodyFound() {
  if (!misfit_.ok()) return ends_.Fail(misfit_);
  const NodeLauncherOptions& options = state_.options;
  const std::string limit = WholeSeconds(state_.run().policy.join_timeout);
  if (!state_.self.founds()) {
    const std::string whom = (options.controllers.empty() ? "node 0, at " : "controller 0, at ") + SoughtPlace();
    const std::string why = transport_.WhyNotReached(options.controllers.empty() ? 0 : state_.run().nodes);
    const std::string& refusal = to_leader_.last_refusal();
    return ends_.Fail({StatusCode::kDeadlineExceeded, state_.self.name() + " found no controller: " + whom +
                                                          ", named none within " + limit +
                                                          (refusal.empty() ? "" : " (" + refusal + ")") +
                                                          (why.empty() ? "" : ": " + why + ": " + MeetingHint(why))});
  }
  const std::vector<int> missing = Missing();
  KINTSUGI_CHECK(!missing.empty(), "all nodes have asked, and one is missed");
  const std::string first = std::to_string(missing.front());
  ends_.Fail({StatusCode::kDeadlineExceeded,
              "node " + first + (missing.size() > 1 ? " (and others: " + ListOf(missing) + ")" : "") +
                  " did not come within " + limit + ": is `kintsugi run --node-rank " + first +
                  "` running there, with the same --nnodes, " +
                  (state_.self.is_node() ? "--rendezvous" : "--controller") + " and --secret-file?"});
}

// ---- what others say ---------------------------------------------------------------------------------------------

void NodeElector::OnMessage(const wire::NodeFrame& frame, const ElectionTransport::Reply& reply) {
  if (const auto* hello = std::get_if<wire::NodeHello>(&frame.message)) return OnAsked(*hello, reply);
  if (const auto* request = std::get_if<wire::VoteRequest>(&frame.message)) return OnVoteRequest(*request, reply);
  const auto* vote = std::get_if<wire::Vote>(&frame.message);
  if (vote) block_.Learn(vote->placement);
  if (vote && vote->granted)
    Do(state_.election.OnVote(vote->node, vote->term, {vote->live, vote->ended, vote->newcomer}));
}

std::string NodeElector::WhyRefused(const wire::NodeHello& hello) const {
  const std::string who = state_.self.NameOf(hello.node_rank), me = state_.self.name();
  const LauncherOptions& run = state_.run();
  if (hello.nodes != run.nodes)
    return who + " says --nnodes " + std::to_string(hello.nodes) + ", " + me + " " + std::to_string(run.nodes);
  if (hello.local_ranks != state_.self.local_ranks())
    return who + " says --nproc " + std::to_string(hello.local_ranks) + ", " + me + " " +
           std::to_string(state_.self.local_ranks());
  if (hello.controllers != run.controllers)
    return who + " knows " + std::to_string(hello.controllers) + " controllers, " + me + " " +
           std::to_string(run.controllers) + ": name the same to all";
  if (hello.witness != splits_.has_witness())
    return who + (hello.witness ? " has" : " lacks") + " --witness: give it to every node, or to none";
  if (hello.node_rank == state_.index())
    return who + " is here: give every node a --node-rank of its own, every controller a --controller-rank";
  return WhyUnlike(who, hello.alike, me, run.alike);
}

// A launcher that is in no run asks who leads.
void NodeElector::OnAsked(const wire::NodeHello& hello, const ElectionTransport::Reply& reply) {
  if (const std::string why = WhyRefused(hello); !why.empty()) {
    state_.log->Write(LogLevel::kWarning,
                      LogLine("node_refused", {{"node", std::to_string(hello.node_rank)}, {"why", why}}));
    reply(wire::Encode(state_.run().job, to_leader_.term(),
                       wire::NodeOrder(wire::NodeWelcome{.accepted = false, .text = why})));
    // No run comes of these two, and of nobody else: to wait for the others would be in vain.
    if (state_.self.founds() && !knows_leader() && hello.nodes != state_.run().nodes && misfit_.ok()) {
      misfit_ = {StatusCode::kInvalidArgument, why + ": give every node the same --nnodes"};
      seek_until_ = SteadyClock::SteadyNow() + kLastWord;
    }
    return;
  }
  // A leader knows where its nodes are: a caller that only says it is a node does not change that.
  if (knows_leader()) return reply(to_leader_.LeadsFrame());
  transport_.Know({hello.node_rank, hello.address, hello.port});
  if (state_.self.founds() && !state_.set_up && hello.node_rank < state_.run().nodes)
    asked_.insert_or_assign(hello.node_rank, hello);
}

void NodeElector::OnOrder(const wire::NodeOrderFrame& frame) {
  if (const auto* refused = std::get_if<wire::NodeWelcome>(&frame.order);
      refused && !refused->accepted && !state_.set_up)
    return ends_.Fail({StatusCode::kInvalidArgument, "the controller refuses this node: " + refused->text});
  const auto* leads = std::get_if<wire::Leads>(&frame.order);
  if (!leads || state_.ended) return;
  core::Allegiance mine{.obeyed = to_leader_.term(),
                        .leading = {},
                        .follows = {},
                        .connected = to_leader_.connected(),
                        .placement = block_.placement()};
  if (local_leader_.taken()) mine.leading = local_leader_.leader()->term();
  if (to_leader_.leads()) mine.follows = to_leader_.leads_term();
  const bool same_place = to_leader_.leads() && to_leader_.leads()->controller.port == leads->controller.port;
  const core::LeadsAnswer answer = core::AnswerLeads(
      state_.election, mine, {frame.term, leads->part, leads->placement, same_place}, SteadyClock::SteadyNow());
  if (answer.steps_down) local_leader_.StepDown(frame.term);
  if (answer.connects) to_leader_.Follow(frame.term, *leads);
}

void NodeElector::OnVoteRequest(const wire::VoteRequest& request, const ElectionTransport::Reply& reply) {
  block_.Learn(request.placement);
  const bool granted = state_.election.OnRequest(request.node, request.term, SteadyClock::SteadyNow());
  state_.log->Write(LogLevel::kInfo, LogLine("vote", {{"for", std::to_string(request.node)},
                                                      {"term", std::to_string(request.term)},
                                                      {"granted", granted ? "yes" : "no"}}));
  const core::ElectionCore::LocalRanks ranks = block_.RanksHere();
  reply(wire::Encode(state_.run().job, to_leader_.term(),
                     wire::NodeMessage(wire::Vote{state_.index(), request.term, granted, ranks.live, ranks.ended,
                                                  block_.placement(), ranks.newcomer})));
  if (!granted && knows_leader()) reply(to_leader_.LeadsFrame());
}

// ---- elections ---------------------------------------------------------------------------------------------------

void NodeElector::Elect(TimePoint now) {
  if (state_.ended) return;
  if (to_leader_.connected() && now - to_leader_.heard_at() > state_.run().policy.silence) {
    const auto silence = static_cast<int64_t>(ToMilliseconds(state_.run().policy.silence));
    to_leader_.Drop("no sign of life for " + std::to_string(silence) + " ms");
    to_leader_.Follow(to_leader_.leads_term(), wire::Leads(*to_leader_.leads()));
  }
  if (state_.loops_over && !to_leader_.connected() && now - to_leader_.heard_at() > state_.options.controller_wait)
    return ends_.EndNow(core::kExitFailed,
                        "all loops were over, and the leader was lost before it told how the processes left");
  if (state_.election.leaderless()) Do(state_.election.OnTick(now, block_.RanksHere()));
  local_leader_.Announce(now);
}

void NodeElector::Do(const core::ElectionCore::Decision& decision) {
  const std::string patience = WholeSeconds(state_.election.patience());
  if (decision.give_up)
    return ends_.EndNow(core::kExitFailed, state_.self.name() + " was cut off from the run for " + patience);
  if (decision.lead && !decision.lead->majority)
    state_.log->Write(
        LogLevel::kWarning,
        LogLine("no_majority", {{"node", std::to_string(state_.index())},
                                {"waited", patience},
                                {"hint", "the ranks here save what they have, without moving `latest`, and leave"}}));
  if (decision.ask)
    transport_.TellAll(
        wire::Encode(state_.run().job, {decision.ask->term, static_cast<uint64_t>(state_.index()) + 1},
                     wire::NodeMessage(wire::VoteRequest{state_.index(), decision.ask->term, block_.placement()})));
  if (decision.ask_witness) splits_.WantLease();
  if (decision.lead) local_leader_.TakeOver(*decision.lead);
}

}  // namespace kintsugi
