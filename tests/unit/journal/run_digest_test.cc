// RunDigest: one number for all that a virtual run said and decided.
#include "tools/replay/run_digest.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace kintsugi {
namespace {

using core::ControllerAction;

uint64_t Digest(uint64_t seed) {
  return RunDigested(sim::DrawPlan(seed, sim::FindProfile("quick").value(), 0), nullptr).digest;
}

TEST(RunDigest, IsTheSameForASeedAndAnotherForEachSeed) {
  std::set<uint64_t> digests;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    digests.insert(Digest(seed));
    EXPECT_EQ(Digest(seed), Digest(seed)) << "seed " << seed;
  }
  EXPECT_EQ(digests.size(), 20u);
}

TEST(RunDigest, HandsOnEveryLineAndChangesNothing) {
  const sim::Plan plan = sim::DrawPlan(3, sim::FindProfile("quick").value(), 0);
  std::string alone, beside;
  const sim::Outcome outcome = sim::Cluster(plan, [&](const std::string& line) { alone += line + "\n"; }).Run();
  const DigestedRun run = RunDigested(plan, [&](const std::string& line) { beside += line + "\n"; });
  EXPECT_EQ(alone, beside);
  EXPECT_EQ(run.outcome.took, outcome.took);
  EXPECT_EQ(run.digest, Digest(3));
}

// Of one run that differs from another in a single thing.
uint64_t Of(const std::function<void(RunDigest*)>& run) {
  RunDigest digest;
  run(&digest);
  return digest.value();
}

TEST(RunDigest, SeesEveryFieldInstantEventAndLine) {
  const TimePoint now(std::chrono::seconds(1));
  const std::vector<ControllerAction> actions = {core::StepDecided{Step(3)}, core::Notice{Rank(1), "text"}};
  std::set<uint64_t> digests;
  const auto add = [&](const std::string& what, const std::function<void(RunDigest*)>& run) {
    EXPECT_TRUE(digests.insert(Of(run)).second) << what << " is not seen";
  };
  add("the run itself", [&](RunDigest* d) { d->OnStep(core::Tick{}, now, actions); });
  add("a field", [&](RunDigest* d) {
    d->OnStep(core::Tick{}, now, {core::StepDecided{Step(4)}, core::Notice{Rank(1), "text"}});
  });
  add("the order", [&](RunDigest* d) { d->OnStep(core::Tick{}, now, {actions[1], actions[0]}); });
  add("an action that is missing", [&](RunDigest* d) { d->OnStep(core::Tick{}, now, {actions[0]}); });
  add("another event", [&](RunDigest* d) { d->OnStep(core::OperatorSave{}, now, actions); });
  add("another instant", [&](RunDigest* d) { d->OnStep(core::Tick{}, now + std::chrono::nanoseconds(1), actions); });
  add("an event that gives nothing", [&](RunDigest* d) {
    d->OnStep(core::Tick{}, now, actions);
    d->OnStep(core::Tick{}, now, {});
  });
  add("which of two events gave it", [&](RunDigest* d) {
    d->OnStep(core::Tick{}, now, {});
    d->OnStep(core::Tick{}, now, actions);
  });
  add("a line", [&](RunDigest* d) {
    d->OnStep(core::Tick{}, now, actions);
    d->AddLine("line");
  });
}

}  // namespace
}  // namespace kintsugi
