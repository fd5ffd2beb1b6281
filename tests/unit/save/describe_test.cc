#include "replica/save/describe.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

using Json = nlohmann::json;

class Describe : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world_.Save(10, 1).ok());
    ASSERT_TRUE(world_.Save(20, 1).ok());
    ASSERT_TRUE(world_.Write(0, 30, 1).ok());
  }
  Json Of(const std::string& path, bool verify = false) {
    const auto text = DescribeCheckpoint(path, verify, files_);
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    return text.ok() ? Json::parse(*text) : Json();
  }
  MemoryFileSystem files_;
  World world_{"root", files_};
};

TEST_F(Describe, AFolderShowsWhoHoldsWhat) {
  const Json json = Of("root/step_0000000020", true);
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["verified"], true);
  EXPECT_TRUE(json["problem"].is_null());
  EXPECT_EQ(json["step"], 20);
  EXPECT_EQ(json["job"], "job-a");
  ASSERT_EQ(json["parts"].size(), 2u);
  const Json& shard = json["parts"][1]["shards"][0];
  EXPECT_EQ(shard["holders"], (std::vector<int>{1, 3}));
  EXPECT_EQ(shard["tensors"][2]["key"], "optimizer.master");
  EXPECT_EQ(shard["tensors"][2]["flattened_range"], (std::vector<int>{32, 64}));
  EXPECT_EQ(json["parts"][1]["objects"][1]["rank"], 3);
}

TEST_F(Describe, ARootShowsWhatThereIsAndWhatIsUnfinished) {
  const Json json = Of("root");
  EXPECT_EQ(json["latest"], "step_0000000020");
  EXPECT_EQ(json["newest_complete"], "step_0000000020");
  ASSERT_EQ(json["checkpoints"].size(), 2u);
  EXPECT_EQ(json["checkpoints"][1]["step"], 10);
  EXPECT_EQ(json["unfinished"], (std::vector<std::string>{"step_0000000030.tmp-g1.job-a"}));
}

TEST_F(Describe, DamageIsPartOfTheAnswer) {
  files_.Content("root/step_0000000020/layout0.shard-1-3.bin")[70] ^= 1;
  const Json flipped = Of("root/step_0000000020", true);
  EXPECT_EQ(flipped["complete"], true);
  EXPECT_EQ(flipped["verified"], false);
  EXPECT_TRUE(Names(flipped["problem"].get<std::string>(), "optimizer.master", "block 0"));

  ASSERT_TRUE(files_.Remove("root/step_0000000020/part-00001.json").ok());
  const Json torn = Of("root/step_0000000020");
  EXPECT_EQ(torn["complete"], false);
  EXPECT_TRUE(torn["parts"][1].contains("problem"));

  files_.Content("root/step_0000000020/manifest.json")[20] ^= 1;
  EXPECT_EQ(Of("root/step_0000000020")["complete"], false);
  EXPECT_EQ(Of("root")["newest_complete"], "step_0000000010");
  EXPECT_EQ(Of("root/step_0000000030.tmp-g1.job-a")["complete"], false);
}

TEST_F(Describe, AnAbsentPathIsAnError) {
  EXPECT_EQ(DescribeCheckpoint("elsewhere", false, files_).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kintsugi::checkpoint
