// Reshards between live ranks: random layouts element by element, programs, casts, padding, copies, links that stay.
#include "replica/live/reshard.h"

#include <algorithm>
#include <numeric>

#include "replica/layout/shard.h"
#include "tests/unit/layout/random_layout.h"
#include "tests/unit/live/live_ranks.h"
#include "tests/unit/live/live_shards.h"
#include "tests/unit/reshard/rank_memory.h"

namespace kintsugi::live {
namespace {

using namespace std::chrono_literals;
using layout::Metadata;
using layout::RankShard;

// One rank's shards of a world, in its memories.
std::vector<ShardedTensor> ShardsIn(const Metadata& metadata, reshard::WorldMemory& memory, int32_t rank,
                                    const std::vector<RankShard>& shards) {
  std::vector<ShardedTensor> own;
  std::map<uint32_t, size_t> used;
  for (const RankShard& shard : shards) {
    if (shard.rank != rank) continue;
    const uint32_t piece = reshard::FindPiece(metadata, rank, shard.tensor).value();
    auto& memories = memory.pieces.at({rank, piece});
    own.push_back(shard.tensor);
    own.back().memory = memories[used[piece]++ % memories.size()]->memory();
  }
  return own;
}

TEST(LiveReshard, BringsEveryElementOfRandomLayoutsToEveryPlace) {
  constexpr int32_t kRanks = 5;
  Random random(34);
  LiveRanks ranks(kRanks, LinkPreference::kTcp);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE("world " + std::to_string(i));
    std::vector<RankShard> held, asked;
    for (int k = 0; k < 3; ++k) {
      const auto shards =
          layout::RandomLayout("key" + std::to_string(k), {.elements_max = 120, .ranks = kRanks, .change = 0}, random);
      const layout::Box whole = layout::WholeBox(shards[0].tensor.global_shape);
      for (const layout::Box& box : layout::RandomTiling(whole, 1 + static_cast<int>(random.Below(6)), random))
        asked.push_back(
            {static_cast<int32_t>(random.Below(kRanks)), layout::TensorAt(shards[0].tensor.key, whole, box)});
      held.insert(held.end(), shards.begin(), shards.end());
    }
    for (RankShard& shard : asked) shard.tensor.dtype = held[0].tensor.dtype;
    for (RankShard& shard : held) shard.tensor.dtype = held[0].tensor.dtype;
    const Metadata source = layout::BuildAll(held), target = layout::BuildAll(asked);
    reshard::WorldMemory from(source), to(target);
    from.Fill(source);
    ranks.Each([&](int32_t rank, LinkMesh& mesh) {
      const auto own = ShardsIn(source, from, rank, held), wanted = ShardsIn(target, to, rank, asked);
      const auto done = ReshardLive(mesh, own, wanted, {.deadline = In(100s)});
      ASSERT_TRUE(done.ok()) << done.status().ToString();
    });
    to.ExpectFilled(target);
    from.ExpectFilled(source);
    if (HasFailure()) return;
  }
}

TEST(LiveReshard, ProgramsRenameCutAndCast) {
  LiveRanks ranks(2);
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    Numbers gate({"gate", {4, 3}, 0, 2}, rank), up({"up", {4, 3}, 0, 2}, rank);
    Numbers both({"gate_up", {8, 3}, 1, 1}, 0);
    const std::vector<ShardedTensor> source = {gate.shard(), up.shard()}, target = {both.shard()};
    up.values = {100, 101, 102, 103, 104, 105};
    if (rank == 1) up.values = {106, 107, 108, 109, 110, 111};
    LiveOptions options{.statements = {{"gate, up -> gate_up, axis=0"}}, .deadline = In(100s)};
    const auto done = ReshardLive(mesh, source, rank == 0 ? target : std::vector<ShardedTensor>(), options);
    ASSERT_TRUE(done.ok()) << done.status().ToString();
    if (rank != 0) return;
    std::vector<float> expected(24);
    std::iota(expected.begin(), expected.begin() + 12, 0.f);
    std::iota(expected.begin() + 12, expected.end(), 100.f);
    EXPECT_EQ(both.values, expected);
  });
}

TEST(LiveReshard, ASmallerSourceIsFilledUpWithZerosAndALargerOneIsCut) {
  LiveRanks ranks(2);
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    Numbers held({"vocab", {10, 2}, 0, 2}, rank);
    Numbers wider({"vocab", {12, 2}, 0, 2}, rank), narrower({"vocab", {8, 2}, 0, 2}, rank);
    wider.mismatch = narrower.mismatch = true;
    for (Numbers* wanted : {&wider, &narrower}) {
      std::fill(wanted->values.begin(), wanted->values.end(), -7.f);
      const std::vector<ShardedTensor> source = {held.shard()}, target = {wanted->shard()};
      const auto done = ReshardLive(mesh, source, target, {.deadline = In(100s)});
      ASSERT_TRUE(done.ok()) << done.status().ToString();
    }
    for (int i = 0; i < 12; ++i) {
      const int element = rank * 12 + i;
      EXPECT_EQ(wider.values[static_cast<size_t>(i)], element < 20 ? static_cast<float>(element) : 0.f);
    }
    for (int i = 0; i < 8; ++i) EXPECT_EQ(narrower.values[static_cast<size_t>(i)], static_cast<float>(rank * 8 + i));
  });
}

TEST(LiveReshard, CopiesByPlaceNeedNoReplicaIds) {
  LiveRanks ranks(3);
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    Numbers held({"norm", {6}, -1, 1}, 0), wanted({"norm", {6}, 0, 3}, rank);
    const std::vector<ShardedTensor> source = {held.shard()}, target = {wanted.shard()};
    std::fill(wanted.values.begin(), wanted.values.end(), -1.f);
    const auto done = ReshardLive(mesh, source, target, {.copies_by_place = true, .deadline = In(100s)});
    ASSERT_TRUE(done.ok()) << done.status().ToString();
    EXPECT_EQ(done->moved.bytes_received, 0) << "each rank has it";
    EXPECT_EQ(wanted.values, (std::vector<float>{rank * 2.f, rank * 2.f + 1}));
  });
}

TEST(LiveReshard, SomeRanksOfAWorldDoItAmongThemselves) {
  LiveRanks ranks(std::vector<int32_t>{2, 5, 6});
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    const int64_t place = rank == 2 ? 0 : rank - 4;
    Numbers held({"w", {9}, 0, 3}, place), wanted({"w", {9}, -1, 1}, 0);
    const std::vector<ShardedTensor> source = {held.shard()}, target = {wanted.shard()};
    wanted.values.assign(9, -1.f);
    const auto done =
        ReshardLive(mesh, source, rank == 5 ? target : std::vector<ShardedTensor>(), {.deadline = In(100s)});
    ASSERT_TRUE(done.ok()) << done.status().ToString();
    if (rank == 5) EXPECT_EQ(wanted.values, (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  });
}

TEST(LiveReshard, CastsWhereThatIsAskedFor) {
  LiveRanks ranks(2);
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    Numbers held({"w", {4}, 0, 2}, rank);
    std::vector<double> values(4, -1);
    ShardedTensor all = Numbers({"w", {4}, -1, 1}, 0).shard();
    all.dtype = DType::kFloat64;
    all.memory = {.data = values.data(), .size_bytes = 32};
    const std::vector<ShardedTensor> source = {held.shard()}, target = {all};
    const auto refused = ReshardLive(mesh, source, target, {.deadline = In(100s)});
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << refused.status().ToString();
    EXPECT_NE(refused.status().message().find("ask for the source's type, or for a cast"), std::string::npos);
    const auto done = ReshardLive(mesh, source, target, {.allow_cast = true, .deadline = In(100s)});
    ASSERT_TRUE(done.ok()) << done.status().ToString();
    EXPECT_EQ(values, (std::vector<double>{0, 1, 2, 3}));
  });
}

TEST(LiveReshard, KeysOnOneSideGoAsTheStrictModeSays) {
  LiveRanks ranks(2);
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    Numbers both({"both", {4}, 0, 2}, rank), held({"held", {4}, 0, 2}, rank);
    Numbers wanted({"both", {4}, -1, 1}, 0), more({"more", {4}, -1, 1}, 0);
    const std::vector<ShardedTensor> source = {both.shard(), held.shard()}, target = {wanted.shard(), more.shard()};
    more.values.assign(4, -3.f);
    const auto raised = ReshardLive(mesh, source, target, {.deadline = In(100s)});
    EXPECT_NE(raised.status().message().find("'more' is asked for by ranks 0, 1"), std::string::npos)
        << raised.status().ToString();
    const auto returned =
        ReshardLive(mesh, source, target, {.strict = layout::StrictHandling::kReturnAll, .deadline = In(100s)});
    ASSERT_TRUE(returned.ok()) << returned.status().ToString();
    EXPECT_EQ(returned->unfilled, std::vector<std::string>{"more"});
    EXPECT_EQ(returned->unread, std::vector<std::string>{"held"});
    EXPECT_EQ(wanted.values, (std::vector<float>{0, 1, 2, 3}));
    EXPECT_EQ(more.values, std::vector<float>(4, -3.f)) << "nothing is written where there is no source";
  });
}

}  // namespace
}  // namespace kintsugi::live
