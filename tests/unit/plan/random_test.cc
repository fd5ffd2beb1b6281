// Plans of random layouts against element by element; one rank's part; the order of input.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "replica/plan/plan_check.h"
#include "tests/unit/layout/random_layout.h"
#include "tests/unit/plan/slow_plan.h"

namespace kintsugi::plan {
namespace {

using layout::BuildAll;
using layout::RandomLayout;
using layout::RankShard;

constexpr int kPairs = 30000;
constexpr int32_t kRanks = 7;

Shape GlobalShape(const std::vector<RankShard>& shards) { return shards.front().tensor.global_shape; }

// Any tiling of the tensor, flat in part, several ranks each; now and then pieces twice or overlapping, as a request
// may.
std::vector<RankShard> RandomTarget(const Shape& shape, Random& random) {
  const Box whole = layout::WholeBox(shape);
  std::vector<RankShard> shards;
  std::vector<Box> boxes = layout::RandomTiling(whole, 1 + static_cast<int>(random.Below(9)), random);
  if (random.Chance(0.2)) boxes.push_back(boxes[random.Below(boxes.size())]);
  if (random.Chance(0.1)) boxes.push_back(whole);
  for (const Box& box : boxes) {
    ShardedTensor tensor = layout::TensorAt("w", whole, box);
    const int64_t volume = *Volume(box);
    if (random.Chance(0.4)) {
      FlatRange range;
      range.start = static_cast<int64_t>(random.Below(static_cast<uint64_t>(volume) + 1));
      range.stop = range.start + static_cast<int64_t>(random.Below(static_cast<uint64_t>(volume - range.start) + 1));
      tensor.flattened_range = range;
    }
    for (uint64_t copies = 1 + random.Below(3); copies > 0; --copies)
      shards.push_back({static_cast<int32_t>(random.Below(kRanks + 3)), tensor});
  }
  return shards;
}

std::vector<int32_t> RandomHosts(Random& random) {
  std::vector<int32_t> hosts(random.Below(2) ? kRanks + 1 : 0);
  for (int32_t& host : hosts) host = static_cast<int32_t>(random.Below(3));
  return hosts;
}

// The moves of a plan that concern one rank.
Plan PartOf(const Plan& plan, const Metadata& target, int32_t rank) {
  Plan part = plan;
  part.rank = rank;
  part.moves.clear();
  part.coordinates.clear();
  for (KeyMoves& key : part.keys) {
    const KeyMoves all = key;
    const int axes = target.keys[key.target_key].axes;
    key.first_move = part.moves.size();
    key.first_coordinate = part.coordinates.size();
    for (uint64_t i = all.first_move; i < all.first_move + all.move_count; ++i) {
      if (plan.moves[i].from != rank && plan.moves[i].to != rank) continue;
      part.moves.push_back(plan.moves[i]);
      const int64_t* box = plan.Coordinates(all, i, axes);
      part.coordinates.insert(part.coordinates.end(), box, box + 2 * axes);
    }
    key.move_count = part.moves.size() - key.first_move;
  }
  return part;
}

TEST(RandomPlans, WriteEveryTargetElementOnceAndNothingElse) {
  Random random(20260001);
  int refused = 0, flat = 0, moves = 0;
  for (int i = 0; i < kPairs; ++i) {
    SCOPED_TRACE("pair " + std::to_string(i));
    auto held = RandomLayout("w", {.elements_max = 120, .ranks = kRanks, .change = 0}, random);
    const Shape shape = GlobalShape(held);
    // A survivor's layout: some shards are gone.
    if (random.Chance(0.1) && held.size() > 1)
      held.erase(held.begin() + static_cast<ptrdiff_t>(random.Below(held.size())));
    const Metadata source = BuildAll(held), target = BuildAll(RandomTarget(shape, random));
    const auto hosts = RandomHosts(random);
    const auto plan = MakePlan(source, target, {.hosts = hosts});
    ASSERT_EQ(plan.ok(), IsPlannable(source, target)) << (plan.ok() ? "planned" : plan.error().message);
    if (!plan.ok()) {
      ++refused;
      ASSERT_EQ(plan.error().code, layout::ErrorCode::kHole);
      continue;
    }
    ExpectRight(*plan, source, target, hosts);
    if (testing::Test::HasFatalFailure()) return;
    const auto error = CheckPlan(*plan, source, target);
    ASSERT_FALSE(error) << error->message;
    moves += static_cast<int>(plan->moves.size());
    flat += std::any_of(source.flat.begin(), source.flat.end(), [](FlatRange r) { return r != layout::kNotFlat; });
    // One rank's plan is the whole plan's part.
    const auto rank = static_cast<int32_t>(random.Below(kRanks + 3));
    const auto own = MakePlan(source, target, {.hosts = hosts, .rank = rank});
    ASSERT_TRUE(own.ok()) << own.error().message;
    ASSERT_EQ(*own, PartOf(*plan, target, rank)) << "rank " << rank;
    const auto own_error = CheckPlan(*own, source, target);
    ASSERT_FALSE(own_error) << own_error->message;
  }
  // The run has seen what it is about.
  EXPECT_GT(refused, kPairs / 200);
  EXPECT_GT(flat, kPairs / 10);
  EXPECT_GT(moves, kPairs * 3);
}

TEST(RandomPlans, DoNotDependOnTheOrderInWhichShardsWereListed) {
  Random random(7);
  for (int i = 0; i < 500; ++i) {
    auto held = RandomLayout("w", {.ranks = kRanks, .change = 0}, random);
    auto asked = RandomTarget(GlobalShape(held), random);
    const auto plan = MakePlan(BuildAll(held), BuildAll(asked));
    for (size_t k = held.size(); k > 1; --k) std::swap(held[k - 1], held[random.Below(k)]);
    for (size_t k = asked.size(); k > 1; --k) std::swap(asked[k - 1], asked[random.Below(k)]);
    const auto again = MakePlan(BuildAll(held), BuildAll(asked));
    ASSERT_TRUE(plan.ok() && again.ok());
    ASSERT_EQ(*plan, *again);
  }
}

}  // namespace
}  // namespace kintsugi::plan
