#include "runtime/sim/world.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

World::World(Plan p, LogFunction log_function, Hook* h)
    : plan(std::move(p)),
      hook(h),
      size(static_cast<size_t>(plan.policy.world_size)),
      cuts(plan.policy.world_size, plan.claims, plan.cut_rules),
      reference(cuts),
      scheduler(TimePoint(100s)),
      log(std::move(log_function), scheduler),
      start(scheduler.now()),
      random(plan.seed ^ 0xC0FFEE),
      violations(log),
      losses(plan.policy),
      processes(size),
      seats(size) {
  KINTSUGI_CHECK(!cuts.any_layout() || plan.planner, "pieces are to move, and nobody plans that");
  seat().Begin(plan.policy, Term{1, 1});
  NoteProgress();
}

bool World::ShardAtRisk() const {
  return std::any_of(cuts.all().begin(), cuts.all().end(),
                     [this](const auto& cut) { return losses.ShardAtRisk(cut.second->replicas); });
}

Duration World::Between(int64_t low_us, int64_t high_us) {
  return std::chrono::microseconds(low_us +
                                   static_cast<int64_t>(random.Below(static_cast<uint64_t>(high_us - low_us))));
}

Duration World::Share(int low_percent, int high_percent) {
  const int64_t percent = plan.step_time.count() / 100;
  return Duration(low_percent * percent +
                  static_cast<int64_t>(random.Below(static_cast<uint64_t>((high_percent - low_percent) * percent))));
}

}  // namespace kintsugi::sim
