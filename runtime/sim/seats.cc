// Controllers where there are several launchers: mirrors the leader's side (runtime/launcher/nodes.cc, NodeHub).
#include <algorithm>

#include "runtime/base/overloaded.h"
#include "runtime/core/hang_detector.h"
#include "runtime/sim/describe.h"
#include "runtime/sim/elections.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

// Whatever an agent and its controller say passes through the agent's launcher.
bool Cluster::Relay(Link* link, bool up, const std::string& frame) {
  if (!link->seat || stepped_ == link->seat) return false;
  Launcher& l = *launchers_[static_cast<size_t>(link->process->node)];
  if (!l.alive) return true;
  if (l.frozen) {
    l.deferred.push_back(Task([this, link, up, frame = frame] { network_.Deliver(link, up, frame); }));
    return true;
  }
  if (!up) return !l.linked || l.leads != link->seat;
  AtSeat(link->seat, [this, link, frame = frame] { network_.Deliver(link, true, frame); });
  return true;
}

void Cluster::CloseAtSeat(Link* link, bool told) {
  AtSeat(link->seat, [this, link, told] { OnLost(link, told); });
}

Directory::Answer Cluster::ControllerOf(const Process* p) {
  if (launchers_.empty()) return {.refused = world_.seat().down};
  const Launcher& l = *launchers_[static_cast<size_t>(p->node)];
  Seat* const seat = l.linked && !l.frozen ? l.leads : nullptr;
  return {.waits = !seat, .seat = seat};
}

void Cluster::NoteBegun() {
  world_.seat().began = true;
  world_.seat().running = world_.core().generation();
}

void Cluster::TickSeats() {
  for (size_t i = 0; i < world_.seats.all().size(); ++i) {
    Seat* seat = &world_.seats.all()[i];
    if (seat->alive && !launchers_[static_cast<size_t>(seat->node)]->frozen)
      AtSeat(seat, [this] { Feed(core::Tick{}); });
  }
  if (!Over()) table_checker_.CheckProgress();
  if (!Over()) world_.In(world_.plan.tick, [this] { TickSeats(); });
}

// ---- lines ---------------------------------------------------------------------------------------------------------

void Cluster::PutLine(NodeLine* line, bool up, std::string frame) {
  TimePoint& last = line->last[up];
  last = std::max(last + 1ns, world_.Now() + world_.Between(50, 2000));
  world_.At(last, [this, line, up, frame = std::move(frame)] { ArriveLine(line, up, frame); });
}

void Cluster::ArriveLine(NodeLine* line, bool up, const std::string& frame) {
  const int here = line->launcher->node, there = line->seat->node;
  if (network_.CutBetween(up ? here : there, up ? there : here)) return line->held[up].push_back(frame);
  if (!up)
    return AtLauncher(*line->launcher, {}, [this, line, frame = frame] {
      if (line->open_here) OnLineFrame(*line->launcher, line, frame);
    });
  // Bytes for an end that is gone come back as a reset.
  if (!line->open_there || !line->seat->alive) return frame.empty() ? void() : PutLine(line, false, "");
  AtSeat(line->seat, [this, line, frame = frame] { OnLineUp(line, frame); });
}

void Cluster::CloseLine(NodeLine* line) {
  if (!std::exchange(line->open_there, false)) return;
  Seat& seat = *line->seat;
  const auto found = seat.lines.find(line->launcher->node);
  if (found == seat.lines.end() || found->second != line) return;
  seat.lines.erase(found);
  seat.lost_at[line->launcher->node] = world_.Now();
  for (size_t r = 0; r < world_.size; ++r)
    if (world_.seat().links[r] && world_.seat().links[r]->process->node == line->launcher->node)
      OnLost(world_.seat().links[r], false);
}

void Cluster::CloseSeat(Seat& seat) {
  seat.alive = false;
  for (const auto& [node, line] : seat.lines) {
    line->open_there = false;
    PutLine(line, false, "");
  }
  seat.lines.clear();
}

void Cluster::HealNodes() {
  for (size_t i = 0; i < lines_.size(); ++i)
    for (const bool up : {false, true})
      for (std::string& frame : std::exchange(lines_[i]->held[up], {})) ArriveLine(lines_[i].get(), up, frame);
  network_.DeliverHeld();
}

// ---- a seat's nodes (seated) ---------------------------------------------------------------------------------------

void Cluster::OnLineUp(NodeLine* line, const std::string& bytes) {
  Seat& seat = *line->seat;
  const int node = line->launcher->node;
  if (bytes.empty()) return CloseLine(line);
  const Result<wire::NodeFrame> frame = wire::DecodeFromNode(kJob, bytes);
  if (!frame.ok())
    return world_.Break(Promise::kBadInput, "a node's frame cannot be read: " + frame.status().message());
  if (const auto* hello = std::get_if<wire::NodeHello>(&frame->message)) {
    if (const auto before = seat.lines.find(node); before != seat.lines.end()) CloseLine(before->second);
    seat.lines[node] = line;
    SendToNode(node, wire::NodeWelcome{true, "", "host", 1, world_.plan.beat, "", "", seat.placement});
    if (world_.seat().ended)
      return void(SendToNode(node, wire::NodeEnd{world_.seat().ended->exit_code, world_.seat().ended->text}));
    if (!seat.placement.BlockOf(node, world_.plan.nodes)) {
      for (const wire::WorkerLife& life : hello->lives)
        SendToNode(node, wire::KillWorker{life.rank, life.incarnation, "another node has taken the rank over"});
      return;
    }
    for (const wire::NodeHeld& held : hello->held) TakeHeld(held);  // before their ends are told
    return world_.core().taking_over() ? FoundLives(node, *hello) : ComparedLives(node, *hello);
  }
  if (const auto* pages = std::get_if<wire::Pages>(&frame->message)) {
    for (const wire::Page& page : pages->pages)
      if (world_.SeatedNodeOf(page.rank) == node)
        Feed(FromAgent{{world_.core().term(), world_.core().generation(), page.rank, page.incarnation},
                       core::Beat{page.beat, core::PlaceOf(page.progress, GateWord::Unpack(page.gate_word))}});
  } else if (const auto* exited = std::get_if<wire::WorkerExited>(&frame->message)) {
    world_.seat().given_up.insert({exited->rank, exited->incarnation});
    if (!world_.seat().ended && world_.SeatedNodeOf(exited->rank) == node)
      Feed(ProcessExited{exited->rank, exited->incarnation, exited->cause, std::nullopt});
  } else if (const auto* held = std::get_if<wire::NodeHeld>(&frame->message)) {
    TakeHeld(*held);
  } else if (std::holds_alternative<wire::NodeStop>(frame->message)) {
    Feed(OperatorStop{});
  }
}

bool Cluster::SendToNode(int node, const wire::NodeOrder& order) {
  const auto found = world_.seat().lines.find(node);
  if (found == world_.seat().lines.end()) return false;
  PutLine(found->second, false, wire::Encode(kJob, world_.seat().term, order));
  return true;
}

void Cluster::SpawnThere(Rank rank, Incarnation incarnation) {
  const int node = world_.SeatedNodeOf(rank);
  if (!SendToNode(node, wire::SpawnWorker{rank, incarnation})) world_.seat().to_spawn[node][rank] = incarnation;
}

// The controller knows nothing yet: what runs there is what there is.
void Cluster::FoundLives(int node, const wire::NodeHello& hello) {
  std::map<Rank, Incarnation> lives;
  for (const wire::WorkerLife& life : hello.lives) lives[life.rank] = life.incarnation;
  for (int r = 0; r < world_.plan.policy.world_size && !world_.seat().ended; ++r) {
    if (world_.SeatedNodeOf(Rank(r)) != node) continue;
    const auto found = lives.find(Rank(r));
    if (found != lives.end())
      Feed(core::ProcessFound{Rank(r), found->second});
    else
      Feed(ProcessExited{Rank(r), Incarnation(), "had ended", std::nullopt});
  }
}

// What ended while nobody could tell; then what began or is no longer wanted.
void Cluster::ComparedLives(int node, const wire::NodeHello& hello) {
  using Life = ControllerCore::Life;
  std::map<Rank, Incarnation> lives;
  for (const wire::WorkerLife& life : hello.lives) lives[life.rank] = life.incarnation;
  auto& to_spawn = world_.seat().to_spawn[node];
  const std::vector<ControllerCore::Member> members = world_.core().members();
  for (int r = 0; r < world_.plan.policy.world_size; ++r) {
    if (world_.SeatedNodeOf(Rank(r)) != node) continue;
    const Rank rank(r);
    const auto& member = members[static_cast<size_t>(r)];
    const auto found = lives.find(rank);
    const bool runs = found != lives.end() && found->second == member.incarnation;
    const bool expected = (member.life == Life::kReady || member.life == Life::kStarting) && !to_spawn.count(rank);
    if (found != lives.end() && !(runs && expected))
      SendToNode(node, wire::KillWorker{rank, found->second, "was given up while its node was away"});
    else if (member.unconfirmed && !world_.seat().ended)
      Feed(ProcessExited{rank, *member.unconfirmed, "had ended", std::nullopt});
    if (expected && !runs && !world_.seat().ended)
      Feed(ProcessExited{rank, member.incarnation, "had ended when its node came back", std::nullopt,
                         found != lives.end()});
  }
  for (const auto& [rank, incarnation] : std::exchange(to_spawn, {})) SpawnThere(rank, incarnation);
}

// The leader's launcher waits for the others, but not for ever.
void Cluster::EndSeat(Seat& seat) {
  for (const auto& [node, line] : seat.lines)
    SendToNode(node, wire::NodeEnd{world_.seat().ended->exit_code, world_.seat().ended->text});
  Launcher& l = *launchers_[static_cast<size_t>(seat.node)];
  AtLauncher(l, kLeaveLimit, [this, &l, &seat] {
    if (!seat.alive) return;
    EndHere(l);
    CloseSeat(seat);
  });
}

void Cluster::CheckNodes(Seat& seat) {
  AtSeat(&seat, [this, &seat] {
    for (auto& [node, lost_at] : seat.lost_at) {
      if (seat.lines.count(node) || world_.Now() - lost_at < world_.plan.policy.consent_wait || SpareHere(seat))
        continue;
      for (const auto& [rank, incarnation] : std::exchange(seat.to_spawn[node], {}))
        if (!world_.seat().ended)
          Feed(ProcessExited{rank, incarnation, "could not be started: its node is gone", std::nullopt, true});
    }
  });
}

void Cluster::PulseNodes(Seat& seat) {
  AtSeat(&seat, [this, &seat] {
    for (const auto& [node, line] : seat.lines)
      SendToNode(node, wire::NodePulse{seat.began, world_.seat().checkpoints_told, seat.running, {}});
    // Once all who are here have left, nobody is told any more.
    if (world_.seat().ended && launchers_[static_cast<size_t>(seat.node)]->ended &&
        std::all_of(seat.lines.begin(), seat.lines.end(), [](const auto& l) { return l.second->launcher->ended; }))
      CloseSeat(seat);
  });
}

}  // namespace kintsugi::sim
