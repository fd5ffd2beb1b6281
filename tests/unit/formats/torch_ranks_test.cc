// Files of ranks joined: what DTensors, meshes and names say is one thing, or refused by name.
#include <gtest/gtest.h>

#include <cstring>

#include "replica/formats/format.h"
#include "replica/formats/torch/distributed_tensor.h"
#include "replica/formats/torch/rank_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/formats/made_up_ranks.h"

namespace kintsugi::formats {
namespace {

using torch::AxisPlacement;
using torch::Span;

constexpr AxisPlacement kCut{AxisPlacement::Kind::kShard, 0, 1}, kCopy{};
AxisPlacement Strided(int64_t factor) { return {AxisPlacement::Kind::kStridedShard, 0, factor}; }

Result<Span> Cut(int64_t length, int64_t local, const std::vector<AxisPlacement>& placements,
                 const std::vector<int64_t>& mesh, const std::vector<int64_t>& coordinate,
                 const std::optional<std::vector<int64_t>>& order = {}) {
  return torch::RangeOf(0, length, local, placements, mesh, coordinate, order);
}

void ExpectRange(const Result<Span>& found, int64_t begin, int64_t end) {
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->begin, begin);
  EXPECT_EQ(found->end, end);
}

TEST(RangeOf, CutsAsTorchDoes) {
  ExpectRange(Cut(7, 2, {kCut}, {4}, {1}), 2, 4);
  ExpectRange(Cut(7, 1, {kCut}, {4}, {3}), 6, 7);
  ExpectRange(Cut(2, 0, {kCut}, {4}, {3}), 2, 2);
  ExpectRange(Cut(12, 3, {kCut, kCut}, {2, 2}, {1, 0}), 6, 9);
  ExpectRange(Cut(12, 12, {kCopy}, {4}, {2}), 0, 12);
  ExpectRange(Cut(12, 3, {kCut, kCut}, {2, 2}, {1, 0}, std::vector<int64_t>{1, 0}), 3, 6);
  // FSDP2 over tensor parallelism: the second dimension cuts first.
  ExpectRange(Cut(12, 3, {Strided(2), kCut}, {2, 2}, {1, 0}), 3, 6);
  ExpectRange(Cut(7, 1, {Strided(2), kCut}, {2, 2}, {1, 1}), 6, 7);
  // Tensor parallelism leaves 4 and 3 rows, of which the third of three ranks has none and one.
  ExpectRange(Cut(7, 0, {Strided(2), kCut}, {3, 2}, {2, 0}), 4, 4);
  ExpectRange(Cut(24, 3, {Strided(4), Strided(2), kCut}, {2, 2, 2}, {1, 0, 1}), 15, 18);
}

TEST(RangeOf, RefusesWhatIsNoRangeByName) {
  const auto short_part = Cut(7, 3, {kCut}, {4}, {1});
  EXPECT_EQ(short_part.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(short_part.status().message().find("has 3 elements, its placements and mesh say 2"), std::string::npos);
  EXPECT_EQ(Cut(12, 3, {Strided(3), kCut}, {2, 2}, {0, 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Cut(12, 6, {Strided(2)}, {2}, {0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Cut(12, 3, {kCut, kCut}, {2, 2}, {0, 0}, std::vector<int64_t>{1}).status().code(), StatusCode::kDataLoss);
}

TEST(RankFileNames, AreReadWithTheirFamilies) {
  const auto parsed = [](const char* name) { return torch::ParseRankFileName(name); };
  const auto verl = parsed("model_world_size_16_rank_3.pt");
  ASSERT_TRUE(verl);
  EXPECT_EQ(verl->family, "model");
  EXPECT_EQ(verl->rank, 3);
  EXPECT_EQ(verl->world, 16);
  EXPECT_TRUE(verl->says_rank);
  for (const char* name : {"model_rank3.pt", "model-rank-3.pth", "model.rank_00003.bin"}) {
    const auto found = parsed(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->family, "model") << name;
    EXPECT_EQ(found->rank, 3) << name;
    EXPECT_TRUE(found->says_rank) << name;
  }
  ASSERT_TRUE(parsed("rank_7.pt"));
  EXPECT_EQ(parsed("rank_7.pt")->family, "");
  ASSERT_TRUE(parsed("7.pt"));
  EXPECT_FALSE(parsed("checkpoint_7.pt")->says_rank);
  for (const char* name :
       {"model.pt", "rank_7.json", "zero_pp_rank_0_mp_rank_00_optim_states.pt", "rank_99999999999.pt"})
    EXPECT_FALSE(parsed(name)) << name;
}

class TorchRanks : public testing::Test {
 protected:
  void Write(MadeUpRank made) { WriteMadeUpRank(folder_ / "ranks", made); }
  void ExpectRefused(const std::vector<const char*>& words) {
    const auto read = ReadCatalog(folder_ / "ranks");
    ASSERT_FALSE(read.ok());
    for (const char* word : words)
      EXPECT_NE(read.status().message().find(word), std::string::npos) << read.status().message();
  }
  const TemporaryFolder folder_;
};

TEST_F(TorchRanks, AreOneState) {
  for (int64_t rank = 0; rank < 2; ++rank) Write({.rank = rank});
  const auto read = ReadCatalog(folder_ / "ranks");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->format(), "torch-ranks");
  ASSERT_EQ(read->tensors().size(), 2u);
  EXPECT_EQ(read->tensors()[0].shape, (Shape{5, 2}));
  EXPECT_EQ(read->pieces().size(), 3u);
  EXPECT_EQ(read->objects().size(), 1u);
  for (const CatalogPiece& piece : read->pieces())
    if (piece.tensor == 0) {
      float first = 0;
      std::memcpy(&first, read->files()[piece.file]->bytes().data() + piece.at, sizeof(first));
      EXPECT_EQ(first, static_cast<float>(piece.offset[0] * 2));
    }
}

TEST_F(TorchRanks, MissingOrMisnamedAreRefused) {
  Write({.rank = 0});
  ExpectRefused({"missing are those of rank 1", "'model_rank_0.pt'", "not whole"});
  Write({.rank = 1, .mesh = {1, 0}});
  ExpectRefused({"model_rank_1.pt' is called rank 1's", "is rank 0's"});
}

TEST_F(TorchRanks, WhatIsThereTwiceIsCompared) {
  Write({.rank = 0});
  Write({.rank = 1, .buffer = 8});
  ExpectRefused({"'buffer'", "'model_rank_0.pt' and 'model_rank_1.pt'", "no DTensor"});
  const auto without = ReadCatalog(folder_ / "ranks", "", {.skip_objects = true});
  ASSERT_TRUE(without.ok()) << without.status().ToString();
  EXPECT_EQ(without->tensors().size(), 1u);
  EXPECT_NE(without->notes().front().find("left out: '"), std::string::npos);
  Write({.rank = 1, .said = {5, 3}});
  ExpectRefused({"a DTensor of [5, 2] whose spec says [5, 3]", "model_rank_1.pt"});
  Write({.rank = 1, .whole = {6, 2}, .said = {6, 2}});
  ExpectRefused({"axis 0 of 6"});
  Write({.rank = 1, .axis = 2});
  ExpectRefused({"along an axis that it does not have"});
  Write({.rank = 1, .placement = "Partial"});
  ExpectRefused({"placement that is not read", "Partial", "redistribute"});
  Write({.rank = 1, .mesh = {1, 1}});
  ExpectRefused({"a mesh with a rank twice"});
}

}  // namespace
}  // namespace kintsugi::formats
