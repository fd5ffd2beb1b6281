#include "replica/save/names.h"

#include <gtest/gtest.h>

#include <set>

namespace kintsugi::checkpoint {
namespace {

TEST(Names, AStepAndItsFolderAreOneToOne) {
  for (uint64_t step : {0ull, 12ull, 9999999999ull, 10000000000ull, 18446744073709551615ull})
    EXPECT_EQ(StepOfFolder(FolderName(Step(step))), Step(step));
  EXPECT_EQ(FolderName(Step(12)), "step_0000000012");
  for (const char* name :
       {"step_12", "step_00000000012", "step_", "step_000000001x", "step_-000000012", "step_0000000012 ",
        "Step_0000000012", "step_0000000012.tmp-g1.job-a", "step_99999999999999999999", ""})
    EXPECT_EQ(StepOfFolder(name), std::nullopt) << name;
}

TEST(Names, AnUnfinishedFolderTellsStepAndGeneration) {
  const std::string name = UnfinishedFolderName(Step(12), Generation(7), "job-a");
  EXPECT_EQ(name, "step_0000000012.tmp-g7.job-a");
  const auto unfinished = UnfinishedOfFolder(name);
  ASSERT_TRUE(unfinished);
  EXPECT_EQ(unfinished->step, Step(12));
  EXPECT_EQ(unfinished->generation, Generation(7));
  EXPECT_EQ(unfinished->job_tag, "job-a");
  for (const char* other : {"step_0000000012", "step_0000000012.tmp-g", "step_0000000012.tmp-g7",
                            "step_0000000012.tmp-g7.", "step_12.tmp-g7.job-a", "x.tmp-g7"})
    EXPECT_FALSE(UnfinishedOfFolder(other)) << other;
}

TEST(Names, JobsAreToldApartInNamesThatFilesMayHave) {
  EXPECT_EQ(TagOfJob("job-4711"), "job-4711");
  std::set<std::string> tags;
  for (const std::string& job :
       {std::string("10.0.0.1:29400"), std::string("10_0_0_1_29400"), std::string("10/0.0.1:29400"), std::string(),
        std::string("\xff\n"), std::string(60, 'x'), std::string(61, 'x'), std::string(500, 'x')}) {
    const std::string tag = TagOfJob(job);
    EXPECT_TRUE(IsPlainName(tag) || tag.front() == '-') << tag;
    EXPECT_TRUE(tags.insert(tag).second) << tag;
    const auto unfinished = UnfinishedOfFolder(UnfinishedFolderName(Step(1), Generation(2), job));
    ASSERT_TRUE(unfinished) << tag;
    EXPECT_EQ(unfinished->job_tag, tag);
  }
}

TEST(Names, ShardFilesAreToldApartHoweverManyRanksHoldThem) {
  EXPECT_EQ(ShardName(0, {Rank(0), Rank(4)}), "layout0.shard-0-4.bin");
  std::vector<Rank> many;
  for (int rank = 0; rank < 100000; ++rank) many.emplace_back(rank);
  std::set<std::string> names = {ShardName(0, many), ShardName(1, many)};
  many.back() = Rank(100001);
  names.insert(ShardName(0, many));
  EXPECT_EQ(names.size(), 3u);
  for (const std::string& name : names) EXPECT_TRUE(IsPlainName(name)) << name;
}

TEST(Names, APlainNameStaysInItsFolder) {
  EXPECT_TRUE(IsPlainName(PartName(Rank(3))));
  EXPECT_TRUE(IsPlainName(ObjectsName(Rank(3))));
  for (const std::string& bad :
       {std::string(""), std::string("."), std::string(".."), std::string("../x"), std::string("a/b"),
        std::string("a\\b"), std::string("a b"), std::string("a\0", 2), std::string(201, 'a')})
    EXPECT_FALSE(IsPlainName(bad)) << bad;
}

TEST(Names, PathsSplitWhereTheyWereJoined) {
  EXPECT_EQ(Join("a", "b"), "a/b");
  EXPECT_EQ(Join("a/", "b"), "a/b");
  EXPECT_EQ(BaseName("/x/step_0000000001//"), "step_0000000001");
  EXPECT_EQ(ParentOf("/x/y/"), "/x");
  EXPECT_EQ(ParentOf("/x"), "/");
  EXPECT_EQ(ParentOf("x"), ".");
}

}  // namespace
}  // namespace kintsugi::checkpoint
