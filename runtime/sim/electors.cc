#include "runtime/sim/electors.h"

#include <algorithm>

#include "runtime/core/allegiance.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;
using core::ElectionCore;

namespace {

constexpr Duration kPoll = 10ms;
constexpr Duration kAnnounceEvery = 300ms;
constexpr Duration kPagesEvery = 100ms;
// How long a launcher waits for a majority before it leads its part, to save.
constexpr Duration kPatience = 4s;
// Of a grace period so much is left in any case to a leader that takes over within it.
constexpr int kLeastGrace = 4;

}  // namespace

void Electors::Begin() {
  world_.seat().term = world_.core().term();
  world_.seat().placement.Begin(1);
  for (int node = 0; node < world_.Hosts(); ++node) {
    Launcher& l = launchers_.Add();
    Start(l, node);
    l.newcomer.OnPulse(/*started=*/false, {});
  }
  launchers_.Of(0).seat = &world_.seat();
  election_checker_.Begin(0, 1);
  for (Launcher& l : launchers_.all()) {
    world_.seat().lost_at[l.node] = world_.Now();
    followers_.ConnectTo(l, world_.seat().term, &world_.seat());
  }
}

void Electors::Start(Launcher& l, int node) {
  l.node = node;
  l.heard_at = world_.Now();
  l.election = std::make_unique<ElectionCore>(core::ElectionOptions{.self = node,
                                                                    .world_size = world_.plan.policy.world_size,
                                                                    .patience = kPatience + node * 100ms,
                                                                    .turn = std::nullopt,
                                                                    .local_ranks = world_.LocalRanks()});
  l.block = l.placement.BlockOf(node, world_.plan.nodes);
  l.election->SetHasRanks(l.block.has_value());
  launchers_.At(l, world_.Between(100, 10000), [this, &l] { Poll(l); });
}

ElectionCore::LocalRanks Electors::LocalRanksOf(const Launcher& l) const {
  ElectionCore::LocalRanks ranks;
  const std::optional<int> block = l.placement.BlockOf(l.node, world_.plan.nodes);
  const bool counts = block && block == l.block &&
                      (l.placement.Counts(*block, l.running) || (world_.hook && world_.hook->CountsAtOnce()));
  for (int r = 0; r < world_.plan.policy.world_size; ++r) {
    if (!counts || r / world_.LocalRanks() != *block) continue;
    const Process* const p = world_.processes.NewestOn(l.node, Rank(r));
    const bool fresh = p && l.fresh.IsFresh(Rank(r), p->incarnation) && !(world_.hook && world_.hook->FreshVotes());
    (p && p->alive && !fresh ? ranks.live : ranks.ended).push_back(Rank(r));
  }
  ranks.newcomer = l.newcomer.is_one();
  if (world_.hook) world_.hook->OnLocalRanks(l.node, &ranks);
  return ranks;
}

void Electors::Poll(Launcher& l) {
  if (launchers_.Over() || (l.ended && !l.leading())) return;
  if (l.term == Term() && !l.seat && world_.Now() - l.heard_at > world_.plan.policy.join_timeout)
    return ranks_.Leave(l);  // nobody leads
  followers_.CheckLine(l);
  if (!l.ended && l.election->leaderless()) Do(l, l.election->OnTick(world_.Now(), LocalRanksOf(l)));
  if (l.connected && world_.Now() - l.told_pages >= kPagesEvery) followers_.TellPages(l);
  if (l.leading()) PollSeat(l, *l.seat);
  launchers_.At(l, kPoll, [this, &l] { Poll(l); });
}

void Electors::PollSeat(Launcher& l, Seat& seat) {
  if (world_.Now() - l.pulsed_at >= kPagesEvery) {
    l.pulsed_at = world_.Now();
    seats_.Pulse(seat);
  }
  seats_.CheckNodes(seat);
  seats_.MoveBlocks(seat);
  if (seat.alive && !l.ended && world_.Now() - l.announced_at >= kAnnounceEvery) {
    l.announced_at = world_.Now();
    for (const Launcher& other : launchers_.all())
      if (other.node != l.node && !seat.lines.count(other.node)) Send(l.node, other.node, LeadsFrame(seat));
  }
}

std::string Electors::LeadsFrame(const Seat& seat) const {
  const std::deque<Seat>& seats = world_.seats.all();
  const auto index = std::find_if(seats.begin(), seats.end(), [&](const Seat& s) { return &s == &seat; });
  const auto port = static_cast<uint16_t>(index - seats.begin() + 1);
  return wire::Encode(kJob, seat.term,
                      wire::NodeOrder(wire::Leads{{seat.node, "host", port}, seat.part, seat.placement}));
}

// What cannot be delivered is lost: the launcher that asks asks again.
void Electors::Send(int from, int to, std::string frame) {
  if (network_.CutBetween(from, to)) return;
  Launcher& l = launchers_.Of(to);
  launchers_.At(l, world_.Between(100, world_.random.Chance(0.1) ? 100'000 : 5000),
                [this, &l, from, frame = std::move(frame)] {
                  if (!network_.CutBetween(from, l.node)) Hear(l, frame);
                });
}

void Electors::Hear(Launcher& l, const std::string& frame) {
  const Result<wire::NodeFrame> message = wire::DecodeFromNode(kJob, frame);
  if (message.ok()) {
    if (const auto* request = std::get_if<wire::VoteRequest>(&message->message)) return OnVoteRequest(l, *request);
    const auto* vote = std::get_if<wire::Vote>(&message->message);
    if (vote) followers_.Learn(l, vote->placement);
    if (!vote || !vote->granted || l.ended) return;
    return Do(l, l.election->OnVote(vote->node, vote->term, {vote->live, vote->ended, vote->newcomer}));
  }
  const Result<wire::NodeOrderFrame> order = wire::DecodeToNode(kJob, frame);
  if (!order.ok())
    return world_.Break(Promise::kBadInput, "a launcher's frame cannot be read: " + order.status().message());
  if (const auto* leads = std::get_if<wire::Leads>(&order->order)) OnLeads(l, order->term, *leads);
}

void Electors::OnVoteRequest(Launcher& l, const wire::VoteRequest& request) {
  followers_.Learn(l, request.placement);
  bool granted = !l.ended && l.election->OnRequest(request.node, request.term, world_.Now());
  if (world_.hook) world_.hook->OnVote(l.node, request.node, request.term, &granted);
  world_.Log(NodeName(l.node) + (granted ? " votes for node " : " does not vote for node ") +
             std::to_string(request.node) + " in term " + std::to_string(request.term));
  if (granted) election_checker_.CheckPromise(l.node, request.node, request.term);
  const ElectionCore::LocalRanks ranks = LocalRanksOf(l);
  Send(l.node, request.node,
       wire::Encode(kJob, l.term,
                    wire::NodeMessage(wire::Vote{l.node, request.term, granted, ranks.live, ranks.ended, l.placement,
                                                 ranks.newcomer})));
  if (!granted && l.leads && (l.leading() || l.connected)) Send(l.node, request.node, LeadsFrame(*l.leads));
}

void Electors::OnLeads(Launcher& l, Term term, const wire::Leads& leads) {
  if (l.ended) return;
  Seat* seat = &world_.seats.all()[leads.controller.port - 1u];
  core::Allegiance mine{l.term, {}, l.leads_term, l.connected, l.placement};
  if (l.leading()) mine.leading = l.seat->term;
  const core::LeadsAnswer answer =
      core::AnswerLeads(*l.election, mine, {term, leads.part, leads.placement, seat == l.leads}, world_.Now());
  if (answer.steps_down) StepDown(l, term);
  if (answer.connects) followers_.ConnectTo(l, term, seat);
}

void Electors::Do(Launcher& l, ElectionCore::Decision decision) {
  if (world_.hook) world_.hook->OnElection(l.node, &decision);
  if (decision.ask) {
    election_checker_.CheckPromise(l.node, l.node, decision.ask->term);
    const std::string frame =
        wire::Encode(kJob, {decision.ask->term, static_cast<uint64_t>(l.node) + 1},
                     wire::NodeMessage(wire::VoteRequest{l.node, decision.ask->term, l.placement}));
    for (const Launcher& other : launchers_.all())
      if (other.node != l.node) Send(l.node, other.node, frame);
  }
  if (decision.lead) Lead(l, *decision.lead);
  if (decision.give_up) ranks_.Leave(l);
}

Seat& Electors::AddSeat(Launcher& l, const ElectionCore::Lead& lead) {
  Policy policy = world_.plan.policy;
  policy.takes_over = true;
  policy.began = l.began;
  policy.checkpoints = l.checkpoints;
  policy.ranks_wanted = world_.hook && world_.hook->ForgetsWord() ? 0 : l.ranks_wanted;
  policy.part = !lead.majority;
  if (l.stop_asked)
    policy.grace = std::max<Duration>(policy.grace / kLeastGrace, *l.stop_asked + policy.grace - world_.Now());
  if (l.seat) l.seat->alive = false;
  Seat& seat = world_.seats.Add();
  seat.node = l.node;
  seat.term = {lead.term, static_cast<uint64_t>(l.node) + 1};
  seat.part = !lead.majority;
  seat.Begin(policy, seat.term);
  seat.began = l.began;
  seat.running = l.running;
  seat.crew = l.crew;
  seat.placement = l.placement;
  if (lead.majority) seat.placement.Begin(lead.term);
  seat.checkpoints_told = l.checkpoints;
  for (const Launcher& other : launchers_.all()) seat.lost_at[other.node] = world_.Now();
  return seat;
}

void Electors::Lead(Launcher& l, const ElectionCore::Lead& lead) {
  world_.Log("== " + NodeName(l.node) + " leads term " + std::to_string(lead.term) +
             (lead.majority ? "" : " of a part, to save"));
  election_checker_.CheckPromise(l.node, l.node, lead.term);
  election_checker_.CheckLead(l.node, lead);
  Seat& seat = AddSeat(l, lead);
  l.seat = &seat;
  world_.seats.Sit(seat);
  table_checker_.BeginTakeover(std::nullopt);
  table_checker_.TakeWord(l.ranks_wanted);
  world_.NoteProgress();
  controllers_.BeginTakeover();
  for (const auto& [block, moved] : seat.placement.moved())
    controllers_.Feed(core::RanksMoved{Rank(block * world_.LocalRanks()), world_.LocalRanks(), moved.node});
  followers_.ConnectTo(l, seat.term, &seat);
  l.announced_at = world_.Now();
  for (const Launcher& other : launchers_.all())
    if (other.node != l.node) Send(l.node, other.node, LeadsFrame(seat));
}

void Electors::StepDown(Launcher& l, Term term) {
  world_.Log(NodeName(l.node) + " steps down for term " + std::to_string(term.number));
  seats_.Close(*l.seat);
  l.seat = nullptr;
  l.election->StepDown(term.number, world_.Now());
}

// ---- the connection to the leader ----------------------------------------------------------------------------------

}  // namespace kintsugi::sim
