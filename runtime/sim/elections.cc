// Launchers: who leads, and whom they obey.
#include "runtime/sim/elections.h"

#include <algorithm>

#include "runtime/base/overloaded.h"
#include "runtime/sim/describe.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;
using core::ElectionCore;

namespace {

constexpr Duration kPoll = 10ms;
constexpr Duration kAnnounceEvery = 300ms;
constexpr Duration kPagesEvery = 100ms;
// How long a launcher waits for a majority before it leads its part, to save.
constexpr Duration kPatience = 4s;

std::string NodeName(int node) { return "node " + std::to_string(node); }

}  // namespace

Cluster::~Cluster() = default;

Cluster::Launcher& Cluster::LauncherOf(Rank rank) {
  return *launchers_[static_cast<size_t>(plan_.NodeOf(rank.value()))];
}

bool Cluster::Over() const {
  if (launchers_.empty()) return ended_.has_value();
  return std::all_of(launchers_.begin(), launchers_.end(), [](const auto& l) { return !l->alive || l->ended; });
}

void Cluster::AtLauncher(Launcher& l, Duration delay, Task what) {
  In(delay, [&l, life = l.life, what = std::make_shared<Task>(std::move(what))] {
    if (!l.alive || l.life != life) return;
    if (l.frozen) return l.deferred.push_back(std::move(*what));
    (*what)();
  });
}

// Node 0 leads first. All are there when the run begins.
void Cluster::BeginElections() {
  if (!plan_.elections) return;
  seats_.push_back(std::make_unique<Seat>());
  seated_ = seats_.front().get();
  seated_->term = core_->term();
  seated_->placement.Begin(1);
  for (int node = 0; node < Hosts(); ++node) {
    launchers_.push_back(std::make_unique<Launcher>());
    BeginLauncher(*launchers_.back(), node);
  }
  launchers_.front()->seat = seated_;
  led_[1] = 0;
  for (const auto& l : launchers_) {
    seated_->lost_at[l->node] = Now();
    LinkTo(*l, seated_->term, seated_);
  }
}

void Cluster::BeginLauncher(Launcher& l, int node) {
  l.node = node;
  l.heard_at = Now();
  l.election = std::make_unique<ElectionCore>(core::ElectionOptions{.self = node,
                                                                    .world_size = plan_.policy.world_size,
                                                                    .patience = kPatience + node * 100ms,
                                                                    .turn = std::nullopt,
                                                                    .local_ranks = LocalRanks()});
  l.block = l.placement.BlockOf(node, plan_.nodes);
  l.election->SetHasRanks(l.block.has_value());
  AtLauncher(l, Between(100, 10000), [this, &l] { Poll(l); });
}

ElectionCore::Standing Cluster::StandingOf(const Launcher& l) const {
  ElectionCore::Standing standing;
  const std::optional<int> block = l.placement.BlockOf(l.node, plan_.nodes);
  const bool counts =
      block && block == l.block && (l.placement.Counts(*block, l.running) || (hook_ && hook_->CountsAtOnce()));
  for (int r = 0; r < plan_.policy.world_size; ++r) {
    if (!counts || r / LocalRanks() != *block) continue;
    const ProcessPtr p = NewestOn(l.node, Rank(r));
    (p && p->alive ? standing.live : standing.ended).push_back(Rank(r));
  }
  if (hook_) hook_->OnStanding(l.node, &standing);
  return standing;
}

void Cluster::Poll(Launcher& l) {
  if (Over() || (l.ended && !(l.seat && l.seat->alive))) return;
  if (l.term == Term() && !l.seat && Now() - l.heard_at > plan_.policy.join_timeout) return EndHere(l);  // nobody leads
  if (l.linked && Now() - l.heard_at > plan_.policy.silence) {
    Unlink(l, "no sign of life");
    Dial(l);
  }
  if (!l.ended && l.election->leaderless()) Do(l, l.election->OnTick(Now(), StandingOf(l)));
  if (l.linked && Now() - l.told_pages >= kPagesEvery) TellPages(l);
  if (l.seat && l.seat->alive) PollSeat(l, *l.seat);
  AtLauncher(l, kPoll, [this, &l] { Poll(l); });
}

void Cluster::PollSeat(Launcher& l, Seat& seat) {
  if (Now() - l.pulsed_at >= kPagesEvery) {
    l.pulsed_at = Now();
    PulseNodes(seat);
  }
  CheckNodes(seat);
  MoveBlocks(seat);
  if (seat.alive && !l.ended && Now() - l.announced_at >= kAnnounceEvery) {
    l.announced_at = Now();
    for (const auto& other : launchers_)
      if (other->node != l.node && !seat.lines.count(other->node)) TellLauncher(l.node, other->node, LeadsFrame(seat));
  }
}

// ---- between launchers ---------------------------------------------------------------------------------------------

std::string Cluster::LeadsFrame(const Seat& seat) const {
  const auto index = std::find_if(seats_.begin(), seats_.end(), [&](const auto& s) { return s.get() == &seat; });
  const auto port = static_cast<uint16_t>(index - seats_.begin() + 1);
  return wire::Encode(kJob, seat.term,
                      wire::NodeOrder(wire::Leads{{seat.node, "host", port}, seat.part, seat.placement}));
}

// What cannot be delivered is lost: whoever asks asks again.
void Cluster::TellLauncher(int from, int to, std::string frame) {
  if (CutBetween(from, to)) return;
  Launcher& l = *launchers_[static_cast<size_t>(to)];
  AtLauncher(l, Between(100, random_.Chance(0.1) ? 100'000 : 5000), [this, &l, from, frame = std::move(frame)] {
    if (!CutBetween(from, l.node)) Hear(l, frame);
  });
}

void Cluster::Hear(Launcher& l, const std::string& frame) {
  const Result<wire::NodeFrame> message = wire::DecodeFromNode(kJob, frame);
  if (message.ok()) {
    if (const auto* request = std::get_if<wire::VoteRequest>(&message->message)) return OnVoteRequest(l, *request);
    const auto* vote = std::get_if<wire::Vote>(&message->message);
    if (vote) Learn(l, vote->placement);
    if (!vote || !vote->granted || l.ended) return;
    return Do(l, l.election->OnVote(vote->node, vote->term, {vote->live, vote->ended}));
  }
  const Result<wire::NodeOrderFrame> order = wire::DecodeToNode(kJob, frame);
  if (!order.ok()) return Break(Promise::kBadInput, "a launcher's frame cannot be read: " + order.status().message());
  if (const auto* leads = std::get_if<wire::Leads>(&order->order)) OnLeads(l, order->term, *leads);
}

void Cluster::OnVoteRequest(Launcher& l, const wire::VoteRequest& request) {
  Learn(l, request.placement);
  bool granted = !l.ended && l.election->OnRequest(request.node, request.term, Now());
  if (hook_) hook_->OnVote(l.node, request.node, request.term, &granted);
  Log(NodeName(l.node) + (granted ? " votes for node " : " does not vote for node ") + std::to_string(request.node) +
      " in term " + std::to_string(request.term));
  if (granted) CheckPromise(l, request.node, request.term);
  const ElectionCore::Standing standing = StandingOf(l);
  TellLauncher(l.node, request.node,
               wire::Encode(kJob, l.term,
                            wire::NodeMessage(wire::Vote{l.node, request.term, granted, standing.live, standing.ended,
                                                         l.placement})));
  if (!granted && l.leads && ((l.seat && l.seat->alive) || l.linked))
    TellLauncher(l.node, request.node, LeadsFrame(*l.leads));
}

void Cluster::OnLeads(Launcher& l, Term term, const wire::Leads& leads) {
  if (l.ended) return;
  Seat* seat = seats_[leads.controller.port - 1u].get();
  core::Allegiance mine{l.term, {}, l.leads_term, l.linked, l.placement};
  if (l.seat && l.seat->alive) mine.leading = l.seat->term;
  const core::LeadsAnswer answer =
      core::AnswerLeads(*l.election, mine, {term, leads.part, leads.placement, seat == l.leads}, Now());
  if (answer.steps_down) StepDown(l, term);
  if (answer.links) LinkTo(l, term, seat);
}

void Cluster::Do(Launcher& l, ElectionCore::Decision decision) {
  if (hook_) hook_->OnElection(l.node, &decision);
  if (decision.ask) {
    CheckPromise(l, l.node, decision.ask->term);
    const std::string frame =
        wire::Encode(kJob, {decision.ask->term, static_cast<uint64_t>(l.node) + 1},
                     wire::NodeMessage(wire::VoteRequest{l.node, decision.ask->term, l.placement}));
    for (const auto& other : launchers_)
      if (other->node != l.node) TellLauncher(l.node, other->node, frame);
  }
  if (decision.lead) Lead(l, *decision.lead);
  if (decision.give_up) EndHere(l);
}

void Cluster::Lead(Launcher& l, const ElectionCore::Lead& lead) {
  Log("== " + NodeName(l.node) + " leads term " + std::to_string(lead.term) +
      (lead.majority ? "" : " of a part, to save"));
  CheckPromise(l, l.node, lead.term);
  CheckLead(l, lead);
  Policy policy = plan_.policy;
  policy.takes_over = true;
  policy.began = l.began;
  policy.checkpoints = l.checkpoints;
  if (!lead.majority) policy.consent_wait = {};
  if (l.seat) l.seat->alive = false;
  seats_.push_back(std::make_unique<Seat>());
  Seat& seat = *seats_.back();
  seat.node = l.node;
  seat.term = {lead.term, static_cast<uint64_t>(l.node) + 1};
  seat.part = !lead.majority;
  seat.core = std::make_unique<ControllerCore>(policy, seat.term);
  seat.links.assign(world_, nullptr);
  seat.phase = Phase::kConfirm;
  seat.began = l.began;
  seat.running = l.running;
  seat.placement = l.placement;
  if (lead.majority) seat.placement.Begin(lead.term);
  seat.checkpoints_told = l.checkpoints;
  for (const auto& other : launchers_) seat.lost_at[other->node] = Now();
  l.seat = &seat;
  Sit(&seat);
  last_progress_ = Now();
  for (const ControllerAction& action : core_->Start(Now())) Act(action);
  for (const auto& [block, moved] : seat.placement.moved())
    Feed(core::RanksMoved{Rank(block * LocalRanks()), LocalRanks(), moved.node});
  LinkTo(l, seat.term, &seat);
  l.announced_at = Now();
  for (const auto& other : launchers_)
    if (other->node != l.node) TellLauncher(l.node, other->node, LeadsFrame(seat));
}

void Cluster::StepDown(Launcher& l, Term term) {
  Log(NodeName(l.node) + " steps down for term " + std::to_string(term.number));
  CloseSeat(*l.seat);
  l.seat = nullptr;
  l.election->StepDown(Now());
}

// ---- the link to the leader ----------------------------------------------------------------------------------------

void Cluster::LinkTo(Launcher& l, Term term, Seat* seat) {
  l.leads = seat;
  l.leads_term = term;
  if (l.line) Unlink(l, "another one leads");
  Dial(l);
}

// The launcher's end, by its own decision or because the other's is gone. Its agents keep their connections to it.
void Cluster::Unlink(Launcher& l, const std::string& why) {
  if (NodeLine* line = std::exchange(l.line, nullptr)) {
    line->open_here = false;
    PutLine(line, true, "");
  }
  if (!std::exchange(l.linked, false)) return;
  Log(NodeName(l.node) + " loses its controller: " + why);
  for (const ProcessPtr p : On(l.node))
    if (p->link) p->link->down.open = p->link->up.open = false;
  l.election->Lose(Now());
}

void Cluster::Dial(Launcher& l) {
  if (std::exchange(l.dials, true)) return;
  AtLauncher(l, Between(200, 3000), [this, &l] { TryDial(l); });
}

void Cluster::TryDial(Launcher& l) {
  l.dials = false;
  if (l.ended || l.line || !l.leads) return;
  const Launcher& host = *launchers_[static_cast<size_t>(l.leads->node)];
  if (!l.leads->alive || !host.alive || host.frozen || CutBetween(l.node, host.node) || CutBetween(host.node, l.node)) {
    l.dials = true;
    return AtLauncher(l, Between(20'000, 100'000), [this, &l] { TryDial(l); });
  }
  lines_.push_back(std::make_unique<NodeLine>());
  l.line = lines_.back().get();
  l.line->launcher = &l;
  l.line->seat = l.leads;
  wire::NodeHello hello{l.node, plan_.nodes, plan_.policy.world_size / plan_.nodes, "host", {}, 1};
  for (const ProcessPtr p : On(l.node))
    if (p->alive) hello.lives.push_back({p->rank, p->incarnation, {}});
  for (const auto& [rank, left] : left_)
    if (left.held && plan_.NodeOf(rank.value()) == l.node) hello.held.push_back(HeldOf(rank));
  PutLine(l.line, true, wire::Encode(kJob, l.term, wire::NodeMessage(hello)));
}

void Cluster::Tell(Launcher& l, const wire::NodeMessage& message) {
  if (l.linked) PutLine(l.line, true, wire::Encode(kJob, l.term, message));
}

void Cluster::TellPages(Launcher& l) {
  l.told_pages = Now();
  wire::Pages pages;
  for (const ProcessPtr p : On(l.node)) {
    if (!p->alive) continue;
    const TrainPhase phase = p->at == TrainerAt::kGradients   ? TrainPhase::kGradientSync
                             : p->at == TrainerAt::kParamSync ? TrainPhase::kParamSync
                                                              : TrainPhase::kForward;
    pages.pages.push_back({p->rank, p->incarnation, p->beats, p->word, PackProgress(p->begun, phase), {}});
  }
  Tell(l, pages);
}

void Cluster::OnLineFrame(Launcher& l, NodeLine* line, const std::string& bytes) {
  if (l.line != line) return;
  if (bytes.empty()) {
    Unlink(l, "the connection closed");
    return Dial(l);
  }
  const Result<wire::NodeOrderFrame> frame = wire::DecodeToNode(kJob, bytes);
  if (!frame.ok()) return Break(Promise::kBadInput, "an order cannot be read: " + frame.status().message());
  if (!core::MayObey(*l.election, l.term, frame->term, Now()))
    return Log(NodeName(l.node) + " refuses term " + std::to_string(frame->term.number));
  if (!l.linked && !std::holds_alternative<wire::NodeWelcome>(frame->order)) {
    Unlink(l, "");
    return Dial(l);
  }
  CheckTermObeyed(l, frame->term);
  l.heard_at = Now();
  l.term = frame->term;
  std::visit(Overloaded{[&](const wire::NodeWelcome& m) { OnPlacement(l, m.placement), OnWelcome(l); },
                        [&](const wire::NodeBlocks& m) { OnPlacement(l, m.placement); },
                        [&](const wire::SpawnWorker& m) { SpawnHere(l, m.rank, m.incarnation); },
                        [&](const wire::KillWorker& m) { KillHere(l, m.rank, m.incarnation); },
                        [&](const wire::NodeEnd&) { EndHere(l); },
                        [&](const wire::NodePulse& m) {
                          l.began = m.began, l.checkpoints = m.checkpoints, l.running = m.generation;
                        },
                        [](const auto&) {}},
             frame->order);
}

void Cluster::OnWelcome(Launcher& l) {
  l.linked = true;
  l.election->Follow(l.term.number);
  Log(NodeName(l.node) + " follows term " + std::to_string(l.term.number));
  // Its agents join anew.
  for (const ProcessPtr p : On(l.node))
    if (p->alive && p->link) For(p, Between(10, 1000), [this, link = p->link] { LoseAtAgent(link); });
}

void Cluster::SpawnHere(Launcher& l, Rank rank, Incarnation incarnation) {
  if (l.ended) return;
  const ProcessPtr newest = Newest(rank), before = NewestOn(l.node, rank);
  if (newest && incarnation <= newest->incarnation)
    return Break(Promise::kOneDecider, "incarnations of rank " + rank.ToString() + " do not grow");
  NextOn(l.node, rank) = incarnation;
  if (before && before->alive) return Die(before, "killed by SIGKILL");
  if (before && !before->reaped) return;
  NextOn(l.node, rank).reset();
  StartProcess(rank, incarnation, l.node);
}

void Cluster::KillHere(Launcher& l, Rank rank, Incarnation incarnation) {
  auto& next = NextOn(l.node, rank);
  if (next == incarnation) next.reset();
  const ProcessPtr p = NewestOn(l.node, rank);
  if (p && p->alive && p->incarnation == incarnation) In(Between(10, 2000), [this, p] { Die(p, "killed by SIGKILL"); });
}

void Cluster::ReapHere(ProcessPtr p, const std::string& cause) {
  Launcher& l = *launchers_[static_cast<size_t>(p->node)];
  if (l.frozen) return l.deferred.push_back(Task([this, p, cause = cause] { ReapHere(p, cause); }));
  p->reaped = true;
  if (!l.alive) return;
  Hold(p, cause);
  if (plan_.policy.adopts) Tell(l, HeldOf(p->rank));
  Tell(l, wire::WorkerExited{p->rank, p->incarnation, cause, {}, {}});
  if (NewestOn(l.node, p->rank) != p || l.ended) return;
  if (const auto next = std::exchange(NextOn(l.node, p->rank), std::nullopt)) StartProcess(p->rank, *next, l.node);
}

void Cluster::EndHere(Launcher& l) {
  if (std::exchange(l.ended, true)) return;
  Log(NodeName(l.node) + " leaves");
  AtLauncher(l, kLeaveLimit, [this, &l] {
    for (const ProcessPtr p : On(l.node))
      if (p->alive) Die(p, "killed by SIGKILL");
  });
}

}  // namespace kintsugi::sim
