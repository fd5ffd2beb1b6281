// Files beside the state: they go with the checkpoint, are proven with it, and never stand in its way.
#include "replica/save/side_files.h"

#include <gtest/gtest.h>

#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

constexpr char kFolder[] = "root/step_0000000012";

TEST(SideFiles, GoWithTheCheckpointAndEveryByteIsProven) {
  MemoryFileSystem files;
  World world("root", files);
  world.AddSideFiles();
  ASSERT_TRUE(world.Save(12, 1).ok());
  const auto info = Inspect(kFolder, files);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  ASSERT_EQ(info->manifest.side_files.size(), 2u);
  EXPECT_EQ(info->manifest.side_files[0].name, "config.json");
  EXPECT_EQ(info->manifest.side_files[1].extent.blocks.size(), 2u);
  EXPECT_EQ(files.Content(std::string(kFolder) + "/side.tokenizer.model"), files.Content("side/tokenizer.model"));
  EXPECT_TRUE(Verify(kFolder, files).ok());
  // As they were then.
  files.Content("side/config.json").assign(3, 'x');
  EXPECT_TRUE(Verify(kFolder, files).ok());
}

TEST(SideFiles, DamageIsFoundAndKeepsNobodyFromTheState) {
  for (const bool is_missing : {false, true}) {
    MemoryFileSystem files;
    World world("root", files);
    world.AddSideFiles();
    ASSERT_TRUE(world.Save(12, 1).ok());
    const std::string name = std::string(kFolder) + "/side.tokenizer.model";
    if (is_missing)
      ASSERT_TRUE(files.Remove(name).ok());
    else
      files.Content(name)[1 << 20] ^= 1;
    const Status verified = Verify(kFolder, files);
    EXPECT_FALSE(verified.ok());
    EXPECT_TRUE(Names(verified.message(), "side.tokenizer.model")) << verified.ToString();
    ASSERT_TRUE(world.LoadAll(kFolder).ok());
    EXPECT_TRUE(world.IsAt(12));
  }
}

TEST(SideFiles, WhatCannotBeReadIsToldAndLeftOut) {
  MemoryFileSystem files;
  World world("root", files);
  world.AddSideFiles();
  ASSERT_TRUE(files.MakeFolder("other").ok());
  ASSERT_TRUE(WriteSmallFile(files, "other/config.json", "{}").ok());
  ASSERT_TRUE(WriteSmallFile(files, "other/a name.json", "{}").ok());
  world.side_files.insert(world.side_files.end(),
                          {"side/absent.json", "other/config.json", "other/a name.json", "side"});
  world.SetTo(12);
  ASSERT_TRUE(world.Write(0, 12, 1).ok() && world.Write(1, 12, 1).ok());
  const auto published = world.PublishStep(12, 1);
  ASSERT_TRUE(published.ok()) << published.status().ToString();
  EXPECT_EQ(published->info.manifest.side_files.size(), 2u);
  ASSERT_EQ(published->left_out.size(), 4u);
  const char* const why[][2] = {{"side/absent.json", ""},
                                {"other/config.json", "has its name"},
                                {"other/a name.json", "letters"},
                                {"'side'", ""}};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(Names(published->left_out[i], why[i][0], why[i][1])) << published->left_out[i];
  EXPECT_TRUE(Verify(kFolder, files).ok());
}

TEST(SideFiles, ADiskTooFullForThemLosesNothing) {
  MemoryFileSystem files;
  World world("root", files);
  ASSERT_TRUE(world.Save(10, 1).ok());
  world.AddSideFiles();
  world.SetTo(12);
  ASSERT_TRUE(world.Write(0, 12, 1).ok() && world.Write(1, 12, 1).ok());
  uint64_t used = 0;
  for (const std::string& path : files.AllFiles()) used += files.Content(path).size();
  files.SetCapacity(used + 1000);
  const auto published = world.PublishStep(12, 1);
  EXPECT_EQ(published.status().code(), StatusCode::kResourceExhausted) << published.status().ToString();
  const auto found = FindNewestComplete("root", files);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->step(), Step(10));
  files.SetCapacity(UINT64_MAX);
  ASSERT_TRUE(world.PublishStep(12, 1).ok());
  EXPECT_TRUE(Verify(kFolder, files).ok());
}

}  // namespace
}  // namespace kintsugi::checkpoint
