#include "runtime/sim/refusals.h"

#include <algorithm>

namespace kintsugi::sim {

const PlannedRefusal* Refusals::Find(uint64_t step) const {
  const auto& all = world_.plan.refusals;
  const auto found = std::find_if(all.begin(), all.end(), [step](const auto& one) { return one.step == step; });
  return found == all.end() ? nullptr : &*found;
}

bool Refusals::MayBeReplaced(const Process* p) const {
  return p->incarnation.value() <= static_cast<uint64_t>(world_.plan.policy.max_respawns);
}

bool Refusals::MayGiveWay(const Process* p) const {
  return MayBeReplaced(p) || (world_.hook && world_.hook->GivesWayAnyhow());
}

bool Refusals::Begin(Process* p, uint64_t step) {
  if (!planned()) return true;
  p->refused.Begin(kintsugi::Step(step));
  if (!p->refused.IsToBlame(p->rank)) return true;
  p->refused.Forgive();
  if (!MayGiveWay(p)) return true;
  const PlannedRefusal* const planned = Find(step);
  if (!planned || planned->of != PlannedRefusal::Of::kMachine || planned->rank != p->rank.value())
    world_.Break(Promise::kInnocent, "rank " + p->rank.ToString() + " gives way at step " + std::to_string(step) +
                                         ", and its machine is well");
  if (!MayBeReplaced(p))
    world_.Break(Promise::kTable, "rank " + p->rank.ToString() + " gives way, and nobody may take its place");
  world_.losses.Lose(p->rank.value());
  world_.NoteProgress();
  processes_.Die(p, "its machine computed otherwise than before");
  return false;
}

bool Refusals::LeavesOut(const Process* p, uint64_t step) const {
  return planned() && p->refused.LeftOut(kintsugi::Step(step));
}

std::optional<std::string> Refusals::PassBy(const Process* p, uint64_t step) {
  const auto& all = world_.plan.refusals;
  const bool is_bad = std::any_of(all.begin(), all.end(), [&](const PlannedRefusal& one) {
    return one.of == PlannedRefusal::Of::kData && step <= one.step && one.step <= step + world_.plan.back;
  });
  const std::string who = "rank " + p->rank.ToString() + " at step " + std::to_string(step);
  if (!is_bad) world_.Break(Promise::kInnocent, who + " leaves it out, and its data is good");
  const auto most = static_cast<size_t>(world_.plan.most);
  if (p->refused.all_left_out().size() > most && !(world_.hook && world_.hook->LeavesOutAnyNumber())) {
    world_.course.refused = true;
    return who + ": no more may be left out";
  }
  world_.reference.LeaveOut(step);
  // What was left out before all who knew of it were lost is counted no more.
  size_t known = 0;
  for (uint64_t s = 1; s <= step; ++s) known += world_.reference.LeavesOut(s) && IsKnown(s) ? 1 : 0;
  if (known > most) world_.Break(Promise::kTable, who + " leaves it out, which is one more than may be");
  return std::nullopt;
}

bool Refusals::IsKnown(uint64_t step) const {
  const auto all = world_.processes.newest();
  return std::any_of(all.begin(), all.end(),
                     [&](const Process* p) { return p && p->alive && p->refused.LeftOut(kintsugi::Step(step)); });
}

std::optional<std::string> Refusals::Judge(Process* p, uint64_t step, uint64_t contribution) {
  if (!planned()) return std::nullopt;
  // All that knew of it are gone, and the run is at an older step than that.
  if (world_.reference.LeavesOut(step) && !IsKnown(step)) world_.reference.Keep(step);
  const PlannedRefusal* const planned = Find(step);
  const bool is_here = planned && planned->rank == p->rank.value();
  const bool is_first = is_here && planned->of != PlannedRefusal::Of::kData && spent_.insert(step).second;
  const bool is_wrong = is_first && planned->of == PlannedRefusal::Of::kMachine;
  p->refused.Note("", contribution ^ (is_wrong ? 1 : 0));
  if (!is_first && !(is_here && planned->of == PlannedRefusal::Of::kData)) return std::nullopt;
  world_.NoteProgress();
  p->refused.Refuse("no numbers", world_.plan.back);
  return "step " + std::to_string(step) + " is refused";
}

bool Refusals::Doubts(Process* p) const {
  if (!planned() || !p->refused.IsOtherThanBefore() || !MayGiveWay(p)) return false;
  p->refused.Doubt();
  return true;
}

void Refusals::Tell(const Process* p, const RunOnTrainer& run) {
  if (planned()) told_[{p->newest_term, run.generation}][p->rank] = p->refused.Tell(run.order.step);
}

void Refusals::Hear(Process* p, const RunOnTrainer& run) {
  if (!planned()) return;
  core::StepNews news;
  const auto& told = told_[{p->newest_term, run.generation}];
  news.ranks = p->crew->size();
  for (const auto& [rank, facts] : told) news.Add(rank, facts);
  if (world_.hook) world_.hook->OnStepNews(p->rank, run.order.step, &news);
  p->refused.Learn(run.order.step, news);
}

}  // namespace kintsugi::sim
