// A document's mistakes, each with its place.
#include "tools/reshard/json_field.h"

#include <gmock/gmock.h>

namespace kintsugi::reshard {
namespace {

std::string Problem(const std::string& text) {
  const auto document = ParseJson(text);
  return document.ok() ? "none" : document.status().message();
}

TEST(ParseJson, SaysWhereItIsNoJson) {
  EXPECT_EQ(Problem("{\"a\": [1, 2]}"), "none");
  EXPECT_THAT(Problem("{\"a\": [1, 2}"),
              testing::AllOf(testing::HasSubstr("line 1, column 12"), testing::Not(testing::HasSubstr("exception"))));
  EXPECT_THAT(Problem(""), testing::HasSubstr("unexpected end of input"));
  EXPECT_THAT(Problem("\xff\xfe"), testing::HasSubstr("not a JSON spec"));
}

TEST(ParseJson, RefusesAMemberThatIsThereTwice) {
  EXPECT_EQ(Problem(R"({"a": {"b": 1, "c": {"b": 2}, "b": 3}})"), "not a JSON spec: the member 'b' is there twice");
  EXPECT_EQ(Problem(R"([{"b": 1}, {"b": 2}])"), "none");
}

TEST(ParseJson, RefusesDeepNesting) {
  EXPECT_EQ(Problem(std::string(10, '[') + std::string(10, ']')), "none");
  EXPECT_THAT(Problem(std::string(1000000, '[')), testing::HasSubstr("more than 16 levels"));
}

TEST(Field, NamesItsPlaceAsAPointer) {
  const Json document = Json::parse(R"({"a/b": [{"c~": "x"}, 1.5, -3, 18446744073709551615, 9223372036854775807]})");
  const Field root(document);
  const Field list_field = *root.Get("a/b");
  const std::vector<Field> list = *list_field.List();
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

}  // namespace
}  // namespace kintsugi::reshard
