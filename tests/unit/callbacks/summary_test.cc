#include "callbacks/state/summary.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/unit/callbacks/tensors.h"

namespace kintsugi {
namespace {

RegistrySummary Registered() {
  RegistrySummary summary;
  summary.tensors.push_back({"w", DType::kFloat32, {12}, {4}, {8}, std::nullopt, 0});
  summary.tensors.push_back({"x", DType::kFloat32, {12}, {12}, {0}, FlatRange{0, 6}, 1});
  summary.objects.push_back({"data", ObjectKind::kDerived});
  summary.objects.push_back({"rng", ObjectKind::kMirrored});
  return summary;
}

Status Compared(const RegistrySummary& a, const RegistrySummary& b, int layout = 0) {
  return CompareReplicas(layout, Rank(3), a, Rank(17), b);
}

TEST(CompareReplicas, TakesEqualSummaries) {
  for (int layout : {0, 1, 2}) EXPECT_TRUE(Compared(Registered(), Registered(), layout).ok());
}

struct Difference {
  const char* name;
  std::function<void(RegistrySummary&)> make;
  std::vector<std::string> named;
};

TEST(CompareReplicas, NamesKeyBothRanksAndBothValuesWhicheverSideDiffers) {
  const std::vector<Difference> differences = {
      {"dtype", [](auto& s) { s.tensors[0].dtype = DType::kFloat16; }, {"w float32", "w float16"}},
      {"global shape", [](auto& s) { s.tensors[0].global_shape = {13}; }, {"of [12]", "of [13]"}},
      {"local shape", [](auto& s) { s.tensors[0].local_shape = {3}; }, {"[4] of", "[3] of"}},
      {"offset", [](auto& s) { s.tensors[0].global_offset = {7}; }, {"at [8]", "at [7]"}},
      {"range",
       [](auto& s) {
         s.tensors[0].flattened_range = {1, 2};
       },
       {"w float32 [4] of [12] at [8]", "flat 1..2"}},
      {"layout", [](auto& s) { s.tensors[0].layout = 1; }, {"w float32", "layout 0", "layout 1"}},
      {"missing tensor", [](auto& s) { s.tensors.erase(s.tensors.begin()); }, {"'w'", "missing"}},
      {"object kind", [](auto& s) { s.objects[1].kind = ObjectKind::kDerived; }, {"rng as mirrored", "rng as derived"}},
      {"missing object", [](auto& s) { s.objects.erase(s.objects.begin()); }, {"'data'", "missing"}},
      {"key twice", [](auto& s) { s.tensors.push_back(s.tensors[0]); }, {"'w'", "twice"}},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.name);
    RegistrySummary other = Registered();
    difference.make(other);
    for (const Status& status : {Compared(Registered(), other), Compared(other, Registered())}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      const bool one_rank_alone = std::string(difference.name) == "key twice";
      EXPECT_EQ(Names(status.message(), "rank 3", "rank 17"), !one_rank_alone) << status.ToString();
      for (const std::string& value : difference.named)
        EXPECT_TRUE(Names(status.message(), value)) << status.ToString();
    }
  }
}

TEST(CompareReplicas, LeavesTensorsOfOtherLayoutsToTheirOwnGroups) {
  RegistrySummary other = Registered();
  other.tensors[1].flattened_range = FlatRange{6, 12};
  EXPECT_TRUE(Compared(Registered(), other, 0).ok());
  EXPECT_EQ(Compared(Registered(), other, 1).code(), StatusCode::kInvalidArgument);
  other.tensors.pop_back();
  EXPECT_TRUE(Compared(Registered(), other, 0).ok());
}

// Ranks that share a tensor stand at other places of a grid, and one may hold more of its cells.
TEST(CompareReplicas, TakesOtherCellsOfOneGrid) {
  RegistrySummary a, b;
  a.objects = {{"scale/shard_0_4", ObjectKind::kMirrored}, {"scale/shard_1_4", ObjectKind::kMirrored}};
  b.objects = {{"scale/shard_2_4", ObjectKind::kMirrored}};
  EXPECT_TRUE(CompareReplicas(0, Rank(3), a, Rank(17), b).ok());
  b.objects[0].kind = ObjectKind::kDerived;
  EXPECT_NE(CompareReplicas(0, Rank(3), a, Rank(17), b).message().find("replicas differ"), std::string::npos);
  b.objects.clear();
  EXPECT_NE(CompareReplicas(0, Rank(3), a, Rank(17), b).message().find("'scale (a cell of a grid)' is registered on"),
            std::string::npos);
}

TEST(CompareReplicas, ShowsAHostileKeyOnlyInPrintableForm) {
  RegistrySummary other = Registered();
  other.tensors[0].key = std::string("evil\n\x1b[2J") + std::string(5000, 'x');
  const Status status = Compared(Registered(), other);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  const Status reverse = Compared(other, Registered());
  EXPECT_EQ(reverse.message().find('\n'), std::string::npos);
  EXPECT_LT(reverse.message().size(), 500u);
}

}  // namespace
}  // namespace kintsugi
