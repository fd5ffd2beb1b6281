// Specs that the tests of tools/reshard share, and short ways to ask.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/reshard/reshard_answer.h"

namespace kintsugi::reshard {

using Json = nlohmann::json;

inline constexpr const char* kColumnsToRows = R"({
  "tensors": [{"key": "w", "dtype": "float32", "global_shape": [4, 6]}],
  "source": [{"rank": 0, "key": "w", "offset": [0, 0], "shape": [4, 3]},
             {"rank": 1, "key": "w", "offset": [0, 3], "shape": [4, 3], "replica_id": [0, 0]}],
  "target": [{"rank": 0, "key": "w", "offset": [0, 0], "shape": [2, 6]},
             {"rank": 1, "key": "w", "offset": [2, 0], "shape": [2, 6], "flat": [3, 12], "replica_id": 0}],
  "hosts": [0, 0]})";

inline constexpr const char* kRenamed = R"({
  "source_tensors": [{"key": "s0", "dtype": "float32", "global_shape": [2, 2]},
                     {"key": "s1", "dtype": "float32", "global_shape": [2, 2]}],
  "target_tensors": [{"key": "d", "dtype": "float64", "global_shape": [4, 2]},
                     {"key": "n", "dtype": "float64", "global_shape": [4]}],
  "source": [{"rank": 0, "key": "s0", "offset": [0, 0], "shape": [2, 2]},
             {"rank": 1, "key": "s1", "offset": [0, 0], "shape": [2, 2]}],
  "target": [{"rank": 0, "key": "d", "offset": [0, 0], "shape": [4, 2]},
             {"rank": 2, "key": "d", "offset": [0, 0], "shape": [4, 2], "replica_id": 1},
             {"rank": 2, "key": "n", "offset": [0], "shape": [4]}]})";

inline const std::vector<std::string> kTranspose = {"s0, s1 -> s, axis=1\ns -> s, dtype='float64'", "s^T -> d",
                                                    "_ -> n"};

inline Result<ReshardAnswer, AnswerRefusal> Answer(const std::string& text, ReshardQuestion question = {}) {
  auto spec = ReadLayoutSpec(text, SpecSides::kBoth);
  if (!spec.ok()) return SpecRefusal("FILE", spec.status());
  question.spec = std::move(*spec);
  return AnswerReshard(std::move(question));
}

inline ReshardAnswer MustAnswer(const std::string& text, ReshardQuestion question = {}) {
  auto answer = Answer(text, std::move(question));
  if (answer.ok()) return std::move(answer).value();
  ADD_FAILURE() << answer.error().message;
  return {};
}

inline AnswerRefusal MustRefuse(const std::string& text, ReshardQuestion question = {}) {
  auto answer = Answer(text, std::move(question));
  if (!answer.ok()) return answer.error();
  ADD_FAILURE() << "nothing was refused: " << answer->ToJson();
  return {};
}

inline ReshardQuestion Renamed(std::vector<std::string> statements = kTranspose) {
  ReshardQuestion question;
  question.statements = std::move(statements);
  return question;
}

// `text` with the first `from` replaced.
inline std::string With(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace kintsugi::reshard
