#include "replica/layout/object_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/random.h"

namespace kintsugi::layout {
namespace {

TEST(StorageKey, ReadsAsItIsWritten) {
  EXPECT_EQ(StorageKey({"rng", {0, 3}, {1, 8}}), "rng/shard_0.3_1.8");
  EXPECT_EQ(StorageKey({"rng", {}, {}}), "rng/shard_0_1");
  Random random(1);
  for (int round = 0; round < 1000; ++round) {
    ObjectKey object{"", {}, {}};
    for (const char* part : {"a/b", "_", "/shard_", "shard_1_2", "x.y", "/shard_0_1"})
      if (random.Chance(0.5)) object.key += part;
    if (object.key.empty()) object.key = "k";
    for (uint64_t axes = 1 + random.Below(4); axes > 0; --axes) {
      object.grid_offset.push_back(static_cast<int64_t>(random.Below(100)));
      object.grid_shape.push_back(static_cast<int64_t>(random.Next() >> 1));
    }
    const auto read = ParseStorageKey(StorageKey(object));
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(*read, object);
  }
}

// Defect 19: a key with '/' cannot be read back.
TEST(Defects, AnObjectKeyIsSplitAtTheLastMarker) {
  const auto read = ParseStorageKey("a/b_c/shard_x/shard_1.0_2.4");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, (ObjectKey{"a/b_c/shard_x", {1, 0}, {2, 4}}));
}

TEST(StorageKey, OfOldFilesHasAnUnknownLastLength) {
  const auto read = ParseStorageKey("rng/shard_0.3_1");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->grid_shape, (Shape{1, -1}));
}

TEST(StorageKey, RefusesWhatIsNone) {
  for (const char* text :
       {"", "rng", "/shard_0_1", "rng/shard_", "rng/shard_0", "rng/shard_0_", "rng/shard__1", "rng/shard_0_1_2",
        "rng/shard_0._1", "rng/shard_.0_1", "rng/shard_-1_1", "rng/shard_0_1.2.3", "rng/shard_0.1.2_1", "rng/shard_a_1",
        "rng/shard_99999999999999999999_1", "rng/shard_0_1\n"}) {
    const auto read = ParseStorageKey(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, ErrorCode::kFormat);
    EXPECT_THAT(read.error().message, testing::HasSubstr("storage key"));
  }
}

}  // namespace
}  // namespace kintsugi::layout
