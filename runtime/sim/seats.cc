#include "runtime/sim/seats.h"

#include <algorithm>

#include "runtime/core/hang_detector.h"
#include "runtime/wire/node_codec.h"

namespace kintsugi::sim {
namespace {

wire::NodePulse PulseOf(const Seat& seat) {
  wire::NodePulse pulse{seat.began, seat.checkpoints_told, seat.running, {}, {}, true};
  pulse.so_far.crew = seat.crew;
  pulse.so_far.ranks_wanted = seat.core().ranks_wanted();
  return pulse;
}

}  // namespace

void Seats::CloseLine(NodeLine* line) {
  if (!std::exchange(line->open_there, false)) return;
  Seat& seat = *line->seat;
  const auto found = seat.lines.find(line->launcher->node);
  if (found == seat.lines.end() || found->second != line) return;
  seat.lines.erase(found);
  seat.lost_at[line->launcher->node] = world_.Now();
  for (size_t r = 0; r < world_.size; ++r)
    if (world_.seat().connections[r] && world_.seat().connections[r]->process->node == line->launcher->node)
      controllers_.OnLost(world_.seat().connections[r], false);
}

void Seats::Close(Seat& seat) {
  seat.alive = false;
  for (const auto& [node, line] : seat.lines) {
    line->open_there = false;
    lines_.Put(line, false, "");
  }
  seat.lines.clear();
}

void Seats::OnWord(NodeLine* line, const std::string& bytes) {
  const int node = line->launcher->node;
  if (bytes.empty()) return CloseLine(line);
  const Result<wire::NodeFrame> frame = wire::DecodeFromNode(kJob, bytes);
  if (!frame.ok())
    return world_.Break(Promise::kBadInput, "a node's frame cannot be read: " + frame.status().message());
  if (const auto* hello = std::get_if<wire::NodeHello>(&frame->message)) return OnHello(line, *hello);
  if (const auto* pages = std::get_if<wire::Pages>(&frame->message)) {
    for (const wire::Page& page : pages->pages)
      if (world_.SeatedNodeOf(page.rank) == node)
        controllers_.Feed(
            FromAgent{{world_.core().term(), world_.core().generation(), page.rank, page.incarnation},
                      core::Beat{page.beat, core::PlaceOf(page.progress, GateWord::Unpack(page.gate_word))}});
  } else if (const auto* exited = std::get_if<wire::WorkerExited>(&frame->message)) {
    world_.seat().given_up.insert({exited->rank, exited->incarnation});
    if (!world_.seat().ended && world_.SeatedNodeOf(exited->rank) == node)
      controllers_.Feed(ProcessExited{exited->rank, exited->incarnation, exited->cause, std::nullopt});
  } else if (const auto* held = std::get_if<wire::NodeHeld>(&frame->message)) {
    controllers_.TakeHeld(*held);
  } else if (std::holds_alternative<wire::NodeStop>(frame->message)) {
    world_.seat().stop_heard = true;
    controllers_.Feed(OperatorStop{});
  }
}

void Seats::OnHello(NodeLine* line, const wire::NodeHello& hello) {
  Seat& seat = *line->seat;
  const int node = line->launcher->node;
  if (const auto before = seat.lines.find(node); before != seat.lines.end()) CloseLine(before->second);
  seat.lines[node] = line;
  SendTo(node, wire::NodeWelcome{true, "", "host", 1, world_.plan.beat, "", "", seat.placement});
  if (world_.seat().ended)
    return void(SendTo(node, wire::NodeEnd{world_.seat().ended->exit_code, world_.seat().ended->text}));
  SendTo(node, PulseOf(seat));
  const std::optional<int> number = seat.placement.BlockOf(node, world_.plan.nodes);
  if (!number) {
    for (const wire::WorkerLife& life : hello.lives)
      SendTo(node, wire::KillWorker{life.rank, life.incarnation, "another node has taken the rank over"});
    return;
  }
  const core::RankBlock block{Rank(*number * world_.LocalRanks()), world_.LocalRanks()};
  if (seat.absent.erase(node)) controllers_.Feed(core::NodeAbsent{block.first, block.ranks, false});
  if (world_.seat().ended) return;
  if (hello.newcomer) controllers_.Feed(core::LauncherNew{block.first, block.ranks});
  for (const wire::NodeHeld& held : hello.held) controllers_.TakeHeld(held);  // before their ends are told
  core::LivesThere lives;
  for (const wire::WorkerLife& life : hello.lives) lives[life.rank] = life.incarnation;
  return world_.core().taking_over() ? FoundLives(block, lives) : ComparedLives(node, block, lives);
}

bool Seats::SendTo(int node, const wire::NodeOrder& order) {
  const auto found = world_.seat().lines.find(node);
  if (found == world_.seat().lines.end()) return false;
  lines_.Put(found->second, false, wire::Encode(kJob, world_.seat().term, order));
  return true;
}

void Seats::Spawn(Rank rank, Incarnation incarnation) {
  const int node = world_.SeatedNodeOf(rank);
  if (world_.seat().cut_off.count(node) || !SendTo(node, wire::SpawnWorker{rank, incarnation}))
    world_.seat().to_spawn[node][rank] = incarnation;
}

void Seats::Forget(Rank rank, Incarnation incarnation) {
  auto& to_spawn = world_.seat().to_spawn[world_.SeatedNodeOf(rank)];
  if (const auto waits = to_spawn.find(rank); waits != to_spawn.end() && waits->second <= incarnation)
    to_spawn.erase(waits);
}

// The controller knows nothing yet: what runs there is what there is.
void Seats::FoundLives(const core::RankBlock& block, const core::LivesThere& lives) {
  for (const core::FoundLife& life : core::FindLives(block, lives)) {
    if (world_.seat().ended) return;
    if (life.incarnation)
      controllers_.Feed(core::ProcessFound{life.rank, *life.incarnation});
    else
      controllers_.Feed(ProcessExited{life.rank, Incarnation(), "had ended", std::nullopt});
  }
}

// What ended while nobody could tell; then what began or is no longer wanted.
void Seats::ComparedLives(int node, const core::RankBlock& block, const core::LivesThere& lives) {
  using What = core::ReturnAction::What;
  auto& to_spawn = world_.seat().to_spawn[node];
  for (const core::ReturnAction& step : core::CompareLives(world_.core().members(), block, lives, to_spawn)) {
    if (step.what == What::kEnd)
      SendTo(node, wire::KillWorker{step.rank, step.incarnation, "was given up while its node was away"});
    else if (world_.seat().ended)
      continue;
    else if (step.what == What::kHadEnded)
      controllers_.Feed(ProcessExited{step.rank, step.incarnation, "had ended", std::nullopt});
    else
      controllers_.Feed(ProcessExited{step.rank, step.incarnation, "had ended when its node came back", std::nullopt,
                                      step.what == What::kNeverBegan});
  }
  for (const auto& [rank, incarnation] : std::exchange(to_spawn, {})) Spawn(rank, incarnation);
}

// The leader's launcher waits for the others, but not for ever.
void Seats::OnRunEnded() {
  Seat& seat = world_.seat();
  for (const auto& [node, line] : seat.lines)
    SendTo(node, wire::NodeEnd{world_.seat().ended->exit_code, world_.seat().ended->text});
  Launcher& l = launchers_.Of(seat.node);
  launchers_.At(l, kLeaveLimit, [this, &l, &seat] {
    if (!seat.alive) return;
    ranks_.Leave(l);
    Close(seat);
  });
}

core::RankBlock Seats::BlockOf(int block) const { return {Rank(block * world_.LocalRanks()), world_.LocalRanks()}; }

void Seats::TellPlacesAway(Seat& seat) {
  if (world_.seat().ended || world_.core().taking_over()) return;
  std::vector<Rank> away;
  for (const auto& [node, lost_at] : seat.lost_at) {
    const std::optional<int> block = seat.placement.BlockOf(node, world_.plan.nodes);
    if (!block || (seat.lines.count(node) && !seat.cut_off.count(node))) continue;
    for (int r = BlockOf(*block).first.value(), end = r + world_.LocalRanks(); r < end; ++r)
      if (!world_.core().crew().Has(Rank(r))) away.emplace_back(r);
  }
  if (std::exchange(seat.places_told, away) != away) controllers_.Feed(core::PlacesAway{away});
}

void Seats::DoWithout(Seat& seat, int node, TimePoint lost_at) {
  const std::optional<int> block = seat.placement.BlockOf(node, world_.plan.nodes);
  if (world_.seat().ended || !block || world_.plan.shrink_after == Duration() || seat.lines.count(node) ||
      seat.absent.count(node) || SparesHere(seat) > 0 || world_.Now() - lost_at < world_.plan.shrink_after ||
      !world_.core().MayDoWithout(BlockOf(*block).first, world_.LocalRanks()))
    return;
  seat.absent.insert(node);
  ++world_.outcome.done_without;
  controllers_.Feed(core::NodeAbsent{BlockOf(*block).first, world_.LocalRanks(), true});
}

void Seats::CheckNodes(Seat& seat) {
  launchers_.AtSeat(seat, [this, &seat] {
    TellPlacesAway(seat);
    for (auto& [node, lost_at] : seat.lost_at) {
      DoWithout(seat, node, lost_at);
      const bool away = !seat.lines.count(node) && world_.Now() - lost_at >= world_.plan.policy.consent_wait;
      if (!(away || seat.cut_off.count(node)) || SparesHere(seat) > 0) continue;
      for (const auto& [rank, incarnation] : std::exchange(seat.to_spawn[node], {}))
        if (!world_.seat().ended)
          controllers_.Feed(
              ProcessExited{rank, incarnation, "could not be started: its node is gone", std::nullopt, true});
    }
  });
}

void Seats::Pulse(Seat& seat) {
  launchers_.AtSeat(seat, [this, &seat] {
    TellPulses();
    // Once all who are here have left, nobody is told any more.
    if (world_.seat().ended && launchers_.Of(seat.node).ended &&
        std::all_of(seat.lines.begin(), seat.lines.end(), [](const auto& l) { return l.second->launcher->ended; }))
      Close(seat);
  });
}

void Seats::TellPulses() {
  for (const auto& [node, line] : world_.seat().lines) SendTo(node, PulseOf(world_.seat()));
}

int Seats::SparesHere(const Seat& seat) const {
  return static_cast<int>(std::count_if(seat.lines.begin(), seat.lines.end(), [&](const auto& line) {
    return !seat.cut_off.count(line.first) && !seat.placement.BlockOf(line.first, world_.plan.nodes);
  }));
}

void Seats::MoveBlocks(Seat& seat) {
  if (world_.plan.spare_nodes == 0) return;
  launchers_.AtSeat(seat, [this, &seat] {
    if (world_.seat().ended) return;
    if (const int here = SparesHere(seat); std::exchange(seat.spares_told, here) != here)
      controllers_.Feed(core::SpareNodes{here});
    if (world_.seat().ended) return;
    std::vector<core::Host> hosts;
    for (const auto& [node, lost_at] : seat.lost_at) {
      const bool cut_off = seat.cut_off.count(node) > 0;
      hosts.push_back({node, seat.lines.count(node) > 0 && !cut_off, cut_off ? TimePoint() : lost_at});
    }
    const auto due = core::NextTakeover(
        seat.placement, world_.plan.nodes, hosts, world_.plan.spare_after, world_.Now(),
        [this](int block) { return world_.core().MayMove(Rank(block * world_.LocalRanks()), world_.LocalRanks()); });
    if (!due) return;
    world_.Log("== node " + std::to_string(due->to) + " takes block " + std::to_string(due->block) +
               " over from node " + std::to_string(due->from));
    ++world_.outcome.moved;
    seat.placement.Move(seat.term.number, due->block, due->to, seat.running);
    seat.to_spawn[due->from].clear();
    table_checker_.GiveBack(Rank(due->block * world_.LocalRanks()), world_.LocalRanks());
    for (const auto& [node, line] : seat.lines) SendTo(node, wire::NodeBlocks{seat.placement});
    controllers_.Feed(core::RanksMoved{Rank(due->block * world_.LocalRanks()), world_.LocalRanks(), due->to});
  });
}

}  // namespace kintsugi::sim
