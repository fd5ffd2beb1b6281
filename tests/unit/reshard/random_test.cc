// Random layouts executed over in-process links, element by element.
#include <algorithm>
#include <string>
#include <thread>

#include "replica/stream/in_process_link.h"
#include "tests/support/memory_store.h"
#include "tests/unit/layout/random_layout.h"
#include "tests/unit/reshard/rank_memory.h"

namespace kintsugi::reshard {
namespace {

using layout::RandomLayout;
using layout::RankShard;

constexpr int32_t kRanks = 6;
constexpr int kWorlds = 400;

// Another layout of the same tensor: any tiling, flat in part, several ranks each, ranks twice.
void AddRandomTarget(const ShardedTensor& like, Random& random, std::vector<RankShard>* shards) {
  const layout::Box whole = layout::WholeBox(like.global_shape);
  for (const layout::Box& box : layout::RandomTiling(whole, 1 + static_cast<int>(random.Below(8)), random)) {
    ShardedTensor tensor = layout::TensorAt(like.key, whole, box);
    tensor.dtype = like.dtype;
    const int64_t volume = *Volume(box);
    if (random.Chance(0.4)) {
      FlatRange range;
      range.start = static_cast<int64_t>(random.Below(static_cast<uint64_t>(volume) + 1));
      range.stop = range.start + static_cast<int64_t>(random.Below(static_cast<uint64_t>(volume - range.start) + 1));
      tensor.flattened_range = range;
    }
    for (uint64_t copies = 1 + random.Below(3); copies > 0; --copies) {
      tensor.replica_id = {static_cast<int64_t>(copies)};
      shards->push_back({static_cast<int32_t>(random.Below(kRanks + 2)), tensor});
    }
  }
}

struct World {
  Metadata source, target;
};

World RandomWorld(Random& random, int keys, int64_t elements_max) {
  std::vector<RankShard> held, asked;
  const DType types[] = {DType::kFloat32, DType::kBFloat16, DType::kUInt8, DType::kFloat64, DType::kComplex128};
  for (int k = 0; k < keys; ++k) {
    auto shards =
        RandomLayout("key" + std::to_string(k), {.elements_max = elements_max, .ranks = kRanks, .change = 0}, random);
    const DType dtype = types[random.Below(std::size(types))];
    for (RankShard& shard : shards) shard.tensor.dtype = dtype;
    AddRandomTarget(shards[0].tensor, random, &asked);
    held.insert(held.end(), shards.begin(), shards.end());
  }
  return {layout::BuildAll(held), layout::BuildAll(asked)};
}

TEST(RandomReshard, BringsEveryElementToEveryPlaceThatAsksForIt) {
  Random random(11);
  int64_t sent = 0, local = 0, unstaged = 0, messages = 0;
  for (int i = 0; i < kWorlds; ++i) {
    SCOPED_TRACE("world " + std::to_string(i));
    const World world = RandomWorld(random, 1 + static_cast<int>(random.Below(3)), 120);
    const auto plan = MakePlan(world.source, world.target);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    WorldMemory held(world.source), wanted(world.target);
    held.Fill(world.source);
    // Windows of a few elements cut moves everywhere.
    ExecuteOptions options{.window_bytes = random.Chance(0.5) ? 64 + static_cast<int64_t>(random.Below(400)) : 4 << 20};
    options.deadline = In(std::chrono::seconds(120));
    const auto bindings = BindAll(world.source, held, world.target, wanted, kRanks + 2);
    const auto results = ExecuteInProcess(*plan, world.source, world.target, bindings, options);
    ASSERT_TRUE(results.ok()) << results.status().ToString();
    wanted.ExpectFilled(world.target);
    held.ExpectFilled(world.source);
    if (HasFatalFailure()) return;
    int64_t moved = 0, received = 0;
    for (const ExecuteResult& result : *results) {
      moved += result.bytes_sent + result.bytes_local;
      received += result.bytes_received;
      sent += result.bytes_sent;
      local += result.bytes_local;
      unstaged += result.bytes_unstaged;
      messages += result.messages;
      // One window for each direction of each link.
      ASSERT_LE(result.staging_bytes_peak, 2 * (kRanks + 1) * options.window_bytes);
    }
    const plan::Traffic traffic = plan::TrafficOf(*plan);
    ASSERT_EQ(moved, traffic.bytes_total);
    ASSERT_EQ(received, traffic.bytes_total - traffic.bytes_local);
  }
  EXPECT_GT(sent, kWorlds * 100);
  EXPECT_GT(local, kWorlds * 20);
  EXPECT_GT(unstaged, 0);
  EXPECT_GT(messages, kWorlds * 10);
}

TEST(RandomReshard, MovesTensorsOfManyMessagesThroughAnyWindow) {
  Random random(12);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE("world " + std::to_string(i));
    std::vector<RankShard> held, asked;
    const Shape shape = {40 + static_cast<int64_t>(random.Below(60)), 8, 30 + static_cast<int64_t>(random.Below(50))};
    const layout::Box whole = layout::WholeBox(shape);
    int32_t rank = 0;
    for (const layout::Box& box : layout::RandomTiling(whole, 5, random))
      held.push_back({rank++ % kRanks, layout::TensorAt("w", whole, box)});
    AddRandomTarget(held[0].tensor, random, &asked);
    const Metadata source = layout::BuildAll(held), target = layout::BuildAll(asked);
    const auto plan = MakePlan(source, target);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    WorldMemory from(source), to(target);
    from.Fill(source);
    for (const int64_t window : {int64_t{999}, int64_t{16384}, int64_t{300000}, int64_t{4} << 20}) {
      const auto bindings = BindAll(source, from, target, to, kRanks + 2);
      const auto results = ExecuteInProcess(*plan, source, target, bindings, {.window_bytes = window});
      ASSERT_TRUE(results.ok()) << results.status().ToString();
      to.ExpectFilled(target);
      for (auto& [place, memories] : to.pieces)
        for (auto& memory : memories) std::memset(memory->data(), kUnwritten, memory->memory().size_bytes);
    }
  }
}

// One rank's plan, made by itself, is executed beside the whole plan of another.
TEST(Execute, TakesARanksOwnPartOfThePlan) {
  Random random(13);
  for (int i = 0; i < 50; ++i) {
    const World world = RandomWorld(random, 2, 200);
    WorldMemory held(world.source), wanted(world.target);
    held.Fill(world.source);
    std::vector<std::vector<std::unique_ptr<Link>>> ends(kRanks + 2);
    for (int32_t a = 0; a < kRanks + 2; ++a)
      for (int32_t b = a + 1; b < kRanks + 2; ++b) {
        auto [end_a, end_b] = MakeInProcessLinks(Rank(a), Rank(b));
        ends[static_cast<size_t>(a)].push_back(std::move(end_a));
        ends[static_cast<size_t>(b)].push_back(std::move(end_b));
      }
    std::vector<std::thread> threads;
    std::vector<Status> statuses(kRanks + 2);
    for (int32_t rank = 0; rank < kRanks + 2; ++rank)
      threads.emplace_back([&, rank] {
        const auto r = static_cast<size_t>(rank);
        const auto plan = MakePlan(world.source, world.target, {.rank = rank % 2 ? std::optional(rank) : std::nullopt});
        std::vector<Link*> links;
        for (const auto& link : ends[r]) links.push_back(link.get());
        const Bindings bindings = BindPlain(world.source, held, world.target, wanted, rank);
        statuses[r] = Execute(*plan, world.source, world.target, rank, bindings, links).status();
        ends[r].clear();  // as soon as Execute has returned
      });
    for (auto& thread : threads) thread.join();
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.ToString();
    wanted.ExpectFilled(world.target);
  }
}

}  // namespace
}  // namespace kintsugi::reshard
