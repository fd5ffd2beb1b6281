// What is wrong with a plan, a binding or a setting is found before anything moves.
#include "tests/unit/reshard/failure_world.h"

namespace kintsugi::reshard {
namespace {

class Mistakes : public testing::Test, protected FailureWorld {};

TEST_F(Mistakes, OfThePlanAreFoundBeforeAnythingMoves) {
  plan::Plan plan = plan_;
  plan.source_digest ^= 1;
  ExpectRefused("digest", plan);
  plan = plan_;
  plan.moves[1].bytes += 4;
  ExpectRefused("bytes", plan);
  plan = plan_;
  ++plan.coordinates[2];
  ExpectRefused("refused", plan);
  plan = plan_;
  plan.moves.pop_back();
  ExpectRefused("moves", plan);
  plan = plan_;
  std::swap(plan.moves[0].from, plan.moves[1].from);
  ExpectRefused("rank", plan);
  ExpectRefused("part", *MakePlan(source_, target_, {.rank = 1}));
}

TEST_F(Mistakes, OfTheLinksAreFoundBeforeAnythingMoves) {
  ends_[0].erase(2);
  ExpectRefused("no link", plan_);
}

TEST_F(Mistakes, OfTheSettingsAreFoundBeforeAnythingMoves) {
  options_.window_bytes = 63;
  ExpectRefused("window_bytes", plan_);
}

TEST_F(Mistakes, OfSourcesAreFoundBeforeAnythingMoves) {
  const Memory good = bindings_[0].sources.begin()->second;
  Memory& memory = bindings_[0].sources.begin()->second;
  memory.size_bytes -= 4;
  ExpectRefused("bytes", plan_);
  memory = good;
  memory.data = nullptr;
  ExpectRefused("null", plan_);
  memory = good;
  memory.kind = MemoryKind::kDevice;
  ExpectRefused("device", plan_);
  bindings_[0].sources.clear();
  ExpectRefused("bound to no memory", plan_);
}

TEST_F(Mistakes, OfDestinationsAreFoundBeforeAnythingMoves) {
  const Destination good = FirstDestination();
  FirstDestination().memory.size_bytes -= 1;
  ExpectRefused("reaches", plan_);
  FirstDestination() = good;
  FirstDestination().map.base = -4;
  ExpectRefused("reaches", plan_);
  FirstDestination() = good;
  FirstDestination().map.stride[1] = INT64_MAX;
  ExpectRefused("reaches", plan_);
  FirstDestination() = good;
  FirstDestination().map.box.hi[0] -= 1;
  ExpectRefused("0 times", plan_);
  FirstDestination() = good;
  FirstDestination().dtype = DType::kBFloat16;
  ExpectRefused("no cast", plan_);
  FirstDestination().casts = {DType::kFloat64};
  ExpectRefused("casts end", plan_);
  FirstDestination().casts = {DType::kComplex64};
  ExpectRefused("no cast", plan_);
  FirstDestination() = good;
  FirstDestination().memory.kind = MemoryKind::kDevice;
  ExpectRefused("device", plan_);
  FirstDestination() = good;
  auto& copies = bindings_[0].targets.begin()->second.copies;
  copies[0].push_back(good);
  ExpectRefused("2 times", plan_);
  copies[0] = {};
  ExpectRefused("0 times", plan_);
  copies.clear();
  ExpectRefused("no destination", plan_);
}

TEST_F(Mistakes, OfSharedMemoryAreFoundBeforeAnythingMoves) {
  // The source's own bytes as a destination.
  FirstDestination().memory = bindings_[0].sources.begin()->second;
  ExpectRefused("share", plan_);
  ExpectSourcesIntact();
}

}  // namespace
}  // namespace kintsugi::reshard
