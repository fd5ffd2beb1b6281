#include "runtime/sim/state_checker.h"

#include <algorithm>

namespace kintsugi::sim {

void StateChecker::CheckState(const Process& p, uint64_t step, const std::string& when, Promise promise) {
  Check(p, step, when, promise, world_.bit.compared_at);
}

void StateChecker::Check(const Process& p, uint64_t step, const std::string& when, Promise promise,
                         uint64_t compared_at) {
  if (CheckTaint(p, step, compared_at)) return;
  const RankState& expected = world_.reference.At(step, p.rank, *p.cut);
  const std::string who = "rank " + p.rank.ToString() + ", " + when + ": ";
  for (const Shard& shard : p.memory.state.shards)
    for (const Tensor& tensor : shard.tensors)
      if (tensor.updates != step)
        return sink_.Break(Promise::kUpdateOnce, who + "a tensor at step " + std::to_string(step) + " has seen " +
                                                     std::to_string(tensor.updates) + " updates");
  if (p.memory.state.shards != expected.shards)
    return sink_.Break(promise, who + "its state is not that of step " + std::to_string(step));
  const Object* object = p.ObjectOf(p.rank, step);
  if (!object || object->value != expected.object.value)
    return sink_.Break(promise, who + "its object is not that of step " + std::to_string(step));
  if (object->position != expected.object.position)
    sink_.Break(Promise::kSamplesOnce, who + "its iterator at step " + std::to_string(step) + " has drawn " +
                                           std::to_string(object->position) + " samples");
}

bool StateChecker::CheckTaint(const Process& p, uint64_t step, uint64_t compared_at) {
  if (world_.bit.hidden) return true;
  if (p.memory.tainted && step > compared_at)
    sink_.Break(Promise::kBitIdentical, "rank " + p.rank.ToString() + " is at step " + std::to_string(step) +
                                            " with a bit that the comparison at step " + std::to_string(compared_at) +
                                            " should have found");
  return p.memory.tainted;
}

void StateChecker::CheckCommit(const Process& p) {
  const auto& refusals = world_.plan.refusals;
  const bool is_bad = std::any_of(refusals.begin(), refusals.end(), [&](const PlannedRefusal& one) {
    return one.of == PlannedRefusal::Of::kData && one.step == p.begun;
  });
  if (is_bad && !world_.reference.LeavesOut(p.begun))
    sink_.Break(Promise::kBitIdentical, "rank " + p.rank.ToString() + " commits step " + std::to_string(p.begun) +
                                            ", and its data is to be refused");
  const auto check_sample = [&](Rank of) {
    if (world_.reference.LeavesOut(p.begun)) return;
    const auto r = static_cast<size_t>(of.value());
    const uint64_t sample = world_.samples[p.begun][r];
    if (sample != (p.begun - 1) * world_.size + r)
      sink_.Break(Promise::kSamplesOnce, "rank " + p.rank.ToString() + " commits step " + std::to_string(p.begun) +
                                             " with sample " + std::to_string(sample));
  };
  check_sample(p.rank);
  for (const auto& [seat, object] : p.takes_over) check_sample(seat);
  if (CheckTaint(p, p.begun, world_.bit.compared_at)) return;
  // The objects were checked when the loop was entered and move by one rule; what they feed is in the tensors.
  const RankState& expected = world_.reference.At(p.begun, p.rank, *p.cut);
  if (p.memory.state.shards == expected.shards) return;
  CheckState(p, p.begun, "committed", Promise::kBitIdentical);
}

bool StateChecker::CheckCrew(const Process& p, Generation generation, const std::shared_ptr<const core::Crew>& crew) {
  const std::string who = "rank " + p.rank.ToString() + " in generation " + generation.ToString();
  // Who leaves where state is cut anew takes part until what it holds is elsewhere.
  const Phase phase = p.running->order.phase;
  const bool leaves = world_.cuts.any_layout() && (phase == Phase::kClean || phase == Phase::kRepair);
  if (!crew->Has(p.rank) && !leaves) {
    sink_.Break(Promise::kOneDecider, who + " is told of a crew that it is not in: " + crew->ToString());
    return false;
  }
  const auto& worlds = world_.plan.worlds;
  if (!crew->whole() && std::find(worlds.begin(), worlds.end(), static_cast<int>(crew->size())) == worlds.end()) {
    sink_.Break(Promise::kOneDecider, who + " is told of a world that nobody offers: " + crew->ToString());
    return false;
  }
  const auto [first, is_first] = crews_.emplace(std::pair(p.newest_term, generation), crew);
  if (is_first || *first->second == *crew) return true;
  sink_.Break(Promise::kOneDecider,
              who + " is told of " + crew->ToString() + ", others of " + first->second->ToString());
  return false;
}

// Each cell is as it is in an undisturbed run, wherever it lies; and the rank holds those that are its.
void StateChecker::CheckCut(const Process& p, uint64_t step) {
  const NextState& next = *p.next;
  if (next.spoiled) return;
  if (next.state.shards != world_.reference.At(step, p.rank, *next.cut).shards)
    sink_.Break(Promise::kSameStep, "rank " + p.rank.ToString() + ": what was cut anew for " +
                                        next.cut->crew.ToString() + " is not the state of step " +
                                        std::to_string(step));
}

void StateChecker::NoteCompared(const Process& p, Generation generation) {
  if (world_.cuts.any_layout()) compared_[{p.newest_term, generation}].insert(p.rank);
}

void StateChecker::CheckFreed(const Process& p, Generation generation) {
  for (const auto& [of, ranks] : compared_)
    if (of.second == generation && std::all_of(p.cut->crew.ranks().begin(), p.cut->crew.ranks().end(),
                                               [&ranks = ranks](Rank rank) { return ranks.count(rank) > 0; }))
      return;
  sink_.Break(Promise::kInnocent, "rank " + p.rank.ToString() + " frees what it held before generation " +
                                      generation.ToString() + ", and not all had compared what was cut anew");
}

void StateChecker::CheckRepaired(const Process& p, const RunOnTrainer& run) {
  const auto& moves = run.order.moves;
  const bool receives = std::any_of(moves.begin(), moves.end(),
                                    [&](const RepairMove& m) { return m.destination == p.rank && m.keys.empty(); });
  if ((!receives && !run.order.from_snapshot) || run.order.relayout || p.flipped || p.damaged) return;
  CheckState(p, run.order.step.value(), "repaired in generation " + run.generation.ToString(), Promise::kSameStep);
}

void StateChecker::CheckReleased(const Process& p, const ReleaseTrainer& release) {
  if (!p.damaged)
    CheckState(p, p.released_at, "released in generation " + release.generation.ToString(), Promise::kSameStep);
  if (p.group != release.generation)
    sink_.Break(Promise::kOneDecider, "rank " + p.rank.ToString() + " goes on in generation " +
                                          release.generation.ToString() +
                                          " and was told who takes part in generation " + p.group.ToString());
  if (world_.cuts.any_layout() && (p.next || p.cut->crew != *p.crew))
    sink_.Break(Promise::kSameStep, "rank " + p.rank.ToString() + " goes on among " + p.crew->ToString() +
                                        " and holds what it has among " + p.cut->crew.ToString());
  const auto [first, is_first] = released_.emplace(release.generation, release.step.value());
  if (!is_first && first->second != release.step.value())
    sink_.Break(Promise::kSameStep, "generation " + release.generation.ToString() + " goes on from two steps");
}

bool StateChecker::CheckSnapshot(const Process& p, Rank owner, uint64_t step, const HeldSnapshot* held) {
  const std::string what = "rank " + p.rank.ToString() + " is to give back the in-memory snapshot of rank " +
                           owner.ToString() + " at step " + std::to_string(step);
  if (!held)
    sink_.Break(Promise::kCheckpoint, what + " and does not hold it");
  else if (held->state.shards != world_.reference.At(step, owner, *p.cut).shards)
    sink_.Break(Promise::kCheckpoint, what + ", which is not of that step");
  return sink_.none();
}

void StateChecker::CheckCheckpoint(const Process& writer, uint64_t step, const Checkpoint& checkpoint) {
  if (world_.bit.hidden) return;
  const auto broken = [&](const std::string& what) {
    sink_.Break(Promise::kCheckpoint, "the checkpoint of step " + std::to_string(step) + " lacks or spoils " + what);
  };
  for (size_t r = 0; r < world_.size; ++r) {
    const Rank rank(static_cast<int32_t>(r));
    const RankState& expected = world_.reference.At(step, rank);
    for (const Shard& shard : expected.shards) {
      const auto found = checkpoint.shards.find({shard.layout, shard.cell});
      if (found == checkpoint.shards.end() || found->second != shard.tensors)
        return broken("layout " + std::to_string(shard.layout) + " of rank " + rank.ToString());
    }
    const auto object = checkpoint.objects.find(rank);
    if (!writer.InCrew(rank)) continue;  // those who do its part work its object out
    if (object == checkpoint.objects.end() || object->second != expected.object)
      return broken("the object of rank " + rank.ToString());
  }
}

void StateChecker::CheckSuccess() {
  const uint64_t steps = world_.plan.steps;
  // But for those that came when their ranks had said their last word, to this controller or to one that it replaced.
  const auto came_late = [&](const Process& p) {
    return !p.core || (world_.plan.elections && p.Word().step.value() < steps);
  };
  for (const Process* p : world_.processes.newest())
    if (world_.core().crew().Has(p->rank) && !came_late(*p) && !p->damaged)
      Check(*p, steps, "at the end", Promise::kBitIdentical, 0);
  for (uint64_t step = 1; step <= steps; ++step)
    for (size_t r = 0; r < world_.size && !world_.reference.LeavesOut(step); ++r)
      if (const uint64_t sample = (step - 1) * world_.size + r; world_.samples[step][r] != sample)
        sink_.Break(Promise::kSamplesOnce, "sample " + std::to_string(sample) + " was not consumed");
}

}  // namespace kintsugi::sim
