#include "callbacks/state/aliases.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/callbacks/tensors.h"

namespace kintsugi {
namespace {

TEST(Aliases, AreFurtherNamesOfRegisteredTensors) {
  std::vector<float> memory(4);
  StateRegistry registry;
  ASSERT_TRUE(registry.AddTensor(Vector("emb", &memory[0], 4)).ok());
  Aliases aliases;
  ASSERT_TRUE(aliases.Add("head", "emb", registry).ok());
  ASSERT_TRUE(aliases.Add("first", "emb", registry).ok());
  EXPECT_EQ(aliases.all(), (std::map<std::string, std::string>{{"first", "emb"}, {"head", "emb"}}));
  EXPECT_TRUE(aliases.CheckFree("emb").ok());
}

TEST(Aliases, RefuseWhatWouldMakeANameMeanTwoThings) {
  std::vector<float> memory(8);
  StateRegistry registry;
  ASSERT_TRUE(registry.AddTensor(Vector("emb", &memory[0], 4)).ok());
  ASSERT_TRUE(registry.AddTensor(Vector("own", &memory[4], 4)).ok());
  ASSERT_TRUE(registry.AddObject({"rng", ObjectKind::kDerived}).ok());
  Aliases aliases;
  ASSERT_TRUE(aliases.Add("head", "emb", registry).ok());
  const auto refused = [&](const Status& status, StatusCode code, const char* a, const char* b) {
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_TRUE(Names(status.message(), a, b)) << status.ToString();
  };
  refused(aliases.Add("head", "own", registry), StatusCode::kInvalidArgument, "'own'", "'emb' already");
  refused(aliases.Add("own", "emb", registry), StatusCode::kInvalidArgument, "'own'", "registered under that name");
  refused(aliases.Add("rng", "emb", registry), StatusCode::kInvalidArgument, "'rng'", "registered under that name");
  refused(aliases.Add("x", "gone", registry), StatusCode::kInvalidArgument, "'gone'", "no registered tensor");
  refused(aliases.Add("x", "head", registry), StatusCode::kInvalidArgument, "'head'", "its own key");
  refused(aliases.Add("", "emb", registry), StatusCode::kInvalidArgument, "alias", "empty");
  refused(aliases.CheckFree("head"), StatusCode::kInvalidArgument, "'head'", "alias of 'emb'");
  registry.Seal();
  refused(aliases.Add("late", "emb", registry), StatusCode::kFailedPrecondition, "'late'", "before Agent::Run");
  EXPECT_EQ(aliases.all().size(), 1u);
}

}  // namespace
}  // namespace kintsugi
