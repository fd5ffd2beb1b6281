#include "replica/layout/merge.h"

#include "replica/layout/codec.h"
#include "replica/layout/factory.h"
#include "tests/unit/layout/random_layout.h"
#include "tests/unit/layout/world.h"

namespace kintsugi::layout {
namespace {

TEST(Merge, WithNothingIsTheSame) {
  World world;
  world.Add(3, Piece("w", {4}, {0}, {4}, {0, 1})).Add(1, Object("o"));
  const Metadata metadata = world.Build();
  EXPECT_EQ(Encode(Merge(metadata, {})), Encode(metadata));
  EXPECT_EQ(Encode(Merge({}, metadata)), Encode(metadata));
  EXPECT_EQ(Encode(MergeAll({})), Encode(Metadata{}));
  EXPECT_EQ(Encode(MergeAll({&metadata, 1})), Encode(metadata));
}

TEST(Merge, SharesPiecesAndReplicaIds) {
  const Metadata a = World().Add(1, Piece("w", {4}, {0}, {4}, {0, 1})).Add(1, Piece("v", {2}, {0}, {2})).Build();
  const Metadata b =
      World().Add(0, Piece("w", {4}, {0}, {4}, {0, 0})).Add(2, Piece("w", {4}, {0}, {4}, {0, 1})).Build();
  const Metadata both = Merge(a, b);
  ASSERT_EQ(both.keys.size(), 2u);
  EXPECT_EQ(both.keys[0].name, "v");
  EXPECT_EQ(both.piece_count(), 2u);
  EXPECT_EQ(both.replica_ids.size(), 3u);
  ASSERT_EQ(both.Find("w").size(), 1u);
  EXPECT_TRUE(both.Find("u").empty());
  const KeyMeta& w = both.Find("w").front();
  const PieceView piece = both.Piece(w, w.first_piece);
  ASSERT_EQ(piece.holders.size(), 3u);
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(piece.holders[static_cast<size_t>(rank)].rank, rank);
    EXPECT_EQ(both.IsMain(piece.holders[static_cast<size_t>(rank)]), rank == 0);
  }
}

TEST(Merge, KeepsTheFirstRefusalsWhateverTheTree) {
  const auto list = [](int32_t first) {
    MetadataBuilder builder;
    for (int32_t i = 0; i < 800; ++i) builder.AddRefusal(first + 2 * i, {ErrorCode::kKey, "k", {}, {}, "bad"});
    return builder.Build();
  };
  const Metadata a = list(0), b = list(1), c = list(4000);
  const Metadata left = Merge(Merge(a, b), c), right = Merge(b, Merge(c, a));
  EXPECT_EQ(left.refusals.size(), kRefusalsMax);
  EXPECT_EQ(left.refusals, right.refusals);
  EXPECT_EQ(left.refusals.back().ranks, std::vector<int32_t>{1023});
  EXPECT_EQ(DigestOf(left), DigestOf(right));
}

TEST(Digest, ChangesWithEveryPartOfTheContent) {
  ShardedTensor w = Flat(Piece("w", {4, 2}, {0, 0}, {4, 2}, {0, 1}), 0, 4);
  const auto digest = [](const ShardedTensor& tensor, int32_t rank = 1) {
    return DigestOf(World().Add(rank, tensor).Build());
  };
  std::set<uint64_t> digests = {digest(w), digest(w, 2)};
  std::vector<std::function<void(ShardedTensor&)>> changes = {
      [](ShardedTensor& t) { t.key = "v"; },
      [](ShardedTensor& t) { t.dtype = DType::kInt32; },
      [](ShardedTensor& t) { t.global_shape[1] = 3; },
      [](ShardedTensor& t) { t.local_shape[0] = 3; },
      [](ShardedTensor& t) { t.global_offset[0] = 1; },
      [](ShardedTensor& t) { t.flattened_range->stop = 5; },
      [](ShardedTensor& t) { t.flattened_range.reset(); },
      [](ShardedTensor& t) { t.replica_id = {0}; },
      [](ShardedTensor& t) {
        t.axis_fragmentations = {1, 1};
      },
      [](ShardedTensor& t) {
        t.axis_fragmentations = {1, 2};
      },
      [](ShardedTensor& t) { t.allow_shape_mismatch = true; },
  };
  for (const auto& change : changes) {
    ShardedTensor other = w;
    change(other);
    digests.insert(digest(other));
  }
  digests.insert(DigestOf(World().Add(1, Object("w")).Build()));
  digests.insert(DigestOf(DescribeRank(1, {})));
  digests.insert(DigestOf(DescribeRank(2, {})));
  digests.insert(DigestOf({}));
  MetadataBuilder builder;
  builder.AddRefusal(1, {ErrorCode::kKey, "w", {}, {}, "bad"});
  digests.insert(DigestOf(builder.Build()));
  EXPECT_EQ(digests.size(), 2 + changes.size() + 5);
}

TEST(MetadataBuilder, GivesNumbersForManyShards) {
  MetadataBuilder builder;
  KeyMeta key;
  key.name = "w";
  key.dtype = DType::kFloat32;
  key.axes = 1;
  key.global_shape[0] = 1000;
  const uint32_t number = builder.AddKey(key);
  EXPECT_EQ(builder.AddKey(key), number);
  const int64_t id[] = {0, 0};
  const uint32_t replica = builder.AddReplicaId(id);
  for (int64_t i = 999; i >= 0; --i) {
    const int64_t hi = i + 1;
    builder.AddShard(static_cast<int32_t>(i % 7), number, &i, &hi, kNotFlat, replica);
  }
  const Metadata metadata = builder.Build();
  EXPECT_EQ(metadata.piece_count(), 1000u);
  EXPECT_TRUE(Validate(metadata).empty());
  EXPECT_EQ(builder.Build().piece_count(), 0u) << "empty after Build";
}

}  // namespace
}  // namespace kintsugi::layout
