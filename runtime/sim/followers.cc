#include "runtime/sim/followers.h"

#include "runtime/base/overloaded.h"
#include "runtime/core/allegiance.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi::sim {
namespace {

// Of the grace period so much is for a leader to be found (runtime/launcher/node_ending.cc).
constexpr int kToElect = 4;

}  // namespace

void Followers::ConnectTo(Launcher& l, Term term, Seat* seat) {
  l.leads = seat;
  l.leads_term = term;
  if (l.line) Disconnect(l, "another one leads");
  Dial(l);
}

// The launcher's end, by its own decision or because the other's is gone. Its agents keep their connections to it.
void Followers::Disconnect(Launcher& l, const std::string& why) {
  if (NodeLine* line = std::exchange(l.line, nullptr)) {
    line->open_here = false;
    lines_.Put(line, true, "");
  }
  if (!std::exchange(l.connected, false)) return;
  world_.Log(NodeName(l.node) + " loses its controller: " + why);
  for (Process* const p : world_.processes.On(l.node))
    if (p->connection) p->connection->down.open = p->connection->up.open = false;
  l.election->Lose(world_.Now());
}

void Followers::CheckLine(Launcher& l) {
  if (!l.connected || world_.Now() - l.heard_at <= world_.plan.policy.silence) return;
  Disconnect(l, "no sign of life");
  Dial(l);
}

void Followers::Dial(Launcher& l) {
  if (std::exchange(l.dials, true)) return;
  launchers_.At(l, world_.Between(200, 3000), [this, &l] { TryDial(l); });
}

void Followers::TryDial(Launcher& l) {
  l.dials = false;
  if (l.ended || l.line || !l.leads) return;
  const Launcher& host = launchers_.Of(l.leads->node);
  if (!l.leads->alive || !host.alive || host.frozen || network_.CutBetween(l.node, host.node) ||
      network_.CutBetween(host.node, l.node)) {
    l.dials = true;
    return launchers_.At(l, world_.Between(20'000, 100'000), [this, &l] { TryDial(l); });
  }
  l.line = lines_.Open(l);
  wire::NodeHello hello{l.node, world_.plan.nodes, world_.LocalRanks(), "host", {}, 1};
  hello.newcomer = l.newcomer.is_one();
  for (Process* const p : world_.processes.On(l.node))
    if (p->alive) hello.lives.push_back({p->rank, p->incarnation, {}});
  for (const auto& [rank, left] : world_.left)
    if (left.held && world_.plan.NodeOf(rank.value()) == l.node) hello.held.push_back(held_.HeldOf(rank));
  lines_.Put(l.line, true, wire::Encode(kJob, l.term, wire::NodeMessage(hello)));
}

void Followers::TellPages(Launcher& l) {
  l.told_pages = world_.Now();
  wire::Pages pages;
  for (Process* const p : world_.processes.On(l.node)) {
    if (!p->alive) continue;
    pages.pages.push_back({p->rank, p->incarnation, p->beats, p->word, PackProgress(p->begun, p->PagePhase()), {}});
  }
  lines_.Tell(l, pages);
}

void Followers::AskToStop(Launcher& l) {
  lines_.Tell(l, wire::NodeStop{});
  if (l.stop_asked) return;
  l.stop_asked = world_.Now();
  l.election->Hurry(world_.plan.policy.grace / kToElect);
}

void Followers::OnOrder(NodeLine* line, const std::string& bytes) {
  Launcher& l = *line->launcher;
  if (l.line != line) return;
  if (bytes.empty()) {
    Disconnect(l, "the connection closed");
    return Dial(l);
  }
  const Result<wire::NodeOrderFrame> frame = wire::DecodeToNode(kJob, bytes);
  if (!frame.ok()) return world_.Break(Promise::kBadInput, "an order cannot be read: " + frame.status().message());
  if (!core::MayObey(*l.election, l.term, frame->term, world_.Now()))
    return world_.Log(NodeName(l.node) + " refuses term " + std::to_string(frame->term.number));
  if (!l.connected && !std::holds_alternative<wire::NodeWelcome>(frame->order)) {
    Disconnect(l, "");
    return Dial(l);
  }
  election_checker_.CheckTermObeyed(l.node, l.term, frame->term);
  l.heard_at = world_.Now();
  l.term = frame->term;
  std::visit(Overloaded{[&](const wire::NodeWelcome& m) { OnPlacement(l, m.placement), OnWelcome(l); },
                        [&](const wire::NodeBlocks& m) { OnPlacement(l, m.placement); },
                        [&](const wire::SpawnWorker& m) { ranks_.Spawn(l, m.rank, m.incarnation); },
                        [&](const wire::KillWorker& m) { ranks_.Kill(l, m.rank, m.incarnation); },
                        [&](const wire::NodeEnd&) { ranks_.Leave(l); },
                        [&](const wire::NodePulse& m) {
                          l.began = m.began, l.checkpoints = m.checkpoints, l.running = m.generation;
                          l.newcomer.OnPulse(m.started, m.generation);
                          l.fresh.OnPulse(m.generation, m.so_far.crew);
                          l.crew = m.so_far.crew, l.ranks_wanted = m.so_far.ranks_wanted;
                        },
                        [](const auto&) {}},
             frame->order);
}

void Followers::OnWelcome(Launcher& l) {
  l.connected = true;
  l.welcomed_at = world_.Now();
  l.newcomer.OnWelcome();
  l.election->Follow(l.term.number);
  world_.Log(NodeName(l.node) + " follows term " + std::to_string(l.term.number));
  if (l.stop_asked && !(world_.hook && world_.hook->ForgetsStop())) lines_.Tell(l, wire::NodeStop{});
  // Its agents join anew.
  for (Process* const p : world_.processes.On(l.node))
    if (p->alive && p->connection)
      world_.For(p, world_.Between(10, 1000), [this, connection = p->connection] { agents_.OnLost(connection); });
}

bool Followers::Learn(Launcher& l, core::Placement placement) {
  if (world_.hook) world_.hook->OnPlacement(l.node, &placement);
  if (!l.placement.Learn(placement)) return false;
  l.election->SetPlacement(l.placement);
  l.election->SetHasRanks(l.block && l.placement.BlockOf(l.node, world_.plan.nodes));
  return true;
}

// By the word of a leader: what runs of ranks that another node has now ends.
void Followers::OnPlacement(Launcher& l, const core::Placement& placement) {
  Learn(l, placement);
  if (placement.version() != l.placement.version()) return;
  const std::optional<int> before = std::exchange(l.block, l.placement.BlockOf(l.node, world_.plan.nodes));
  l.election->SetHasRanks(l.block.has_value());
  if (l.block == before) return;
  world_.Log(NodeName(l.node) + (l.block ? " has block " + std::to_string(*l.block) : " is a spare"));
  if (before) ranks_.KillAll(l);
}

}  // namespace kintsugi::sim
