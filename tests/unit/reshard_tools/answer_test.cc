// Answers of `kintsugi reshard plan`, to the letter.
#include "tests/unit/reshard_tools/specs.h"

namespace kintsugi::reshard {
namespace {

TEST(ReshardAnswer, IsTheJsonOfTheCommand) {
  const ReshardAnswer answer = MustAnswer(kColumnsToRows);
  EXPECT_EQ(answer.ToJson(), R"({"ok":true,"moves":[
{"key":"w","source_key":"w","from_rank":0,"to_rank":0,"source_box":[[0,2],[0,3]],"target_box":[[0,2],[0,3]],"steps":[],"bytes":24},
{"key":"w","source_key":"w","from_rank":1,"to_rank":0,"source_box":[[0,2],[3,6]],"target_box":[[0,2],[3,6]],"steps":[],"bytes":24},
{"key":"w","source_key":"w","from_rank":1,"to_rank":1,"source_box":[[2,3],[3,6]],"target_box":[[2,3],[3,6]],"steps":[],"bytes":12},
{"key":"w","source_key":"w","from_rank":0,"to_rank":1,"source_box":[[3,4],[0,3]],"target_box":[[3,4],[0,3]],"steps":[],"bytes":12},
{"key":"w","source_key":"w","from_rank":1,"to_rank":1,"source_box":[[3,4],[3,6]],"target_box":[[3,4],[3,6]],"steps":[],"bytes":12}],
"bytes_total":84,"bytes_local":48,"unexpected":[],"unread":[],"checked":true})");
}

TEST(ReshardAnswer, KeepsToOneRank) {
  ReshardQuestion question;
  question.rank = 0;
  const ReshardAnswer answer = MustAnswer(kColumnsToRows, question);
  EXPECT_EQ(answer.moves.size(), 3u);
  for (const ListedMove& move : answer.moves) EXPECT_TRUE(move.from == 0 || move.to == 0);
}

TEST(ReshardAnswer, CarriesTheStepsOfAProgram) {
  const ReshardAnswer answer = MustAnswer(kRenamed, Renamed());
  const Json json = Json::parse(answer.ToJson());
  ASSERT_EQ(json["moves"].size(), 4u);
  EXPECT_EQ(
      json["moves"][0].dump(),
      R"({"bytes":16,"from_rank":0,"key":"d","source_box":[[0,2],[0,2]],"source_key":"s0","steps":["float64","[1, 0]"],"target_box":[[0,2],[0,2]],"to_rank":0})");
  EXPECT_EQ(json["bytes_total"], 64);
  EXPECT_EQ(json["bytes_moved"], 64);
  EXPECT_EQ(json["bytes_local"], 16);
  EXPECT_EQ(json["added"], Json({"n"}));
  EXPECT_EQ(json["dropped"], Json::array());
}

TEST(ReshardAnswer, RefusesWithCodeAndPlace) {
  const AnswerRefusal refusal =
      MustRefuse(With(kColumnsToRows, R"("offset": [0, 0], "shape": [4, 3])", R"("offset": [0, 0], "shape": [4, 2])"));
  EXPECT_EQ(refusal.code, "hole");
  EXPECT_EQ(
      refusal.ToJson(),
      "{\"ok\":false,\"error\":{\"code\":\"hole\",\"key\":\"w\",\"ranks\":[0],\"region\":[[0,2],[2,3]],\"message\":" +
          Json(refusal.message).dump() + "}}");
}

TEST(ReshardAnswer, RefusesAProgramWithItsStatement) {
  const Json error =
      Json::parse(MustRefuse(kRenamed, Renamed({"s0, s1 -> s, axis=1", "s -> d, axes=3", "_ -> n"})).ToJson())["error"];
  EXPECT_EQ(error["code"], "program");
  EXPECT_EQ(error["statement"], 2);
  EXPECT_GT(error["column"], 0);
  EXPECT_TRUE(error["chain"].is_array());
  const AnswerRefusal cast = MustRefuse(kRenamed, Renamed({"s0, s1 -> s, axis=1", "s^T -> d", "_ -> n"}));
  EXPECT_EQ(cast.code, "program");
  EXPECT_EQ(cast.key, "d");
  EXPECT_THAT(cast.message, testing::HasSubstr("float64"));
}

TEST(ReshardAnswer, IsATableForPeople) {
  const std::string table = MustAnswer(kRenamed, Renamed()).ToTable();
  EXPECT_THAT(table, testing::HasSubstr("written once"));
  EXPECT_THAT(table, testing::HasSubstr("Added by the program, nothing is written: n"));
  EXPECT_THAT(table, testing::HasSubstr("float64, [1, 0]"));
}

TEST(ReshardAnswer, JudgesKeysOnOneSideByTheStrictMode) {
  const std::string spec = R"({
    "source_tensors": [{"key": "a", "dtype": "bf16", "global_shape": [2]}, {"key": "x", "dtype": "fp32", "global_shape": [2]}],
    "target_tensors": [{"key": "a", "dtype": "bfloat16", "global_shape": [2]}, {"key": "y", "dtype": "int8", "global_shape": [2]}],
    "source": [{"rank": 0, "key": "a", "offset": [0], "shape": [2]}, {"rank": 0, "key": "x", "offset": [0], "shape": [2]}],
    "target": [{"rank": 0, "key": "a", "offset": [0], "shape": [2]}, {"rank": 0, "key": "y", "offset": [0], "shape": [2]}]})";
  EXPECT_EQ(MustRefuse(spec).code, "unexpected");
  ReshardQuestion question;
  question.strict = layout::StrictHandling::kIgnoreAll;
  const ReshardAnswer answer = MustAnswer(spec, question);
  EXPECT_EQ(answer.unexpected, std::vector<std::string>{"y"});
  EXPECT_EQ(answer.unread, std::vector<std::string>{"x"});
  EXPECT_EQ(answer.bytes_total, 4);
  question.statements = {"a -> a"};
  EXPECT_EQ(MustAnswer(spec, question).unexpected, std::vector<std::string>{"y"});
  question.strict = layout::StrictHandling::kRaiseAll;
  const std::string without = With(spec, R"(, {"rank": 0, "key": "y", "offset": [0], "shape": [2]})", "");
  EXPECT_EQ(MustRefuse(without, question).code, "missing");
}

TEST(ReshardAnswer, RefusesARankOutsideBothLayouts) {
  ReshardQuestion question;
  question.rank = 9;
  EXPECT_THAT(MustRefuse(kColumnsToRows, question).message, testing::HasSubstr("ranks are 0 to 1"));
}

// Whether shards come before their tensors or behind them, they are the same layout.
TEST(ReshardAnswer, TheOrderOfMembersDoesNotMatter) {
  const Json document = Json::parse(kColumnsToRows);  // in the order of names: the tensors last
  EXPECT_EQ(MustAnswer(document.dump()).ToJson(), MustAnswer(kColumnsToRows).ToJson());
}

}  // namespace
}  // namespace kintsugi::reshard
