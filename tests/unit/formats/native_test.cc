// What of native checkpoints only this reader finds.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "replica/formats/format.h"
#include "replica/save/publish.h"
#include "replica/save/write.h"

namespace kintsugi::formats {
namespace {

// Two ranks of an expert-parallel group: each has an expert that it calls 0.
TEST(Native, RefusesANameThatIsTwoTensors) {
  std::string root = (std::filesystem::temp_directory_path() / "kintsugi-native-XXXXXX").string();
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  for (const float second : {1.0f, 2.0f}) {
    checkpoint::PublishRequest publish{root, "job", Step(12), Generation(1), {}};
    for (int rank = 0; rank < 2; ++rank) {
      float memory = rank == 0 ? 1.0f : second;
      StateRegistry registry;
      ASSERT_TRUE(registry.AddTensor({.key = "experts.0.w", .memory = {.data = &memory, .size_bytes = 4}}).ok());
      checkpoint::SaveRequest request;
      request.root = root;
      request.identity = {"job", Step(12), Generation(1), 2};
      request.writer = Rank(rank);
      request.entries = {{0, {Rank(rank)}, {}}};
      const auto written =
          WritePart(registry, request, [](Rank) -> Result<std::vector<uint8_t>> { return std::vector<uint8_t>(); });
      ASSERT_TRUE(written.ok()) << written.status().ToString();
      publish.expected_writers.push_back(Rank(rank));
    }
    ASSERT_TRUE(Publish(publish).ok());
    const auto read = ReadCatalog(root);
    if (second == 1.0f) {
      EXPECT_TRUE(read.ok()) << read.status().ToString();
    } else {
      EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
      EXPECT_NE(read.status().message().find("'experts.0.w' is two tensors: ranks 0 and ranks 1"), std::string::npos)
          << read.status().message();
    }
    std::filesystem::remove_all(root + "/step_0000000012");
  }
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace kintsugi::formats
