// A document's mistakes, each with its place.
#include "runtime/base/json.h"

#include <gmock/gmock.h>

namespace kintsugi {
namespace {

using Json = nlohmann::json;

std::string Problem(const std::string& text) {
  const auto document = ParseJson(text);
  return document.ok() ? "none" : document.status().message();
}

TEST(ParseJson, SaysWhereItIsNoJson) {
  EXPECT_EQ(Problem("{\"a\": [1, 2]}"), "none");
  EXPECT_THAT(Problem("{\"a\": [1, 2}"),
              testing::AllOf(testing::HasSubstr("line 1, column 12"), testing::Not(testing::HasSubstr("exception"))));
  EXPECT_THAT(Problem(""), testing::HasSubstr("unexpected end of input"));
  EXPECT_THAT(Problem("\xff\xfe"), testing::HasSubstr("not JSON"));
}

TEST(ParseJson, RefusesAMemberThatIsThereTwice) {
  EXPECT_EQ(Problem(R"({"a": {"b": 1, "c": {"b": 2}, "b": 3}})"), "not JSON: the member 'b' is there twice");
  EXPECT_EQ(Problem(R"([{"b": 1}, {"b": 2}])"), "none");
}

TEST(ParseJson, RefusesDeepNesting) {
  EXPECT_EQ(Problem(std::string(10, '[') + std::string(10, ']')), "none");
  EXPECT_THAT(Problem(std::string(1000000, '[')), testing::HasSubstr("more than 16 levels"));
}

TEST(JsonField, NamesItsPlaceAsAPointer) {
  const Json document = Json::parse(R"({"a/b": [{"c~": "x"}, 1.5, -3, 18446744073709551615, 9223372036854775807]})");
  const JsonField root(document);
  const JsonField list_field = *root.Get("a/b");
  const std::vector<JsonField> list = *list_field.List();
  EXPECT_EQ(root.Pointer(), "the document");
  EXPECT_EQ(list[0].Get("c~")->Pointer(), "/a~1b/0/c~0");
  EXPECT_EQ(list[0].Get("c~")->Integer().status().message(),
            "/a~1b/0/c~0: is \"x\", but must be a whole number of 63 bits");
  EXPECT_EQ(list[1].Integer().status().message(), "/a~1b/1: is 1.5, but must be a whole number of 63 bits");
  EXPECT_EQ(list[2].Integer(0, 9).status().message(), "/a~1b/2: is -3, but must be from 0 to 9");
  EXPECT_FALSE(list[3].Integer().ok());
  EXPECT_EQ(*list[4].Integer(), INT64_MAX);
  EXPECT_EQ(list[0].Get("d").status().message(), "/a~1b/0: lacks the member 'd'");
  EXPECT_EQ(list[0].Integers(3).status().message(), "/a~1b/0: is an object, but must be a list");
  EXPECT_EQ(list_field.Integers(3).status().message(), "/a~1b: has 5 entries, but may have 3");
  EXPECT_EQ(list[0].CheckMembers({"x", "y"}).message(), "/a~1b/0: has the unknown member 'c~'; known are x, y");
  EXPECT_EQ(root.Text().status().message(), "the document: is an object, but must be a text");
  EXPECT_EQ(list[2].Bool().status().message(), "/a~1b/2: is -3, but must be true or false");
}

TEST(JsonField, ReadsMembersIntoVariablesOfTheirTypes) {
  const Json document = Json::parse(
      R"({"rank": 3, "step": 18446744073709551615, "small": 256, "less": -1, "none": null, "real": 2,
          "ranks": [0, 1, 4294967296]})");
  const JsonSource source{.place = "f.json", .code = StatusCode::kDataLoss, .remedy = "use another"};
  const JsonField root(document, source);
  Rank rank;
  Step step;
  std::optional<int64_t> none = 5;
  double real = 0;
  ASSERT_TRUE(root.Read("rank", &rank, "step", &step, "none", &none, "real", &real).ok());
  EXPECT_EQ(rank, Rank(3));
  EXPECT_EQ(step, Step(UINT64_MAX));
  EXPECT_FALSE(none);
  EXPECT_EQ(real, 2.0);
  const auto problem = [&](auto value, const char* name) { return root.Read("rank", &rank, name, &value).message(); };
  EXPECT_EQ(problem(uint8_t{}, "small"),
            "f.json: /small: is 256, but must be a whole number from 0 to 255: use another");
  EXPECT_THAT(problem(uint64_t{}, "less"), testing::HasSubstr("/less: is -1, but must be a whole number from 0 to"));
  EXPECT_THAT(problem(std::vector<Rank>{}, "ranks"), testing::HasSubstr("/ranks/2: is 4294967296, but must be from"));
  EXPECT_THAT(problem(std::string{}, "rank"), testing::HasSubstr("/rank: is 3, but must be a text"));
  EXPECT_THAT(problem(bool{}, "none"), testing::HasSubstr("/none: is null, but must be true or false"));
  EXPECT_THAT(problem(Rank(), "absent"), testing::HasSubstr("the document: lacks the member 'absent'"));
  EXPECT_EQ(root.Read("absent", &rank).code(), StatusCode::kDataLoss);
}

TEST(JsonField, LeavesAVariableWhereAMemberMayBeMissing) {
  const Json document = Json::parse(R"({"null": null, "flag": true})");
  const JsonField root(document);
  bool flag = false;
  EXPECT_TRUE(root.ReadIfAny("null", &flag).ok());
  EXPECT_TRUE(root.ReadIfAny("absent", &flag).ok());
  EXPECT_FALSE(flag);
  EXPECT_TRUE(root.ReadIfAny("flag", &flag).ok());
  EXPECT_TRUE(flag);
  int number = 0;
  EXPECT_EQ(root.ReadIfAny("flag", &number).message(), "/flag: is true, but must be a whole number of 63 bits");
}

}  // namespace
}  // namespace kintsugi
