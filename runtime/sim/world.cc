#include "runtime/sim/world.h"

namespace kintsugi::sim {

using namespace std::chrono_literals;

namespace {

ReplicaMap MapOf(const Plan& plan) { return ReplicaMap::Build(plan.policy.world_size, plan.claims).value(); }

std::vector<std::vector<Rank>> PartnersIn(const ReplicaMap& replicas, size_t ranks) {
  std::vector<std::vector<Rank>> partners;
  for (size_t r = 0; r < ranks; ++r) partners.push_back(replicas.Partners(Rank(static_cast<int32_t>(r))));
  return partners;
}

}  // namespace

World::World(Plan p, LogFunction log_function, Hook* h)
    : plan(std::move(p)),
      hook(h),
      size(static_cast<size_t>(plan.policy.world_size)),
      replicas(MapOf(plan)),
      partners(PartnersIn(replicas, size)),
      reference(replicas, plan.policy.world_size),
      scheduler(TimePoint(100s)),
      log(std::move(log_function), scheduler),
      start(scheduler.now()),
      random(plan.seed ^ 0xC0FFEE),
      violations(log),
      losses(plan.policy),
      processes(size),
      seats(size) {
  seat().Begin(plan.policy, Term{1, 1});
  NoteProgress();
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
