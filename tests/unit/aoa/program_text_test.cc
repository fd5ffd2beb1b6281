// A program's file, in each of its forms.
#include "replica/aoa/program_text.h"

#include <gtest/gtest.h>

namespace kintsugi::aoa {
namespace {

TEST(ReadStatements, TakesLinesOrAJsonList) {
  EXPECT_EQ(*ReadStatements("a -> b\nc -> d\n"), std::vector<std::string>{"a -> b\nc -> d\n"});
  EXPECT_EQ(*ReadStatements(" [\"a -> b\", \"c -> d\"]"), (std::vector<std::string>{"a -> b", "c -> d"}));
  EXPECT_EQ(*ReadStatements(R"({"aoa_statements": ["a -> b"]})"), std::vector<std::string>{"a -> b"});
  EXPECT_EQ(ReadStatements("[\"a -> b\", 3]", {.place = "p.json"}).status().message(),
            "p.json: /1: is 3, but must be a text");
  EXPECT_FALSE(ReadStatements("{\"statements\": []}").ok());
  EXPECT_EQ(ReadStatements("[\"a -> b\", 3]").status().message(), "/1: is 3, but must be a text");
}

}  // namespace
}  // namespace kintsugi::aoa
