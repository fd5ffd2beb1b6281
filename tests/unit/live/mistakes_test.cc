// A mistake of one rank is the same error on every rank, names key, rank and remedy, and leaves all memory as it was;
// the ranks can reshard again over the same links. What breaks on the way ends every rank.
#include <optional>

#include "replica/live/reshard.h"
#include "tests/unit/live/live_ranks.h"
#include "tests/unit/live/live_shards.h"

namespace kintsugi::live {
namespace {

using namespace std::chrono_literals;

constexpr int32_t kTeam = 4;

struct Side {
  std::vector<ShardedTensor> source, target;
  LiveOptions options;
};

// Columns become rows; `spoil` changes what a rank says. Every rank must end with one text, which is returned.
std::string ErrorOf(const std::function<void(int32_t rank, Side*)>& spoil) {
  LiveRanks ranks(kTeam);
  std::vector<std::string> texts(kTeam);
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    Numbers held({"w", {8, 8}, 1, kTeam}, rank), wanted({"w", {8, 8}, 0, kTeam}, rank);
    const std::vector<float> expected = wanted.values;
    wanted.values.assign(16, -1.f);
    Side side{{held.shard()}, {wanted.shard()}, {.deadline = In(100s)}};
    spoil(rank, &side);
    const auto failed = ReshardLive(mesh, side.source, side.target, side.options);
    EXPECT_FALSE(failed.ok());
    texts[static_cast<size_t>(rank)] = failed.status().ToString();
    EXPECT_EQ(wanted.values, std::vector<float>(16, -1.f));
    const std::vector<ShardedTensor> source = {held.shard()}, target = {wanted.shard()};
    const auto again = ReshardLive(mesh, source, target, {.deadline = In(100s)});
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(wanted.values, expected);
  });
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  return texts[0];
}

void ExpectWords(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' in: " << text;
}

TEST(LiveMistakes, AnotherGlobalShape) {
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank == 2) side->source[0].global_shape = {8, 9};
              }),
              {"source", "'w'", "[8, 9]", "rank 2", "one global shape"});
}

TEST(LiveMistakes, AHoleAndAnOverlap) {
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank == 3) side->source.clear();
              }),
              {"source", "hole", "'w'", "pass the shards that lack"});
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank == 3) side->source[0].global_offset = {0, 5};
              }),
              {"source", "overlap", "'w'", "rank 3 holds", "its own place"});
}

TEST(LiveMistakes, AnotherType) {
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank == 1) side->target[0].dtype = DType::kInt32;
              }),
              {"target", "'w'", "float32", "int32", "rank 1"});
}

TEST(LiveMistakes, MemoryThatIsNotThereOrUsedTwice) {
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank == 1) side->target[0].memory.size_bytes = 60;
              }),
              {"rank 1", "w float32", "64", "60"});
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank == 2) side->target[0].memory = side->source[0].memory;
              }),
              {"rank 2", "share memory"});
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank != 0) return;
                side->target.push_back(side->target[0]);
                side->target[1].global_offset = {4, 0};
              }),
              {"rank 0", "share memory", "give each its own"});
}

TEST(LiveMistakes, ADeviceIsNamed) {
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank == 1) side->source[0].memory.kind = MemoryKind::kDevice;
              }),
              {"rank 1", "'w'", "device"});
}

TEST(LiveMistakes, ManyProgramsAndABrokenOne) {
  ExpectWords(ErrorOf([](int32_t rank, Side* side) { side->options.statements = {{rank == 3 ? "w -> v" : "w -> w"}}; }),
              {"rank 3", "w -> v", "same program"});
  ExpectWords(ErrorOf([](int32_t, Side* side) { side->options.statements = {{"w ->"}}; }), {"the AOA program"});
  ExpectWords(ErrorOf([](int32_t rank, Side* side) { side->options.allow_cast = rank == 0; }),
              {"rank 0", "cast=1", "cast=0"});
}

TEST(LiveMistakes, WhatARankCouldNotEvenDescribe) {
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank == 2) side->options.own = {StatusCode::kInvalidArgument, "'w' is not contiguous"};
              }),
              {"rank 2", "not contiguous"});
  ExpectWords(ErrorOf([](int32_t rank, Side* side) {
                if (rank == 1) side->source[0].key = "";
              }),
              {"rank 1"});
}

// A rank that leaves in the middle, as one that dies: the others end with an error, none waits.
TEST(LiveFaults, ALostRankEndsAllOthers) {
  for (const int32_t lost : {0, 1, 3}) {
    LiveRanks ranks(kTeam);
    ranks.Each([&](int32_t rank, LinkMesh& mesh) {
      Numbers held({"w", {8, 8}, 1, kTeam}, rank), wanted({"w", {8, 8}, 0, kTeam}, rank);
      const std::vector<ShardedTensor> source = {held.shard()}, target = {wanted.shard()};
      ASSERT_TRUE(ReshardLive(mesh, source, target, {.deadline = In(100s)}).ok());
      if (rank == lost) return mesh.Abort();
      const auto failed = ReshardLive(mesh, source, target, {.deadline = In(1000s)});
      EXPECT_EQ(failed.status().code(), StatusCode::kCommFailure) << failed.status().ToString();
      EXPECT_TRUE(mesh.aborted());
    });
  }
}

TEST(LiveFaults, ACancelledRankReturnsAndSoDoTheOthers) {
  LiveRanks ranks(3);
  CancelToken cancel;
  ranks.Each([&](int32_t rank, LinkMesh& mesh) {
    Numbers held({"w", {9}, 0, 3}, rank), wanted({"w", {9}, -1, 1}, 0);
    const std::vector<ShardedTensor> source = {held.shard()}, target = {wanted.shard()};
    ASSERT_TRUE(ReshardLive(mesh, source, target, {.deadline = In(100s)}).ok());
    if (rank == 2) return cancel.Cancel();  // it never comes
    const auto failed =
        ReshardLive(mesh, source, target, {.deadline = In(1000s), .cancel = rank == 0 ? &cancel : nullptr});
    EXPECT_EQ(failed.status().code(), rank == 0 ? StatusCode::kCancelled : StatusCode::kCommFailure)
        << failed.status().ToString();
  });
}

}  // namespace
}  // namespace kintsugi::live
