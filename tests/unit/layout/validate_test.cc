// The rules of one key: cover, copies, bounds. Each error with key, ranks, region and both values.
#include "replica/layout/validate.h"

#include "replica/layout/shard.h"
#include "tests/unit/layout/world.h"

namespace kintsugi::layout {
namespace {

TEST(Validate, TakesGridsIrregularTilingsCopiesAndFlatRanges) {
  World world;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto at = static_cast<int32_t>(rank);
    world.Add(at,
              *FromShardWeight("grid", {DType::kBFloat16, {2, 3}, {}}, 1, rank % 2, 2, {.replica_id = {0, rank / 2}}));
    world.Add(
        at, *FromShardWeight("replicated", {DType::kFloat32, {5}, {}}, std::nullopt, rank, 4, {.replica_id = {rank}}));
    // A tensor-parallel weight whose optimizer state is cut over two data-parallel ranks.
    const auto box = FromShardWeight("zero", {DType::kFloat32, {3, 3}, {}}, 0, rank % 2, 2);
    world.Add(at, *Flatten(*box, rank / 2 == 0 ? FlatRange{0, 5} : FlatRange{5, 9}));
    world.Add(at, Piece("scalar", {}, {}, {}, {rank}));
    world.Add(at, Object("rng", {4}, {rank}));
    world.Add(at, Object("schedule", {}, {}, {rank}));
  }
  // A pinwheel: no cut goes through the whole.
  world.Add(0, Piece("wheel", {3, 3}, {0, 0}, {1, 2})).Add(1, Piece("wheel", {3, 3}, {0, 2}, {2, 1}));
  world.Add(2, Piece("wheel", {3, 3}, {2, 1}, {1, 2})).Add(3, Piece("wheel", {3, 3}, {1, 0}, {2, 1}));
  world.Add(3, Piece("wheel", {3, 3}, {1, 1}, {1, 1}));
  const auto error = world.Verdict();
  EXPECT_FALSE(error) << error->message;
}

TEST(Validate, NamesAHole) {
  ExpectError(World().Add(0, Piece("w", {4, 6}, {0, 0}, {4, 2})).Add(7, Piece("w", {4, 6}, {0, 3}, {4, 3})).Verdict(),
              ErrorCode::kHole, "w", {0, 7}, "[[0, 4), [2, 3)]", {"20 of 24 elements"});
}

TEST(Validate, NamesAHoleBetweenFlatRanges) {
  const ShardedTensor box = Piece("w", {4, 3}, {0, 0}, {4, 3});
  ExpectError(World().Add(1, Flat(box, 0, 5)).Add(2, Flat(box, 7, 12)).Verdict(), ErrorCode::kHole, "w", {1},
              "[[1, 2), [2, 3)]", {"10 of 12"});
}

// A sum over lower ranks would place these pieces wrongly: they tile their parameter, but not in the order of ranks.
TEST(Validate, TakesFlatRangesInAnyOrderOfRanks) {
  const ShardedTensor box = Piece("w", {4, 3}, {0, 0}, {4, 3});
  EXPECT_FALSE(World().Add(0, Flat(box, 7, 12)).Add(1, Flat(box, 0, 2)).Add(2, Flat(box, 2, 7)).Verdict());
  ExpectError(World().Add(0, Flat(box, 5, 12)).Add(1, Flat(box, 0, 2)).Add(2, Flat(box, 2, 7)).Verdict(),
              ErrorCode::kOverlap, "w", {0, 2}, "[[1, 2), [2, 3)]", {"flat 5..12", "flat 2..7"});
}

TEST(Validate, NamesAnOverlap) {
  ExpectError(World().Add(2, Piece("w", {4, 6}, {0, 0}, {4, 4})).Add(5, Piece("w", {4, 6}, {0, 3}, {4, 3})).Verdict(),
              ErrorCode::kOverlap, "w", {2, 5}, "[[0, 4), [3, 4)]",
              {"rank 2 holds [[0, 4), [0, 4)]", "rank 5 holds [[0, 4), [3, 6)]"});
}

TEST(Validate, NamesAnOverlapOfFlatRanges) {
  const ShardedTensor box = Piece("w", {4, 3}, {0, 0}, {4, 3});
  ExpectError(World().Add(1, Flat(box, 0, 8)).Add(2, Flat(box, 7, 12)).Verdict(), ErrorCode::kOverlap, "w", {1, 2},
              "[[2, 3), [1, 2)]", {"flat 0..8", "flat 7..12"});
}

TEST(Validate, NamesAFlatRangeOverABox) {
  const ShardedTensor box = Piece("w", {4}, {0}, {4});
  ExpectError(World().Add(1, Flat(box, 0, 4)).Add(2, Piece("w", {4}, {2}, {2})).Verdict(), ErrorCode::kOverlap, "w",
              {1, 2}, "[[2, 4)]", {"flat 0..4"});
}

TEST(Validate, NamesTwoMains) {
  ExpectError(World().Add(3, Piece("w", {4}, {0}, {4}, {0})).Add(1, Piece("w", {4}, {0}, {4}, {0, 0})).Verdict(),
              ErrorCode::kDoubleMain, "w", {1, 3}, "[[0, 4)]", {"2 main replicas", "1 must be", "experts by their number over all ranks"});
  ExpectError(World().Add(3, Piece("w", {4}, {0}, {4})).Add(3, Piece("w", {4}, {0}, {4})).Verdict(),
              ErrorCode::kDoubleMain, "w", {3}, "[[0, 4)]", {"2 main replicas"});
}

TEST(Validate, NamesAStrayCopy) {
  World world;
  world.Add(0, Piece("w", {4}, {0}, {4})).Add(4, Piece("w", {4}, {0}, {3}, {1})).Add(2, Piece("w", {4}, {0}, {3}, {2}));
  ExpectError(world.Verdict(), ErrorCode::kStrayCopy, "w", {2, 4}, "[[0, 3)]", {"2 copies", "0 main"});
  world.Add(0, Piece("w", {4}, {0}, {4})).Add(4, Flat(Piece("w", {4}, {0}, {4}, {1}), 0, 3));
  ExpectError(world.Verdict(), ErrorCode::kStrayCopy, "w", {4}, "[[0, 4)]", {"flat 0..3"});
  // A whole box and the flat range over all of it are the same elements in the same order.
  world.Add(0, Piece("w", {4}, {0}, {4})).Add(4, Flat(Piece("w", {4}, {0}, {4}, {1}), 0, 4));
  EXPECT_FALSE(world.Verdict());
  world.Add(0, Flat(Piece("w", {4}, {0}, {4}), 0, 4)).Add(4, Piece("w", {4}, {0}, {4}, {1}));
  EXPECT_FALSE(world.Verdict());
}

TEST(Validate, NamesObjectsThatAreThereTwiceOrNotAtAll) {
  ExpectError(World().Add(0, Object("rng", {2, 2}, {0, 1})).Add(3, Object("rng", {2, 2}, {0, 1})).Verdict(),
              ErrorCode::kObjectTwice, "rng", {0, 3}, "[[0, 1), [1, 2)]", {"object 'rng'", "2 main replicas"});
  ExpectError(World().Add(0, Object("rng", {3}, {0})).Add(3, Object("rng", {3}, {2})).Verdict(),
              ErrorCode::kObjectMissing, "rng", {0, 3}, "[[1, 2)]", {"2 of 3 objects"});
  ExpectError(World().Add(0, Object("rng", {3}, {3})).Verdict(), ErrorCode::kOutOfBounds, "rng", {0}, "[[3, 4)]",
              {"4", "3"});
  ExpectError(World().Add(0, Object("rng", {}, {}, {0})).Add(5, Object("rng", {}, {}, {})).Verdict(),
              ErrorCode::kObjectTwice, "rng", {0, 5}, "[]", {});
}

TEST(Validate, NamesAFlatRangeThatIsNotWithinItsBox) {
  ExpectError(World().Add(6, Flat(Piece("w", {4, 3}, {0, 0}, {2, 3}), 2, 7)).Verdict(), ErrorCode::kFlatRange, "w", {6},
              "[[0, 2), [0, 3)]", {"7", "6 elements"});
}

TEST(Validate, NamesAShardThatIsNotOnItsGrid) {
  ShardedTensor shard = Piece("w", {6}, {1}, {2});
  shard.axis_fragmentations = {3};
  ExpectError(World().Add(4, shard).Verdict(), ErrorCode::kMisaligned, "w", {4}, "[[1, 3)]",
              {"axis 0 begins at 1", "2"});
  shard.global_offset = {0};
  shard.local_shape = {3};
  ExpectError(World().Add(4, shard).Verdict(), ErrorCode::kMisaligned, "w", {4}, "[[0, 3)]",
              {"local length 3", "3 fragments", "6"});
}

TEST(Validate, NamesATensorThatIsTooLarge) {
  ExpectError(World().Add(4, Piece("w", {INT64_MAX, 2}, {0, 0}, {1, 1})).Verdict(), ErrorCode::kTooLarge, "w", {4},
              "[[0, " + std::to_string(INT64_MAX) + "), [0, 2)]", {"63 bits", "float32"});
  const int64_t half = int64_t{1} << 60;
  EXPECT_FALSE(
      World().Add(0, Piece("w", {half}, {0}, {half - 1})).Add(1, Piece("w", {half}, {half - 1}, {1})).Verdict());
}

TEST(Validate, OfARequestAsksForNoCover) {
  World world;
  world.Add(0, Piece("w", {4}, {0}, {2})).Add(1, Piece("w", {4}, {1}, {2}));
  EXPECT_FALSE(world.Verdict({.is_request = true}));
  ExpectError(world.Add(0, Piece("w", {4}, {3}, {2})).Verdict({.is_request = true}), ErrorCode::kOutOfBounds, "w", {0},
              "[[3, 5)]", {"5", "4"});
}

TEST(Validate, GivesOneErrorPerKeyUpToTheLimit) {
  World world;
  for (const char* key : {"c", "a", "b"}) world.Add(0, Piece(key, {4}, {0}, {2}));
  const Metadata metadata = world.Build();
  const auto errors = Validate(metadata);
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[0].key + errors[1].key + errors[2].key, "abc");
  EXPECT_EQ(Validate(metadata, {.errors_max = 2}).size(), 2u);
  EXPECT_THAT(ToStatus(errors).message(), testing::HasSubstr("and 2 more errors"));
  EXPECT_TRUE(ToStatus({}).ok());
}

// --- defects of section 13 -----------------------------------------------------------------------------------------

// Defect 2: a walk with pos = end takes an interval nested in an earlier one for a hole.
TEST(Defects, ANestedIntervalIsAnOverlapAndNoHole) {
  World world;
  world.Add(0, Piece("w", {10}, {0}, {8})).Add(1, Piece("w", {10}, {2}, {2})).Add(2, Piece("w", {10}, {8}, {2}));
  ExpectError(world.Verdict(), ErrorCode::kOverlap, "w", {0, 1}, "[[2, 4)]", {});
}

// Defect 3: grouping by equal first intervals rejects tilings that are no grid and accepts overlaps.
TEST(Defects, ATilingThatIsNoGridIsRightAndAnOverlapInItIsFound) {
  World world;
  world.Add(0, Piece("w", {4, 4}, {0, 0}, {4, 2})).Add(1, Piece("w", {4, 4}, {0, 2}, {1, 2}));
  world.Add(2, Piece("w", {4, 4}, {1, 2}, {3, 2}));
  EXPECT_FALSE(world.Verdict());
  // Full along the first axis in each group, yet two groups overlap.
  world.Add(0, Piece("w", {4, 4}, {0, 0}, {2, 4})).Add(1, Piece("w", {4, 4}, {1, 0}, {3, 4}));
  ExpectError(world.Verdict(), ErrorCode::kOverlap, "w", {0, 1}, "[[1, 2), [0, 4)]", {});
  // The volumes add up to the whole, yet there is an overlap and a hole.
  world.Add(0, Piece("w", {4, 4}, {0, 0}, {2, 4})).Add(1, Piece("w", {4, 4}, {1, 0}, {2, 4}));
  ExpectError(world.Verdict(), ErrorCode::kOverlap, "w", {0, 1}, "[[1, 2), [0, 4)]", {});
}

// Defect 4: scalars crash the check or are skipped.
TEST(Defects, AScalarHasExactlyOneMain) {
  EXPECT_FALSE(World().Add(0, Piece("s", {}, {}, {})).Add(1, Piece("s", {}, {}, {}, {1})).Verdict());
  ExpectError(World().Add(0, Piece("s", {}, {}, {})).Add(1, Piece("s", {}, {}, {})).Verdict(), ErrorCode::kDoubleMain,
              "s", {0, 1}, "[]", {"2 main"});
  ExpectError(World().Add(1, Piece("s", {}, {}, {}, {1})).Verdict(), ErrorCode::kStrayCopy, "s", {1}, "[]", {"0 main"});
  ExpectError(World().Add(1, Flat(Piece("s", {}, {}, {}), 0, 0)).Verdict(), ErrorCode::kHole, "s", {}, "[]",
              {"0 of 1"});
  EXPECT_FALSE(World().Add(1, Flat(Piece("s", {}, {}, {}), 0, 1)).Verdict());
}

// Defect 5: only the last shard is asked whether it is flattened.
TEST(Defects, EveryShardsFlatRangeCounts) {
  const ShardedTensor box = Piece("w", {4}, {0}, {4});
  for (const bool is_first : {true, false}) {
    World world;
    if (is_first) world.Add(0, Flat(box, 0, 1));
    world.Add(1, Piece("w", {4}, {1}, {3}));
    if (!is_first) world.Add(0, Flat(box, 0, 1));
    EXPECT_FALSE(world.Verdict());
  }
}

// Defect 6: shards without elements are refused.
TEST(Defects, AShardWithoutElementsIsValidAndCountsForNothing) {
  World world;
  world.Add(0, Piece("w", {4, 2}, {0, 0}, {4, 2})).Add(1, Piece("w", {4, 2}, {4, 0}, {0, 2}));
  world.Add(2, Piece("w", {4, 2}, {2, 1}, {0, 0})).Add(3, Piece("w", {4, 2}, {2, 1}, {0, 0}));
  world.Add(4, Flat(Piece("w", {4, 2}, {0, 0}, {4, 2}), 3, 3)).Add(5, Piece("w", {4, 2}, {1, 1}, {0, 1}, {1}));
  EXPECT_FALSE(world.Verdict());
  EXPECT_FALSE(
      World().Add(0, Piece("none", {0, 7}, {0, 0}, {0, 7})).Add(1, Piece("none", {0, 7}, {0, 0}, {0, 7})).Verdict());
  // But it must lie within bounds.
  ExpectError(world.Add(1, Piece("w", {4, 2}, {5, 0}, {0, 2})).Verdict(), ErrorCode::kOutOfBounds, "w", {1},
              "[[5, 5), [0, 2)]", {"5", "4"});
}

// Defect 7: identity is key and offset, so other extents or flat pieces at one offset collide.
TEST(Defects, IdentityIsOffsetAndShapeAndFlatRangeAndReplica) {
  const ShardedTensor box = Piece("w", {4}, {0}, {4});
  World world;
  world.Add(0, Flat(box, 0, 2)).Add(1, Flat(box, 2, 4)).Add(2, Flat(Piece("w", {4}, {0}, {4}, {1}), 0, 2));
  const Metadata metadata = world.Build();
  EXPECT_EQ(metadata.piece_count(), 2u);
  EXPECT_EQ(metadata.holders.size(), 3u);
  EXPECT_TRUE(Validate(metadata).empty());
  world.Add(0, Piece("w", {4}, {0}, {2})).Add(1, Piece("w", {4}, {0}, {4}));
  ExpectError(world.Verdict(), ErrorCode::kOverlap, "w", {0, 1}, "[[0, 2)]", {});
}

// Defect 13: offset + local length <= global length is not checked.
TEST(Defects, BoundsAreCheckedOnEveryShard) {
  ExpectError(World().Add(9, Piece("w", {4, 8}, {0, 4}, {4, 5})).Verdict(), ErrorCode::kOutOfBounds, "w", {9},
              "[[0, 4), [4, 9)]", {"axis 1", "9", "8"});
}

// Defect 15: distribution destroys replica ids. Here they are kept as the caller gave them.
TEST(Defects, ReplicaIdsAreKept) {
  World world;
  const std::vector<std::vector<int64_t>> ids = {{}, {0, 0, 3}, {7}, {-2}, {0, 1}};
  for (size_t i = 0; i < ids.size(); ++i) world.Add(static_cast<int32_t>(i), Piece("w", {4}, {0}, {4}, ids[i]));
  const Metadata metadata = world.Build();
  ASSERT_EQ(metadata.holders.size(), ids.size());
  for (const Holder& holder : metadata.holders) {
    const auto id = metadata.replica_ids[holder.replica];
    EXPECT_EQ(std::vector<int64_t>(id.begin(), id.end()), ids[static_cast<size_t>(holder.rank)]);
  }
}

// Defect 20: irregular shards and copies are not checked at all.
TEST(Defects, IrregularShardsAndCopiesAreCheckedLikeAllOthers) {
  ExpectError(World().Add(0, Piece("w", {7}, {0}, {3})).Add(1, Piece("w", {7}, {4}, {3})).Verdict(), ErrorCode::kHole,
              "w", {0, 1}, "[[3, 4)]", {"6 of 7"});
  ExpectError(World().Add(0, Piece("w", {7}, {0}, {7})).Add(1, Piece("w", {7}, {4}, {3}, {1})).Verdict(),
              ErrorCode::kStrayCopy, "w", {1}, "[[4, 7)]", {});
}

}  // namespace
}  // namespace kintsugi::layout
