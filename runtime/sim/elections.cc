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

Launcher& Cluster::LauncherOf(Rank rank) { return *launchers_[static_cast<size_t>(world_.plan.NodeOf(rank.value()))]; }

bool Cluster::Over() const {
  if (launchers_.empty()) return world_.seat().ended.has_value();
  return std::all_of(launchers_.begin(), launchers_.end(), [](const auto& l) { return !l->alive || l->ended; });
}

void Cluster::AtLauncher(Launcher& l, Duration delay, Task what) {
  world_.In(delay, [&l, life = l.life, what = std::make_shared<Task>(std::move(what))] {
    if (!l.alive || l.life != life) return;
    if (l.frozen) return l.deferred.push_back(std::move(*what));
    (*what)();
  });
}

// Node 0 leads first. All are there when the run begins.
void Cluster::BeginElections() {
  if (!world_.plan.elections) return;
  world_.seat().term = world_.core().term();
  world_.seat().placement.Begin(1);
  for (int node = 0; node < world_.Hosts(); ++node) {
    launchers_.push_back(std::make_unique<Launcher>());
    BeginLauncher(*launchers_.back(), node);
  }
  launchers_.front()->seat = &world_.seat();
  election_checker_.Begin(0, 1);
  for (const auto& l : launchers_) {
    world_.seat().lost_at[l->node] = world_.Now();
    LinkTo(*l, world_.seat().term, &world_.seat());
  }
}

void Cluster::BeginLauncher(Launcher& l, int node) {
  l.node = node;
  l.heard_at = world_.Now();
  l.election = std::make_unique<ElectionCore>(core::ElectionOptions{.self = node,
                                                                    .world_size = world_.plan.policy.world_size,
                                                                    .patience = kPatience + node * 100ms,
                                                                    .turn = std::nullopt,
                                                                    .local_ranks = world_.LocalRanks()});
  l.block = l.placement.BlockOf(node, world_.plan.nodes);
  l.election->SetHasRanks(l.block.has_value());
  AtLauncher(l, world_.Between(100, 10000), [this, &l] { Poll(l); });
}

ElectionCore::Standing Cluster::StandingOf(const Launcher& l) const {
  ElectionCore::Standing standing;
  const std::optional<int> block = l.placement.BlockOf(l.node, world_.plan.nodes);
  const bool counts = block && block == l.block &&
                      (l.placement.Counts(*block, l.running) || (world_.hook && world_.hook->CountsAtOnce()));
  for (int r = 0; r < world_.plan.policy.world_size; ++r) {
    if (!counts || r / world_.LocalRanks() != *block) continue;
    const Process* const p = world_.processes.NewestOn(l.node, Rank(r));
    (p && p->alive ? standing.live : standing.ended).push_back(Rank(r));
  }
  if (world_.hook) world_.hook->OnStanding(l.node, &standing);
  return standing;
}

void Cluster::Poll(Launcher& l) {
  if (Over() || (l.ended && !(l.seat && l.seat->alive))) return;
  if (l.term == Term() && !l.seat && world_.Now() - l.heard_at > world_.plan.policy.join_timeout)
    return EndHere(l);  // nobody leads
  if (l.linked && world_.Now() - l.heard_at > world_.plan.policy.silence) {
    Unlink(l, "no sign of life");
    Dial(l);
  }
  if (!l.ended && l.election->leaderless()) Do(l, l.election->OnTick(world_.Now(), StandingOf(l)));
  if (l.linked && world_.Now() - l.told_pages >= kPagesEvery) TellPages(l);
  if (l.seat && l.seat->alive) PollSeat(l, *l.seat);
  AtLauncher(l, kPoll, [this, &l] { Poll(l); });
}

void Cluster::PollSeat(Launcher& l, Seat& seat) {
  if (world_.Now() - l.pulsed_at >= kPagesEvery) {
    l.pulsed_at = world_.Now();
    PulseNodes(seat);
  }
  CheckNodes(seat);
  MoveBlocks(seat);
  if (seat.alive && !l.ended && world_.Now() - l.announced_at >= kAnnounceEvery) {
    l.announced_at = world_.Now();
    for (const auto& other : launchers_)
      if (other->node != l.node && !seat.lines.count(other->node)) TellLauncher(l.node, other->node, LeadsFrame(seat));
  }
}

// ---- between launchers ---------------------------------------------------------------------------------------------

std::string Cluster::LeadsFrame(const Seat& seat) const {
  const std::deque<Seat>& seats = world_.seats.all();
  const auto index = std::find_if(seats.begin(), seats.end(), [&](const Seat& s) { return &s == &seat; });
  const auto port = static_cast<uint16_t>(index - seats.begin() + 1);
  return wire::Encode(kJob, seat.term,
                      wire::NodeOrder(wire::Leads{{seat.node, "host", port}, seat.part, seat.placement}));
}

// What cannot be delivered is lost: whoever asks asks again.
void Cluster::TellLauncher(int from, int to, std::string frame) {
  if (network_.CutBetween(from, to)) return;
  Launcher& l = *launchers_[static_cast<size_t>(to)];
  AtLauncher(l, world_.Between(100, world_.random.Chance(0.1) ? 100'000 : 5000),
             [this, &l, from, frame = std::move(frame)] {
               if (!network_.CutBetween(from, l.node)) Hear(l, frame);
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
  if (!order.ok())
    return world_.Break(Promise::kBadInput, "a launcher's frame cannot be read: " + order.status().message());
  if (const auto* leads = std::get_if<wire::Leads>(&order->order)) OnLeads(l, order->term, *leads);
}

void Cluster::OnVoteRequest(Launcher& l, const wire::VoteRequest& request) {
  Learn(l, request.placement);
  bool granted = !l.ended && l.election->OnRequest(request.node, request.term, world_.Now());
  if (world_.hook) world_.hook->OnVote(l.node, request.node, request.term, &granted);
  world_.Log(NodeName(l.node) + (granted ? " votes for node " : " does not vote for node ") +
             std::to_string(request.node) + " in term " + std::to_string(request.term));
  if (granted) election_checker_.CheckPromise(l.node, request.node, request.term);
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
  Seat* seat = &world_.seats.all()[leads.controller.port - 1u];
  core::Allegiance mine{l.term, {}, l.leads_term, l.linked, l.placement};
  if (l.seat && l.seat->alive) mine.leading = l.seat->term;
  const core::LeadsAnswer answer =
      core::AnswerLeads(*l.election, mine, {term, leads.part, leads.placement, seat == l.leads}, world_.Now());
  if (answer.steps_down) StepDown(l, term);
  if (answer.links) LinkTo(l, term, seat);
}

void Cluster::Do(Launcher& l, ElectionCore::Decision decision) {
  if (world_.hook) world_.hook->OnElection(l.node, &decision);
  if (decision.ask) {
    election_checker_.CheckPromise(l.node, l.node, decision.ask->term);
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
  world_.Log("== " + NodeName(l.node) + " leads term " + std::to_string(lead.term) +
             (lead.majority ? "" : " of a part, to save"));
  election_checker_.CheckPromise(l.node, l.node, lead.term);
  election_checker_.CheckLead(l.node, lead);
  Policy policy = world_.plan.policy;
  policy.takes_over = true;
  policy.began = l.began;
  policy.checkpoints = l.checkpoints;
  if (!lead.majority) policy.consent_wait = {};
  if (l.seat) l.seat->alive = false;
  Seat& seat = world_.seats.Add();
  seat.node = l.node;
  seat.term = {lead.term, static_cast<uint64_t>(l.node) + 1};
  seat.part = !lead.majority;
  seat.Begin(policy, seat.term);
  seat.began = l.began;
  seat.running = l.running;
  seat.placement = l.placement;
  if (lead.majority) seat.placement.Begin(lead.term);
  seat.checkpoints_told = l.checkpoints;
  for (const auto& other : launchers_) seat.lost_at[other->node] = world_.Now();
  l.seat = &seat;
  world_.seats.Sit(seat);
  table_checker_.BeginTakeover(std::nullopt);
  world_.NoteProgress();
  for (const ControllerAction& action : world_.core().Start(world_.Now())) Act(action);
  for (const auto& [block, moved] : seat.placement.moved())
    Feed(core::RanksMoved{Rank(block * world_.LocalRanks()), world_.LocalRanks(), moved.node});
  LinkTo(l, seat.term, &seat);
  l.announced_at = world_.Now();
  for (const auto& other : launchers_)
    if (other->node != l.node) TellLauncher(l.node, other->node, LeadsFrame(seat));
}

void Cluster::StepDown(Launcher& l, Term term) {
  world_.Log(NodeName(l.node) + " steps down for term " + std::to_string(term.number));
  CloseSeat(*l.seat);
  l.seat = nullptr;
  l.election->StepDown(world_.Now());
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
  world_.Log(NodeName(l.node) + " loses its controller: " + why);
  for (Process* const p : world_.processes.On(l.node))
    if (p->link) p->link->down.open = p->link->up.open = false;
  l.election->Lose(world_.Now());
}

void Cluster::Dial(Launcher& l) {
  if (std::exchange(l.dials, true)) return;
  AtLauncher(l, world_.Between(200, 3000), [this, &l] { TryDial(l); });
}

void Cluster::TryDial(Launcher& l) {
  l.dials = false;
  if (l.ended || l.line || !l.leads) return;
  const Launcher& host = *launchers_[static_cast<size_t>(l.leads->node)];
  if (!l.leads->alive || !host.alive || host.frozen || network_.CutBetween(l.node, host.node) ||
      network_.CutBetween(host.node, l.node)) {
    l.dials = true;
    return AtLauncher(l, world_.Between(20'000, 100'000), [this, &l] { TryDial(l); });
  }
  lines_.push_back(std::make_unique<NodeLine>());
  l.line = lines_.back().get();
  l.line->launcher = &l;
  l.line->seat = l.leads;
  wire::NodeHello hello{l.node, world_.plan.nodes, world_.plan.policy.world_size / world_.plan.nodes, "host", {}, 1};
  for (Process* const p : world_.processes.On(l.node))
    if (p->alive) hello.lives.push_back({p->rank, p->incarnation, {}});
  for (const auto& [rank, left] : world_.left)
    if (left.held && world_.plan.NodeOf(rank.value()) == l.node) hello.held.push_back(held_.HeldOf(rank));
  PutLine(l.line, true, wire::Encode(kJob, l.term, wire::NodeMessage(hello)));
}

void Cluster::Tell(Launcher& l, const wire::NodeMessage& message) {
  if (l.linked) PutLine(l.line, true, wire::Encode(kJob, l.term, message));
}

void Cluster::TellPages(Launcher& l) {
  l.told_pages = world_.Now();
  wire::Pages pages;
  for (Process* const p : world_.processes.On(l.node)) {
    if (!p->alive) continue;
    pages.pages.push_back({p->rank, p->incarnation, p->beats, p->word, PackProgress(p->begun, p->PagePhase()), {}});
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
  if (!frame.ok()) return world_.Break(Promise::kBadInput, "an order cannot be read: " + frame.status().message());
  if (!core::MayObey(*l.election, l.term, frame->term, world_.Now()))
    return world_.Log(NodeName(l.node) + " refuses term " + std::to_string(frame->term.number));
  if (!l.linked && !std::holds_alternative<wire::NodeWelcome>(frame->order)) {
    Unlink(l, "");
    return Dial(l);
  }
  election_checker_.CheckTermObeyed(l.node, l.term, frame->term);
  l.heard_at = world_.Now();
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
  world_.Log(NodeName(l.node) + " follows term " + std::to_string(l.term.number));
  // Its agents join anew.
  for (Process* const p : world_.processes.On(l.node))
    if (p->alive && p->link) world_.For(p, world_.Between(10, 1000), [this, link = p->link] { agents_.OnLost(link); });
}

void Cluster::SpawnHere(Launcher& l, Rank rank, Incarnation incarnation) {
  if (l.ended) return;
  Process *const newest = world_.processes.Newest(rank), *const before = world_.processes.NewestOn(l.node, rank);
  if (newest && incarnation <= newest->incarnation)
    return world_.Break(Promise::kOneDecider, "incarnations of rank " + rank.ToString() + " do not grow");
  NextOn(l.node, rank) = incarnation;
  if (before && before->alive) return processes_.Die(before, "killed by SIGKILL");
  if (before && !before->reaped) return;
  NextOn(l.node, rank).reset();
  processes_.Start(rank, incarnation, l.node);
}

void Cluster::KillHere(Launcher& l, Rank rank, Incarnation incarnation) {
  auto& next = NextOn(l.node, rank);
  if (next == incarnation) next.reset();
  Process* const p = world_.processes.NewestOn(l.node, rank);
  if (p && p->alive && p->incarnation == incarnation)
    world_.In(world_.Between(10, 2000), [this, p] { processes_.Die(p, "killed by SIGKILL"); });
}

void Cluster::ReapHere(Process* p, const std::string& cause) {
  Launcher& l = *launchers_[static_cast<size_t>(p->node)];
  if (l.frozen) return l.deferred.push_back(Task([this, p, cause = cause] { ReapHere(p, cause); }));
  p->reaped = true;
  if (!l.alive) return;
  held_.Hold(p, cause);
  if (world_.plan.policy.adopts) Tell(l, held_.HeldOf(p->rank));
  Tell(l, wire::WorkerExited{p->rank, p->incarnation, cause, {}, {}});
  if (world_.processes.NewestOn(l.node, p->rank) != p || l.ended) return;
  if (const auto next = std::exchange(NextOn(l.node, p->rank), std::nullopt)) processes_.Start(p->rank, *next, l.node);
}

void Cluster::EndHere(Launcher& l) {
  if (std::exchange(l.ended, true)) return;
  world_.Log(NodeName(l.node) + " leaves");
  AtLauncher(l, kLeaveLimit, [this, &l] {
    for (Process* const p : world_.processes.On(l.node))
      if (p->alive) processes_.Die(p, "killed by SIGKILL");
  });
}

}  // namespace kintsugi::sim
