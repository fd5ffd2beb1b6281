// A document's mistakes, each with its place.
#include "runtime/base/json.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "runtime/base/check.h"

namespace kintsugi {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Problem(std::string_view text, JsonSource source = {}) {
  const auto document = JsonDocument::Parse(text, std::move(source));
  return document.ok() ? "none" : document.status().message();
}

JsonDocument Parsed(std::string_view text, JsonSource source = {}) {
  auto document = JsonDocument::Parse(text, std::move(source));
  KINTSUGI_CHECK(document.ok(), document.status().message());
  return std::move(document).value();
}

TEST(JsonDocument, SaysWhereItIsNoJson) {
  EXPECT_EQ(Problem("{\"a\": [1, 2]}"), "none");
  EXPECT_THAT(Problem("{\"a\": [1, 2}"), AllOf(HasSubstr("line 1, column 12"), Not(HasSubstr("exception"))));
  EXPECT_THAT(Problem("{\n\"a\": tru}"), HasSubstr("line 2, column"));
  EXPECT_THAT(Problem(""), HasSubstr("unexpected end of input"));
  EXPECT_THAT(Problem({}), HasSubstr("unexpected end of input")) << "a text at no address";
  EXPECT_THAT(Problem("\xff\xfe"), HasSubstr("not JSON"));
  EXPECT_EQ(Problem("\xEF\xBB\xBF{}"), "none") << "some editors put a byte order mark in front";
}

TEST(JsonDocument, IsWholeAndNothingElseOrIsRefused) {
  for (const std::string& good :
       {std::string("{}"), std::string(" { \"a\" : [ ] }\n"), std::string("5"), std::string("\"\""),
        std::string(R"({"a":"\u00e9\ud834\udd1e","b":18446744073709551615,"c":-9223372036854775808,"d":-0})")})
    EXPECT_EQ(Problem(good), "none") << good;
  for (const std::string& bad :
       {std::string("{"), std::string("{} {}"), std::string("{},"), std::string(R"({"a":1,})"),
        std::string(R"({"a":[1 2]})"), std::string(R"({"a":01})"), std::string(R"({"a":tru})"),
        std::string(R"({"a":1e400})"), std::string(R"({"a":NaN})"), std::string(R"({"a":"\ud834"})"),
        std::string(R"({"a":"\udd1e"})"), std::string("{\"a\":\"\xff\"}"), std::string("{\"a\":\"\n\"}"),
        std::string("{\"\xc0\x80\":1}"), std::string("{}\0", 3)}) {
    const auto document =
        JsonDocument::Parse(bad, {.place = "'f'", .code = StatusCode::kDataLoss, .remedy = "mend it"});
    EXPECT_EQ(document.status().code(), StatusCode::kDataLoss) << bad;
    EXPECT_THAT(document.status().message(), AllOf(HasSubstr("'f': not JSON: "), HasSubstr(": mend it"))) << bad;
  }
  EXPECT_EQ(Problem(R"({"a":18446744073709551616})"),
            "not JSON: the whole number 18446744073709551616 has more than 64 bits");
  EXPECT_THAT(Problem("[-9223372036854775809]"), HasSubstr("-9223372036854775809 has more than 64 bits"));
}

TEST(JsonDocument, RefusesAMemberThatIsThereTwice) {
  EXPECT_EQ(Problem(R"({"a": {"b": 1, "c": {"b": 2}, "b": 3}})"), "not JSON: the member 'b' is there twice");
  EXPECT_EQ(Problem(R"({"a": 1, "\u0061": 2})"), "not JSON: the member 'a' is there twice");
  EXPECT_EQ(Problem(R"([{"b": 1}, {"b": 2}])"), "none");
  EXPECT_EQ(Problem(R"({"": 1, "ab": 1, "ba": 1, "bb": 1, "aa": 1})"), "none");
  EXPECT_EQ(Problem("{\"\\u001b\": 1, \"\\u001b\": 2}"), "not JSON: the member '\\u001b' is there twice");
  // Wherever the two are, in objects of any size.
  for (int size : {2, 31, 32, 33, 34, 100})
    for (int first = 0; first < size; ++first)
      for (int second : {first, size - 1}) {
        std::string text = "{";
        for (int i = 0; i < size; ++i)
          text += (i ? ",\"" : "\"") + std::to_string(i == second ? first : i) + "\":0";
        ASSERT_EQ(Problem(text + "}") == "none", first == second) << text;
      }
}

TEST(JsonDocument, RefusesDeepNesting) {
  EXPECT_EQ(Problem(std::string(10, '[') + std::string(10, ']')), "none");
  EXPECT_EQ(Problem(std::string(16, '[') + "1" + std::string(16, ']')), "none");
  EXPECT_THAT(Problem(std::string(17, '[') + "1" + std::string(17, ']')), HasSubstr("more than 16 levels"));
  EXPECT_THAT(Problem(std::string(1000000, '[')), HasSubstr("more than 16 levels"));
  EXPECT_EQ(Problem("[[1]]", {.depth_max = 2}), "none");
  EXPECT_THAT(Problem("[[[1]]]", {.depth_max = 2}), HasSubstr("more than 2 levels"));
}

TEST(JsonDocument, NeedsItsTextNoLongerAndMayBeMoved) {
  std::string text = R"({"a": [{"b": "a text that is longer than a short one"}]})";
  std::optional<JsonDocument> first = Parsed(text);
  const JsonField root = first->Root();
  const JsonField b = *root.ListOf("a")->front().Get("b");
  text.assign(text.size(), 'x');
  const JsonDocument second = std::move(*first);
  first.reset();
  EXPECT_EQ(*b.Text(), "a text that is longer than a short one");
  EXPECT_EQ(b.Pointer(), "/a/0/b");
}

TEST(JsonField, NamesItsPlaceAsAPointer) {
  const JsonDocument document =
      Parsed(R"({"x": [[1, {"y": 2}], {}], "a/b": [{"c~": "x"}, 1.5, -3, 18446744073709551615, 9223372036854775807], "": 1,
                 "\u001b[2J": 2})");
  const JsonField root = document.Root();
  const JsonField list_field = *root.Get("a/b");
  const std::vector<JsonField> list = *list_field.List();
  EXPECT_EQ(root.Pointer(), "the document");
  EXPECT_EQ(list[0].Get("c~")->Pointer(), "/a~1b/0/c~0");
  EXPECT_EQ(root.Get("")->Pointer(), "/");
  EXPECT_EQ(root.Get("\x1b[2J")->Pointer(), "/\\u001b[2J");
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
  EXPECT_EQ(list[1].CheckMembers({}).message(), "/a~1b/1: is 1.5, but must be an object");
  EXPECT_EQ(root.Text().status().message(), "the document: is an object, but must be a text");
  EXPECT_EQ(list[2].Bool().status().message(), "/a~1b/2: is -3, but must be true or false");
  EXPECT_EQ(list[0].Get("c~")->Text(0).status().message(), "/a~1b/0/c~0: is \"x\", but must be a text of at most 0 bytes");
  const JsonField inner = *root.ListOf("x")->front().List()->at(1).Get("y");
  EXPECT_EQ(inner.Texts().status().message(), "/x/0/1/y: is 2, but must be a list");
  EXPECT_EQ(root.ListOf("x")->at(1).Pointer(), "/x/1");
}

TEST(JsonField, ReadsMembersIntoVariablesOfTheirTypes) {
  const JsonDocument document =
      Parsed(R"({"rank": 3, "step": 18446744073709551615, "small": 256, "less": -1, "none": null, "real": 2,
                 "ranks": [0, 1, 4294967296], "texts": ["a", "b"]})",
             {.place = "f.json", .code = StatusCode::kDataLoss, .remedy = "use another"});
  const JsonField root = document.Root();
  Rank rank;
  Step step;
  std::optional<int64_t> none = 5;
  double real = 0;
  std::vector<std::string> texts;
  ASSERT_TRUE(root.Read("rank", &rank, "step", &step, "none", &none, "real", &real, "texts", &texts).ok());
  EXPECT_EQ(rank, Rank(3));
  EXPECT_EQ(step, Step(UINT64_MAX));
  EXPECT_FALSE(none);
  EXPECT_EQ(real, 2.0);
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "b"}));
  const auto problem = [&](auto value, const char* name) { return root.Read("rank", &rank, name, &value).message(); };
  EXPECT_EQ(problem(uint8_t{}, "small"),
            "f.json: /small: is 256, but must be a whole number from 0 to 255: use another");
  EXPECT_THAT(problem(uint64_t{}, "less"), HasSubstr("/less: is -1, but must be a whole number from 0 to"));
  EXPECT_THAT(problem(std::vector<Rank>{}, "ranks"), HasSubstr("/ranks/2: is 4294967296, but must be from"));
  EXPECT_THAT(problem(std::string{}, "rank"), HasSubstr("/rank: is 3, but must be a text"));
  EXPECT_THAT(problem(bool{}, "none"), HasSubstr("/none: is null, but must be true or false"));
  EXPECT_THAT(problem(Rank(), "absent"), HasSubstr("the document: lacks the member 'absent'"));
  EXPECT_EQ(root.Read("absent", &rank).code(), StatusCode::kDataLoss);
}

TEST(JsonField, ReadsNoMoreThanAVariableTakes) {
  const auto problem = [](const std::string& value, auto read) {
    const JsonDocument document = Parsed("{\"a\":" + value + "}");
    return document.Root().Read("a", read).message();
  };
  uint64_t number = 0;
  Rank rank;
  std::string_view text;
  std::vector<int64_t> numbers;
  EXPECT_EQ(problem("9", AtMost(&number, 9)), "");
  for (const char* value : {"10", "-1", "1.0", "1e0", "true", "\"1\"", "null", "18446744073709551615"})
    EXPECT_EQ(problem(value, AtMost(&number, 9)),
              "/a: is " + std::string(value == std::string("1e0") ? "1.0" : value) +
                  ", but must be a whole number from 0 to 9");
  EXPECT_EQ(problem("[1]", AtMost(&number, 9)), "/a: is a list of 1, but must be a whole number from 0 to 9");
  EXPECT_EQ(problem("7", AtMost(&rank, 7)), "");
  EXPECT_EQ(problem("8", AtMost(&rank, 7)), "/a: is 8, but must be a whole number from 0 to 7");
  EXPECT_THAT(problem("2147483648", AtMost(&rank, UINT64_MAX)), HasSubstr("from 0 to 2147483647"));
  EXPECT_EQ(problem(R"("\u20ac")", AtMost(&text, 3)), "") << "three bytes";
  EXPECT_EQ(problem(R"("four")", AtMost(&text, 3)), "/a: is \"four\", but must be a text of at most 3 bytes");
  EXPECT_EQ(problem("[0,9223372036854775807]", AtMost(&numbers, 2)), "");
  EXPECT_EQ(numbers, (std::vector<int64_t>{0, INT64_MAX}));
  EXPECT_EQ(problem("[1,2,3]", AtMost(&numbers, 2)), "/a: has 3 entries, but may have 2");
  EXPECT_EQ(problem("1", AtMost(&numbers, 2)), "/a: is 1, but must be a list");
  for (const char* value : {"-1", "9223372036854775808", "1.5", "[1]", "null"})
    EXPECT_THAT(problem("[0," + std::string(value) + "]", AtMost(&numbers, 2)), HasSubstr("/a/1: is ")) << value;
}

TEST(JsonField, LeavesAVariableWhereAMemberMayBeMissing) {
  const JsonDocument document = Parsed(R"({"null": null, "flag": true})");
  const JsonField root = document.Root();
  bool flag = false;
  EXPECT_TRUE(root.ReadIfAny("null", &flag).ok());
  EXPECT_TRUE(root.ReadIfAny("absent", &flag).ok());
  EXPECT_FALSE(flag);
  EXPECT_TRUE(root.ReadIfAny("flag", &flag).ok());
  EXPECT_TRUE(flag);
  int number = 0;
  EXPECT_EQ(root.ReadIfAny("flag", &number).message(), "/flag: is true, but must be a whole number of 63 bits");
}

TEST(JsonField, IsCopiedAsTheOtherParserReadsIt) {
  for (const char* text : {"null", "[]", "{}", R"({"b": [1, -1, 1.5, 1e30, -0, -0.0, true, null, "x\u0000y"], "a": {"": {}}})",
                           "[18446744073709551615, -9223372036854775808]"}) {
    const nlohmann::json copy = Parsed(text).Root().Copy();
    EXPECT_EQ(copy, nlohmann::json::parse(text));
    EXPECT_EQ(copy.dump(), nlohmann::json::parse(text).dump());
  }
}

}  // namespace
}  // namespace kintsugi
