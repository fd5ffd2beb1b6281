// `kintsugi aoa explain`, to the letter.
#include "tools/reshard/aoa_spec.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace kintsugi::reshard {
namespace {

using Json = nlohmann::json;

constexpr const char* kSpec = R"({
  "statements": ["s0, s1 -> s, axis = 1", "s -> s, dtype = 'float64'", "s^T -> d", "d -> d0, d1, axis = 1", "_ -> n"],
  "reverse": false,
  "source": {"s0": {"shape": [2, 2], "dtype": "float32", "shards": [{"offset": [0, 0], "shape": [2, 2]}]},
             "s1": {"shape": [2, 2], "dtype": "float32"}},
  "destination": {"d0": {"shape": [4, 1], "dtype": "float64"}, "d1": {"shape": [4, 1], "dtype": "float64"},
                  "n": {"shape": [7], "dtype": "int8"}},
  "queries": [{"key": "d0", "box": [[2, 4], [0, 1]]}, {"key": "d1", "box": [[0, 4], [0, 1]], "dtype": "float64"},
              {"key": "n", "box": [[0, 7]]}]})";

Result<AoaAnswer, AnswerRefusal> Explained(std::string text, const std::string& from = "", const std::string& to = "") {
  if (const size_t at = text.find(from); !from.empty()) text.replace(at, from.size(), to);
  const auto document = JsonDocument::Parse(text);
  if (!document.ok()) return SpecRefusal("FILE", document.status());
  auto spec = ReadAoaSpec(document->Root());
  if (!spec.ok()) return SpecRefusal("FILE", spec.status());
  return AnswerAoa(std::move(*spec));
}

TEST(AoaExplain, AnswersTheWorkedExample) {
  const AoaAnswer answer = *Explained(kSpec);
  EXPECT_EQ(
      answer.ToJson(),
      R"({"ok":true,"outputs":{"d0":{"shape":[4,1],"dtype":"float64"},"d1":{"shape":[4,1],"dtype":"float64"},)"
      R"("n":{"shape":[7],"dtype":"int8"}},"queries":[)"
      R"({"key":"d0","pieces":[{"target_box":[[2,4],[0,1]],"source_key":"s1","source_box":[[0,1],[0,2]],"steps":["float64","[1, 0]"]}]},)"
      R"({"key":"d1","pieces":[{"target_box":[[0,2],[0,1]],"source_key":"s0","source_box":[[1,2],[0,2]],"steps":["float64","[1, 0]"]},)"
      R"({"target_box":[[2,4],[0,1]],"source_key":"s1","source_box":[[1,2],[0,2]],"steps":["float64","[1, 0]"]}]},)"
      R"({"key":"n","pieces":[]}],"added":["n"],"dropped":[],"unread":[]})");
  EXPECT_THAT(answer.ToTable(), testing::HasSubstr("float64, [1, 0]"));
}

TEST(AoaExplain, RefusesAProgramWithStatementColumnAndChain) {
  const auto refusal = Explained(kSpec, "s^T -> d\"", "s -> d^T\"").error();
  const Json error = Json::parse(refusal.ToJson())["error"];
  EXPECT_EQ(error["statement"], 3);
  EXPECT_EQ(error["column"], 6);
  EXPECT_TRUE(error["chain"].is_array());
  EXPECT_EQ(error["text"], "s -> d^T");
}

TEST(AoaExplain, RefusesAQuestionThatHasNoAnswer) {
  EXPECT_THAT(Explained(kSpec, "[[2, 4], [0, 1]]", "[[2, 5], [0, 1]]").error().message,
              testing::HasSubstr("does not lie in the shape [4, 1]"));
  EXPECT_EQ(Explained(kSpec, "[[2, 4], [0, 1]]", "[[4, 2], [0, 1]]").error().message,
            "FILE: /queries/0/box/0: must be [lo, hi] with 0 <= lo <= hi");
  EXPECT_EQ(Explained(kSpec, "\"int8\"", "\"int9\"").error().message,
            "FILE: /destination/n/dtype: is 'int9', which is no dtype; try float32 or bfloat16");
}

TEST(AoaExplain, RunsBackwards) {
  const AoaAnswer answer = *Explained(R"({"statements": ["a, b -> c, axis=0"], "reverse": true,
    "source": {"c": {"shape": [4], "dtype": "float32"}}, "destination": null, "queries": [{"key": "b", "box": [[0, 2]]}]})");
  EXPECT_THAT(answer.ToJson(), testing::HasSubstr(R"("source_key":"c","source_box":[[2,4]])"));
}

}  // namespace
}  // namespace kintsugi::reshard
