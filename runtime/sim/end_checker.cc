#include "runtime/sim/end_checker.h"

#include <algorithm>
#include <map>
#include <set>

namespace kintsugi::sim {
namespace {

// One rank's handlers broke three times, or all ranks' nine times: that may be the program.
bool HandlersToBlame(const Course& course) {
  int all = 0;
  for (const auto& [rank, times] : course.broken_handlers) {
    if (times >= 3) return true;
    all += times;
  }
  return all >= 9;
}

bool Throws(const Plan& plan) {
  return std::any_of(plan.faults.begin(), plan.faults.end(), [](const PlannedFault& fault) {
    return fault.type == FaultType::kThrow || fault.type == FaultType::kThrowInUpdate;
  });
}

}  // namespace

// Whether its living process, or its launcher, has that shard exactly as it is at `step`, and nothing is known against
// it.
bool EndChecker::HoldsWhole(Rank rank, int layout, uint64_t step) const {
  const auto is_whole = [&](const RankState& state, const Object* object) {
    const RankState& expected = world_.reference.At(step, rank);
    const auto shard = [layout](const RankState& of) {
      return std::find_if(of.shards.begin(), of.shards.end(), [layout](const Shard& s) { return s.layout == layout; });
    };
    return shard(state)->tensors == shard(expected)->tensors && object && *object == expected.object;
  };
  // Its node did not return in time, or what it says is still held by a cut.
  if (world_.plan.elections) {
    const auto line = world_.seat().lines.find(world_.SeatedNodeOf(rank));
    if (line == world_.seat().lines.end() || !line->second->held[true].empty()) return false;
  }
  const auto& member = world_.core().members()[static_cast<size_t>(rank.value())];
  const Process* const p = world_.processes.Newest(rank);
  const bool lives = p && p->alive && !p->frozen && p->mark == core::StateMark::kWhole && !p->damaged && !p->flipped &&
                     member.incarnation == p->incarnation && !member.trust.needs_repair();
  if (lives && is_whole(p->memory.state, p->memory.objects.Find(step))) return true;
  const auto left = world_.left.find(rank);
  return left != world_.left.end() && left->second.held && left->second.held->clean &&
         left->second.held->of > member.trust.doubted() && left->second.held->step.value() == step &&
         !left->second.damaged && is_whole(left->second.memory.state, left->second.memory.objects.Find(step));
}

void EndChecker::CheckNothingHeldIsLost(const RunEnded& ended) {
  const Policy& policy = world_.plan.policy;
  const bool saved = ended.text.find("saved step") != std::string::npos;
  if ((!policy.adopts && !world_.cuts.any_layout()) || ended.exit_code == kExitSuccess || saved ||
      !world_.course.ever_running || policy.save_directory.empty() || world_.course.nonsense)
    return;
  // It was tried, or the bits are known to differ.
  for (const char* tried : {"could not be written", "attempts at one incident", "hold different state"})
    if (ended.text.find(tried) != std::string::npos) return;
  for (const auto& member : world_.core().members())
    if (member.rescues > 0 || member.trust.mismatches() > 0) return;
  if (world_.cuts.any_layout()) {
    for (uint64_t step = 0; step <= world_.plan.steps; ++step)
      if (CellsAreHeld(step))
        return sink_.Break(Promise::kInnocent, "the run ended with nothing (" + ended.text +
                                                   ") although every cell was held at step " + std::to_string(step));
    return;
  }
  const auto& shards = world_.cuts.whole().replicas.shards();
  for (uint64_t step = 0; step <= world_.plan.steps; ++step)
    if (std::all_of(shards.begin(), shards.end(), [&](const auto& shard) {
          return std::any_of(shard.holders.begin(), shard.holders.end(),
                             [&](Rank holder) { return HoldsWhole(holder, shard.layout, step); });
        }))
      return sink_.Break(Promise::kInnocent, "the run ended with nothing (" + ended.text +
                                                 ") although every shard was held at step " + std::to_string(step));
}

bool EndChecker::CellsAreHeld(uint64_t step, bool live) const {
  std::map<const Cut*, std::set<int>> held;
  const auto add = [&](const Cut* cut, const RankState& state) {
    for (const Shard& shard : state.shards)
      if (shard.tensors == world_.reference.OfCell(step, shard.cell)) held[cut].insert(shard.cell);
  };
  const bool agreed = !live && std::any_of(world_.processes.newest().begin(), world_.processes.newest().end(),
                                           [](const Process* p) { return p && p->next && p->next->used; });
  for (const Process* p : world_.processes.newest()) {
    if (!p) continue;
    const auto& member = world_.core().members()[static_cast<size_t>(p->rank.value())];
    const bool lives = p->alive && !p->frozen && !p->damaged && !p->flipped && member.incarnation == p->incarnation;
    if (lives && p->mark == core::StateMark::kWhole && !member.trust.needs_repair() &&
        world_.core().crew().Has(p->rank))
      add(p->OfferedCut(), p->Offered());
    if (lives && agreed && p->cut != p->OfferedCut()) add(p->cut, p->memory.state);
    if (lives && agreed && !p->next && p->mark == core::StateMark::kWriting) add(p->cut, p->memory.state);
    const auto left = world_.left.find(p->rank);
    if (!live && left != world_.left.end() && left->second.held && left->second.held->clean && !left->second.damaged &&
        left->second.held->of > member.trust.doubted() && left->second.held->step.value() == step &&
        world_.core().crew().Has(p->rank))
      add(left->second.cut, left->second.memory.state);
  }
  return std::any_of(held.begin(), held.end(),
                     [](const auto& of) { return of.second.size() == size_t{kCellRows} * kCellColumns; });
}

// What was done since is done again only where it is held by nobody.
void EndChecker::CheckGoesBack(uint64_t back_to, bool shrinks) {
  if (!world_.cuts.any_layout() || world_.course.nonsense) return;
  for (const auto& member : world_.core().members())
    if (member.trust.mismatches() > 0) return;
  for (uint64_t step = back_to + 1; step <= world_.plan.steps; ++step)
    if (CellsAreHeld(step, shrinks))
      return sink_.Break(Promise::kInnocent, "the run goes back to step " + std::to_string(back_to) +
                                                 " although every cell is held at step " + std::to_string(step));
}

// Slices that nothing struck hold all there is, wherever the gate keeps ranks together: with them alone the run could have
// gone on, in a world that is offered.
bool EndChecker::CouldGoOnSmaller(const RunEnded& ended) const {
  const Course& course = world_.course;
  if (world_.plan.slices.empty() || world_.plan.elections || world_.plan.gate == GateKind::kOff || course.stop_asked ||
      course.nonsense || !course.ever_running || world_.plan.policy.needs_consent || HandlersToBlame(course) ||
      ended.text.find("no fault of the hardware") != std::string::npos)
    return false;
  const auto& claims = world_.plan.claims;
  size_t well = 0;
  for (const std::vector<Rank>& slice : world_.plan.slices) {
    // What is cut over the slices has no smaller form.
    for (Rank rank : slice)
      for (const auto& [layout, claim] : claims.at(rank))
        if (claim.ranks.size() / static_cast<size_t>(claim.replicas) > slice.size()) return false;
    if (std::none_of(slice.begin(), slice.end(), [this](Rank rank) { return world_.losses.struck(rank.value()); }))
      well += slice.size();
  }
  return std::any_of(world_.plan.worlds.begin(), world_.plan.worlds.end(),
                     [well](int world) { return static_cast<size_t>(world) <= well; });
}

void EndChecker::CheckEnd(const RunEnded* ended) {
  if (!ended) {
    // Launchers: all that were in the run are lost; a launcher that is there has been started anew, and found nobody.
    if (!world_.plan.elections) sink_.Break(Promise::kProgress, "no event is left and the run has not ended");
    return;
  }
  const std::string end = "exit " + std::to_string(ended->exit_code) + " (" + ended->text + ")";
  for (const Process& p : world_.processes.all())
    if (p.alive && !p.frozen)
      return sink_.Break(Promise::kTable, end + " leaves rank " + p.rank.ToString() + " behind");
  if (world_.plan.elections) CheckDrained(*ended, end);
  if (ended->exit_code == kExitSuccess) {
    CheckFilledAgain();
    return states_.CheckSuccess();
  }
  if (CouldGoOnSmaller(*ended))
    sink_.Break(Promise::kInnocent, end + " although a smaller world that nothing struck is offered");
  world_.plan.elections ? CheckElected(*ended, end) : CheckOutcome(*ended, end);
}

// One host was lost alone, and came back long before the end: its ranks take part again.
void EndChecker::CheckFilledAgain() {
  constexpr Duration kToFill = std::chrono::seconds(4);
  const auto& struck = world_.outcome.struck;
  const Course& course = world_.course;
  if (!world_.plan.elections || world_.plan.slices.empty() || world_.core().crew().whole() || struck.size() != 1 ||
      struck.begin()->first.second != FaultType::kNodeLost || struck.begin()->second != 1 || !course.host_back ||
      world_.plan.worlds.back() != world_.plan.policy.world_size || course.ended_at - *course.host_back < kToFill)
    return;
  sink_.Break(Promise::kProgress, "the host that was lost has been back for " +
                                      Milliseconds(course.ended_at - *course.host_back) +
                                      " ms, and its ranks take no part: " + world_.core().crew().ToString());
}

bool EndChecker::ShardOnOneNode() const {
  const auto& shards = world_.cuts.whole().replicas.shards();
  return std::any_of(shards.begin(), shards.end(), [this](const auto& shard) {
    return std::all_of(shard.holders.begin(), shard.holders.end(), [&](Rank holder) {
      return world_.plan.NodeOf(holder.value()) == world_.plan.NodeOf(shard.holders.front().value());
    });
  });
}

// Orders alone, and no more of them than there are spare nodes: the run goes on, and the node has nothing of it.
void EndChecker::CheckDrained(const RunEnded& ended, const std::string& end) {
  const auto& struck = world_.outcome.struck;
  const bool orders_alone = std::all_of(struck.begin(), struck.end(), [](const auto& fault) {
    const FaultType type = fault.first.second;
    return type == FaultType::kDrain || type == FaultType::kReplace || type == FaultType::kSave;
  });
  const Course& course = world_.course;
  if (!orders_alone || course.drains == 0 || course.drains > world_.plan.spare_nodes ||
      world_.plan.policy.max_respawns < 3 || world_.plan.gate == GateKind::kOff)
    return;
  if (ended.exit_code != kExitSuccess)
    return sink_.Break(Promise::kInnocent,
                       end + " although a spare node could have the ranks of the one that was drained");
  // One that is asked for in the last steps is not begun any more.
  constexpr uint64_t kStepsToMove = 4;
  if (course.drains > 1 || world_.plan.faults.front().step + kStepsToMove > world_.plan.steps) return;
  for (const auto& [first, node] : course.drained)
    if (world_.SeatedNodeOf(first) == node)
      sink_.Break(Promise::kInnocent, "node " + std::to_string(node) + " was drained, and has its ranks still");
}

void EndChecker::CheckElected(const RunEnded& ended, const std::string& end) {
  if (ended.exit_code == kExitResumable && world_.disk.visible.empty())
    return sink_.Break(Promise::kCheckpoint, end + " without a checkpoint");
  const auto& struck = world_.outcome.struck;
  const bool roads_alone = !struck.empty() && std::all_of(struck.begin(), struck.end(), [](const auto& fault) {
    return fault.first.second == FaultType::kRoadClosed;
  });
  // Where the host that most cannot reach is not the only one left to the others.
  if (roads_alone && world_.plan.spare_nodes > 0 && world_.course.ever_running && world_.plan.policy.max_respawns > 2 &&
      world_.plan.gate != GateKind::kOff && !world_.plan.policy.save_directory.empty() && !ShardOnOneNode())
    return sink_.Break(Promise::kInnocent,
                       end + " although a spare node could have the ranks that others cannot reach");
  if (ended.exit_code != kExitResumable && world_.losses.none() && !world_.course.stop_asked)
    sink_.Break(Promise::kInnocent, end + " although nothing was lost");
}

void EndChecker::CheckOutcome(const RunEnded& ended, const std::string& end) {
  const Policy& policy = world_.plan.policy;
  const Course& course = world_.course;
  const Losses& losses = world_.losses;
  const bool shard_at_risk = world_.ShardAtRisk();
  const bool budget_at_risk = losses.OneLost(policy.max_respawns + 1);
  // Without the gate a step that is broken off, in whatever way, may leave the ranks without a common one.
  const auto& struck = world_.outcome.struck;
  const bool broken_off = std::any_of(struck.begin(), struck.end(), [](const auto& fault) {
    const FaultType type = fault.first.second;
    return type == FaultType::kCommError || type == FaultType::kHang || type == FaultType::kThrow;
  });
  const bool gateless = world_.plan.gate == GateKind::kOff && (broken_off || !losses.none());
  const bool can_save = !policy.save_directory.empty();
  const bool fails_thrice = ended.text.find("no fault of the hardware") != std::string::npos;
  switch (ended.exit_code) {
    case kExitResumable:
      if (world_.disk.visible.empty()) return sink_.Break(Promise::kCheckpoint, end + " without a checkpoint");
      if (!course.stop_asked && !shard_at_risk && !budget_at_risk && !gateless && !losses.MajorityAtRisk())
        sink_.Break(Promise::kInnocent, end + " although a repair was possible");
      return;
    case kExitStartup:
      if (!course.start_disturbed || course.ever_running)
        sink_.Break(Promise::kInnocent, end + " without a fault at the start");
      return;
    default:
      if (course.stop_asked && (!can_save || !course.ever_running)) return;
      // One rank that several faults struck at one step is taken for one whose program fails there. A refused step comes back
      // where those that had learnt of it are gone, and an exception in it counts with its refusals.
      if (fails_thrice && losses.OneLost(3)) return;
      if (HandlersToBlame(course) && ended.text.find(" handler ") != std::string::npos) return;
      if (course.refused) return;
      if (fails_thrice && !world_.plan.refusals.empty() && (!losses.none() || Throws(world_.plan))) return;
      if (course.nonsense) return;  // of a checkpoint that is there, for example: that it cannot be read
      if (course.checkpoint_known) return sink_.Break(Promise::kInnocent, end + " although there is a checkpoint");
      if (can_save && !shard_at_risk && !gateless)
        return sink_.Break(Promise::kInnocent, end + " although every shard was held");
      if (!shard_at_risk && !budget_at_risk && !gateless)
        sink_.Break(Promise::kInnocent, end + " although a repair was possible");
  }
}

}  // namespace kintsugi::sim
