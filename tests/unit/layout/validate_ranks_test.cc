// The rules between ranks: agreement, who contributed, and one verdict for all.
#include "replica/layout/factory.h"
#include "replica/layout/merge.h"
#include "tests/unit/layout/world.h"

namespace kintsugi::layout {
namespace {

// Defect 12: plain assertions for what ranks disagree about.
TEST(Defects, DisagreementNamesKeyRanksAndBothValues) {
  const ShardedTensor right = Piece("w", {4}, {0}, {4}, {1});
  ShardedTensor other = right;
  other.dtype = DType::kBFloat16;
  ExpectError(World().Add(2, right).Add(5, other).Verdict(), ErrorCode::kDTypeDiffers, "w", {2, 5}, "none",
              {"float32 on rank 2", "bfloat16 on rank 5"});
  other = Piece("w", {6}, {0}, {4});
  ExpectError(World().Add(2, right).Add(5, other).Verdict(), ErrorCode::kGlobalShape, "w", {2, 5}, "none",
              {"[4] on rank 2", "[6] on rank 5"});
  other = Piece("w", {4, 1}, {0, 0}, {4, 1});
  ExpectError(World().Add(5, right).Add(2, other).Verdict(), ErrorCode::kGlobalShape, "w", {2, 5}, "none",
              {"[4] on rank 5", "[4, 1] on rank 2"});
  other = right;
  other.axis_fragmentations = {1};
  ExpectError(World().Add(2, right).Add(5, other).Verdict(), ErrorCode::kGrid, "w", {2, 5}, "none",
              {"none on rank 2", "[1] on rank 5"});
  other = right;
  other.allow_shape_mismatch = true;
  ExpectError(World().Add(2, right).Add(5, other).Verdict(), ErrorCode::kFlags, "w", {2, 5}, "none",
              {"false on rank 2", "true on rank 5"});
  ExpectError(World().Add(2, right).Add(5, Object("w")).Verdict(), ErrorCode::kKind, "w", {2, 5}, "none",
              {"a tensor on rank 2", "an object on rank 5"});
  ExpectError(World().Add(2, right).Add(2, other).Verdict(), ErrorCode::kFlags, "w", {2}, "none", {"rank 2"});
}

TEST(Validate, NamesRanksThatAreMissingTwiceOrUnknown) {
  const auto list = [](int32_t rank) { return DescribeRank(rank, {}); };
  const std::vector<Metadata> some = {list(0), list(3)};
  const auto first = [](const Metadata& metadata, int32_t world_size) {
    const auto errors = Validate(metadata, {.world_size = world_size});
    return errors.empty() ? std::nullopt : std::optional(errors.front());
  };
  EXPECT_FALSE(first(MergeAll(some), 0));
  ExpectError(first(MergeAll(some), 6), ErrorCode::kRankMissing, "", {1, 2, 4, 5}, "none", {"2 of 6"});
  ExpectError(first(MergeAll(some), 3), ErrorCode::kRankUnknown, "", {3}, "none", {"world size is 3"});
  const std::vector<Metadata> twice = {list(0), list(1), list(0)};
  ExpectError(first(MergeAll(twice), 2), ErrorCode::kRankTwice, "", {0}, "none", {"2 times"});
}

// Defect 11: only rank 0 judges, and the others hang when it raises. A rank that is wrong in itself must not stop alone
// either: what it cannot say, it says as a refusal.
TEST(Defects, ARankThatIsWrongInItselfIsEveryRanksVerdict) {
  std::vector<Metadata> lists;
  for (int32_t rank = 0; rank < 4; ++rank) {
    RankState state;
    state.tensors.push_back(Piece("w", {4}, {rank}, {1}));
    if (rank == 2) state.tensors[0].global_offset = {-2};
    lists.push_back(DescribeRank(rank, state));
  }
  const auto verdict = Validate(Merge(Merge(lists[0], lists[1]), Merge(lists[2], lists[3])), {.world_size = 4});
  const auto elsewhere = Validate(Merge(lists[3], Merge(Merge(lists[2], lists[0]), lists[1])), {.world_size = 4});
  EXPECT_EQ(verdict, elsewhere);
  ASSERT_EQ(verdict.size(), 2u);
  ExpectError(verdict[0], ErrorCode::kNegative, "w", {2}, "none", {"rank 2", "axis 0", "-2"});
  ExpectError(verdict[1], ErrorCode::kHole, "w", {1, 3}, "[[2, 3)]", {"3 of 4"});
}

TEST(Validate, TakesEveryDescriptorThatMetadataCannotHoldAsARefusal) {
  const auto verdict = [](const ShardedTensor& tensor) { return World().Add(3, tensor).Verdict(); };
  ShardedTensor tensor = Piece("a\tb", {4}, {0}, {4});
  auto error = verdict(tensor);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kKey);
  EXPECT_EQ(error->ranks, std::vector<int32_t>{3});
  tensor = Piece("w", {4}, {0}, {4});
  tensor.dtype = static_cast<DType>(99);
  ExpectError(verdict(tensor), ErrorCode::kDType, "w", {3}, "none", {"99"});
  ExpectError(verdict(Piece("w", {4}, {0, 0}, {4})), ErrorCode::kDimensions, "w", {3}, "none", {"[4]", "[0, 0]"});
  ExpectError(verdict(Piece("w", Shape(9, 1), Shape(9, 0), Shape(9, 1))), ErrorCode::kDimensions, "w", {3}, "none",
              {"9", "8"});
  ExpectError(verdict(Piece("w", {4}, {0}, {-4})), ErrorCode::kNegative, "w", {3}, "none", {"-4"});
  ExpectError(verdict(Piece("w", {4}, {INT64_MAX}, {1})), ErrorCode::kTooLarge, "w", {3}, "none",
              {std::to_string(INT64_MAX)});
  ExpectError(verdict(Flat(Piece("w", {4}, {0}, {4}), 3, 2)), ErrorCode::kFlatRange, "w", {3}, "none", {"3..2"});
  ExpectError(verdict(Flat(Piece("w", {4}, {0}, {4}), -1, 2)), ErrorCode::kFlatRange, "w", {3}, "none", {"-1..2"});
  ExpectError(verdict(Piece("w", {4}, {0}, {4}, std::vector<int64_t>(17, 0))), ErrorCode::kDimensions, "w", {3}, "none",
              {"17", "16"});
  tensor = Piece("w", {4}, {0}, {4});
  tensor.axis_fragmentations = {0};
  ExpectError(verdict(tensor), ErrorCode::kMisaligned, "w", {3}, "none", {"[0]"});
  tensor.axis_fragmentations = {1, 1};
  ExpectError(verdict(tensor), ErrorCode::kDimensions, "w", {3}, "none", {"[1, 1]"});
  ExpectError(World().Add(3, Object("o", {2}, {-1})).Verdict(), ErrorCode::kNegative, "o", {3}, "none", {"-1"});
  ExpectError(World().Add(3, Object("o", {2}, {0, 0})).Verdict(), ErrorCode::kDimensions, "o", {3}, "none", {"[0, 0]"});
}

TEST(MetadataBuilder, RefusesRanksThatAreNone) {
  for (const int32_t rank : {-1, kRanksMax}) {
    MetadataBuilder builder;
    builder.AddRank(rank);
    const auto errors = Validate(builder.Build());
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_THAT(errors[0].message, testing::HasSubstr(std::to_string(rank)));
  }
}

}  // namespace
}  // namespace kintsugi::layout
