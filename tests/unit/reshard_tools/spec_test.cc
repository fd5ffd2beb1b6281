// Specs of layouts and of shards to distribute: what is refused, and in which words.
#include "replica/layout/validate.h"
#include "tests/unit/reshard_tools/specs.h"
#include "tools/reshard/distribute_spec.h"
#include "tools/reshard/plain_spec.h"
#include "tools/reshard/validate_answer.h"

namespace kintsugi::reshard {
namespace {

using testing::HasSubstr;

TEST(LayoutSpec, SaysWhatIsWrongWhere) {
  const std::string right = kColumnsToRows;
  EXPECT_EQ(MustRefuse(With(right, "\"rank\": 1", "\"rank\": -1")).message,
            "FILE: /source/1/rank: is -1, but must be from 0 to 1048575");
  EXPECT_EQ(MustRefuse(With(right, "\"rank\": 1", "\"rank\": 99999999999999")).code, "spec");
  EXPECT_EQ(MustRefuse(With(right, "\"key\": \"w\", \"offset\"", "\"key\": \"v\", \"offset\"")).message,
            "FILE: /source/0/key: is 'v', which is not among the tensors");
  EXPECT_EQ(MustRefuse(With(right, "float32", "float33")).message,
            "FILE: /tensors/0/dtype: is 'float33', which is no dtype; try float32 or bfloat16");
  EXPECT_THAT(MustRefuse(With(right, "\"offset\"", "\"ofset\"")).message,
              HasSubstr("FILE: /source/0: has the unknown member 'ofset'; known are rank, key, offset"));
  EXPECT_EQ(MustRefuse(With(right, "\"shape\": [4, 3]}", "\"shape\": 4}")).message,
            "FILE: /source/0/shape: is 4, but must be a list");
  EXPECT_EQ(MustRefuse(With(right, "[3, 12]", "[3]")).message, "FILE: /target/1/flat: must be [start, stop]");
  EXPECT_EQ(MustRefuse("{}").message, "FILE: the document: lacks the member 'tensors'");
  EXPECT_EQ(MustRefuse("[]").message, "FILE: the document: is a list of 0, but must be an object");
  EXPECT_THAT(MustRefuse(With(right, "\"tensors\"", "\"source_tensors\"")).message,
              HasSubstr("lacks the member 'tensors'"));
}

TEST(LayoutSpec, LeavesWrongLayoutsToTheRules) {
  const std::string right = kColumnsToRows;
  const AnswerRefusal outside = MustRefuse(With(right, "\"offset\": [0, 3]", "\"offset\": [0, 4]"));
  EXPECT_EQ(outside.code, "out_of_bounds");
  EXPECT_EQ(outside.key, "w");
  EXPECT_EQ(outside.ranks, std::vector<int32_t>{1});
  EXPECT_EQ(outside.region, layout::BoxAt(Shape{0, 4}, Shape{4, 3}));
  EXPECT_EQ(MustRefuse(With(right, "[3, 12]", "[3, 13]")).code, "flat_range");
  EXPECT_EQ(MustRefuse(With(right, "\"offset\": [0, 3]", "\"offset\": [0, -3]")).code, "negative");
  EXPECT_EQ(MustRefuse(With(right, "\"global_shape\": [4, 6]", "\"global_shape\": [4, 6, 1]")).code, "dimensions");
  const std::string huge = "4611686018427387904";
  EXPECT_EQ(MustRefuse(With(right, "[4, 6]", "[" + huge + ", " + huge + "]")).code, "too_large");
  EXPECT_EQ(MustRefuse(With(right, "[4, 6]", "[4, 6, 1, 1, 1, 1, 1, 1, 1]")).code, "dimensions");
}

TEST(LayoutSpec, TakesShardsAsTrainersCutThem) {
  const auto validated = [](const std::string& shards, const std::string& shape) {
    const auto spec = ReadLayoutSpec(R"({"tensors": [{"key": "w", "dtype": "float32", "global_shape": )" + shape +
                                         R"(}], "source": [)" + shards + "]}",
                                     SpecSides::kSource);
    if (!spec.ok()) return spec.status().message();
    const auto errors = Validate(spec.value().source);
    return errors.empty() ? ValidateJson(spec.value().source, true) : std::string(ErrorCodeName(errors[0].code));
  };
  const std::string cell =
      R"({"rank": 0, "key": "w", "shape": [3], "prepend_axis_num": 1, "rank_offsets": [[0, 0, 1], [1, 0, 1]]})";
  EXPECT_THAT(validated(cell, "[1, 3]"), HasSubstr(R"("offset":[0,0],"shape":[1,3],"flat":null,"replica_id":[0]})"));
  EXPECT_THAT(validated(cell, "[2, 3]"),
              HasSubstr("its rank offsets make the global shape [1, 3], but 'w' has [2, 3]"));
  EXPECT_EQ(validated(With(cell, "[1, 0, 1]", "[1, 1, 1]"), "[1, 3]"), "rank_offset");
  EXPECT_EQ(validated(With(cell, "[1, 0, 1]", "[0, 0, 1]"), "[1, 3]"), "axis_twice");
  EXPECT_EQ(validated(With(cell, "[1, 0, 1]", "[99999999999, 0, 1]"), "[1, 3]"), "axis");
  EXPECT_THAT(validated(With(cell, "\"shape\"", "\"offset\": [0], \"shape\""), "[1, 3]"),
              HasSubstr("both 'offset' and 'rank_offsets'"));
}

TEST(PlainSpec, TakesEveryRightFormItself) {
  const auto is_plain = [](std::string text) { return ReadPlainSpec(&text, SpecSides::kBoth).has_value(); };
  const std::string right = kColumnsToRows;
  EXPECT_TRUE(is_plain(right));
  EXPECT_TRUE(is_plain(kRenamed));
  EXPECT_TRUE(is_plain(With(right, "[3, 12]", "null")));
  EXPECT_TRUE(is_plain(With(right, "\"offset\": [0, 3]", R"("rank_offsets": [[1, 1, 2]], "prepend_axis_num": 0)")));
  EXPECT_TRUE(is_plain(R"({"target": [], "source": [], "tensors": []})"));
}

TEST(PlainSpec, LeavesTheRestToTheReaderThatSaysWhatIsWrong) {
  const auto is_plain = [](std::string text) { return ReadPlainSpec(&text, SpecSides::kBoth).has_value(); };
  const std::string right = kColumnsToRows;
  EXPECT_FALSE(is_plain(""));
  EXPECT_FALSE(is_plain("[]"));
  EXPECT_FALSE(is_plain(right + "{}"));
  EXPECT_FALSE(is_plain(With(right, "\"source\": [", "\"source\": [0, ")));
  EXPECT_FALSE(is_plain(With(right, "\"rank\": 1", "\"rank\": 1.0")));
  EXPECT_FALSE(is_plain(With(right, "\"rank\": 1", "\"rank\": 1, \"rank\": 1")));
  EXPECT_FALSE(is_plain(With(right, "\"rank\": 1", "\"rank\": 1, \"ranks\": 1")));
  EXPECT_FALSE(is_plain(With(right, "\"offset\": [0, 3], ", "")));
  EXPECT_FALSE(is_plain(With(right, "\"offset\": [0, 3]", R"("offset": [0, 3], "rank_offsets": [[1, 1, 2]])")));
  EXPECT_FALSE(is_plain(With(right, "\"offset\": [0, 3]", R"("offset": [0, 3], "prepend_axis_num": 0)")));
  EXPECT_FALSE(is_plain(With(right, "[0, 0]}", "[0, 0,]}")));
  EXPECT_FALSE(is_plain(With(right, "\"hosts\"", "\"guests\"")));
}

std::variant<plan::Assignment, std::string> Distributed(const std::string& text) {
  const auto document = JsonDocument::Parse(text);
  if (!document.ok()) return document.status().message();
  const auto spec = ReadDistributeSpec(document->Root());
  if (!spec.ok()) return spec.status().message();
  const auto made = Distribute(spec.value().shards, spec.value().ranks, plan::DistributionPolicy::kMegatron);
  if (!made.ok()) return made.error().message;
  EXPECT_THAT(DistributeTable(spec.value(), *made), HasSubstr("shard"));
  return *made;
}

constexpr const char* kShards = R"({"ranks": 2, "shards": [
  {"key": "a", "offset": [0], "flat": null, "bytes": 100, "holders": [0, 1], "cross_group": false},
  {"key": "b", "offset": [0], "flat": [0, 4], "bytes": 400, "holders": [1, 0]}]})";

TEST(DistributeSpec, AssignsInTheOrderOfTheList) {
  const auto made = std::get<plan::Assignment>(Distributed(kShards));
  EXPECT_EQ(DistributeJson(made), R"({"ok":true,"assignment":[1,0],"load":[400,100]})");
}

TEST(DistributeSpec, RefusesWhatIsNoList) {
  const auto problem = [](const std::string& from, const std::string& to) {
    return std::get<std::string>(Distributed(With(kShards, from, to)));
  };
  EXPECT_EQ(problem("\"ranks\": 2", "\"ranks\": 100000000000"),
            "/ranks: is 100000000000, but must be from 1 to 1048576");
  EXPECT_EQ(problem("[1, 0]", "[1, 4294967296]"), "/shards/1/holders: has the rank 4294967296, which is none");
  EXPECT_THAT(problem("[1, 0]", "[1, 2]"), HasSubstr("2"));
  EXPECT_THAT(problem("[1, 0]", "[]"), HasSubstr("'b'"));
  EXPECT_THAT(problem("400", "-1"), HasSubstr("-1"));
  EXPECT_EQ(problem("[0, 4]", "[0]"), "/shards/1/flat: must be [start, stop]");
}

}  // namespace
}  // namespace kintsugi::reshard
