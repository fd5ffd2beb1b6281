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

TEST(ProgramReference, EndsWithValuesOrIsAFilesName) {
  const ProgramReference shipped = ParseReference("@llama:reverse,num_heads=32");
  EXPECT_TRUE(shipped.ships && shipped.reverse);
  EXPECT_EQ(shipped.file, "llama");
  EXPECT_EQ(shipped.values, (std::map<std::string, std::string>{{"num_heads", "32"}}));
  EXPECT_EQ(ParseReference("a/b.aoa:n=1").file, "a/b.aoa");
  for (const std::string file : {"a/b.aoa", "a:b.aoa", "a:reversed", "a:n=1,", "a:", "-", "a:n=x y"}) {
    const ProgramReference reference = ParseReference(file);
    EXPECT_EQ(reference.file, file);
    EXPECT_TRUE(!reference.ships && !reference.reverse && reference.values.empty());
  }
}

Result<ProgramText> Read(const std::string& reference, const std::string& text) {
  return ReadProgram(reference, [&](const std::string&) -> Result<std::string> { return text; });
}

TEST(ReadProgram, FillsInValues) {
  const auto program = Read("f:n=3,reverse", "a -> b, axis=${n}, x=${m=7}\n");
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_EQ(program->statements, std::vector<std::string>{"a -> b, axis=3, x=7\n"});
  EXPECT_TRUE(program->reverse);
  EXPECT_EQ(Read("f", "a -> ${n}").status().message(), "'f' needs a value: write 'f:n=...'");
  EXPECT_EQ(Read("f:n=1,k=2", "a -> ${n}").status().message(), "'f' asks for no value 'k'");
  for (const char* broken : {"a -> ${n", "a -> ${}", "a -> ${a b}"})
    EXPECT_NE(Read("f", broken).status().message().find("must be followed by a name and '}'"), std::string::npos);
}

TEST(CheckStatements, TakesWordsOfThoseWhoRunThem) {
  const UserMacros none, own = {{"mine", [](const MacroCall&) { return std::vector<std::string>(); }}};
  for (const char* text : {"w -> a, b, axis=1, mine", "w -> a, mine, axis=1", "w -> a, axis=1, fused_ffn, mine"}) {
    const bool twice = std::string(text).find("fused") != std::string::npos;
    EXPECT_EQ(CheckStatements({text}, &own).ok(), !twice) << text;
    EXPECT_EQ(CheckStatements({text}, nullptr).ok(), !twice) << text;
  }
  EXPECT_FALSE(CheckStatements({"w -> a, b, axis=1, mine"}, &none).ok());
  EXPECT_FALSE(CheckStatements({"w -> a, axis=1, mine, yours"}, nullptr).ok());
}

TEST(ReadProgram, KnowsWhatShips) {
  const UserMacros none;
  EXPECT_EQ(ShippedPrograms(), (std::vector<std::string>{"gpt", "llama", "qwen_moe"}));
  for (const std::string& name : ShippedPrograms()) {
    const auto program = Read("@" + name + ":num_heads=4" + (name == "gpt" ? "" : ",num_key_value_heads=2"), "");
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    EXPECT_TRUE(CheckStatements(program->statements, &none).ok());
    // They are meant to be read.
    const std::string& text = program->statements.front();
    size_t arrows = 0;
    for (size_t at = text.find("->"); at != std::string::npos; at = text.find("->", at + 2)) ++arrows;
    EXPECT_TRUE(program->statements.size() == 1 && arrows > 0 && arrows <= 20) << name << ": " << arrows;
  }
  EXPECT_EQ(Read("@lama", "").status().message(), "no program '@lama' ships; there are @gpt, @llama, @qwen_moe");
}

}  // namespace
}  // namespace kintsugi::aoa
