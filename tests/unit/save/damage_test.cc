// Every file of a small checkpoint is cut, lengthened, flipped and removed: the checkpoint is then refused, or it loads
// exactly the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "replica/save/describe.h"
#include "runtime/base/random.h"
#include "tests/unit/save/memory_file_system.h"
#include "tests/unit/save/world.h"

namespace kintsugi::checkpoint {
namespace {

struct Outcome {
  int refused = 0, same = 0;
};

class Damage : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(world_.Save(12, 1).ok()); }

  void Check(const std::string& what, Outcome* outcome) {
    const Status verified = Verify(world_.Path(12), files_);
    const auto found = FindNewestComplete("root", files_);
    const Status loaded = world_.LoadAll(world_.Path(12));
    if (loaded.ok()) {
      ASSERT_TRUE(world_.IsAt(12)) << what << ": other bytes were loaded";
      ++outcome->same;
    } else {
      ++outcome->refused;
      ASSERT_TRUE(loaded.code() == StatusCode::kDataLoss || loaded.code() == StatusCode::kNotFound)
          << what << ": " << loaded.ToString();
    }
    // What verification takes must load, and what does not load must not verify.
    ASSERT_EQ(verified.ok(), loaded.ok()) << what << ": " << verified.ToString() << " / " << loaded.ToString();
    ASSERT_TRUE(found.ok() || !verified.ok()) << what;
    if ((outcome->same + outcome->refused) % 8 == 0) {
      ASSERT_TRUE(DescribeCheckpoint(world_.Path(12), true, files_).ok()) << what;
    }
  }

  MemoryFileSystem files_;
  World world_{"root", files_};
};

TEST_F(Damage, AFlippedBitAnywhereIsRefusedOrHarmless) {
  Outcome outcome;
  for (const std::string& path : files_.AllFiles()) {
    const size_t size = files_.Content(path).size();
    // All positions of small files, a stride of larger ones.
    const size_t stride = std::max<size_t>(1, size / 100);
    for (size_t at = 0; at < size; at += stride) {
      const uint8_t bit = static_cast<uint8_t>(1u << at % 8);
      files_.Content(path)[at] ^= bit;
      ASSERT_NO_FATAL_FAILURE(Check(path + " bit at " + std::to_string(at), &outcome));
      files_.Content(path)[at] ^= bit;
    }
  }
  EXPECT_GT(outcome.refused, 200);
  EXPECT_GT(outcome.same, 0) << "padding between tensors and `latest` carry nothing of the state";
}

TEST_F(Damage, ACutOrLengthenedFileIsRefused) {
  Outcome outcome;
  for (const std::string& path : files_.AllFiles()) {
    if (path.ends_with("/latest")) continue;
    const auto original = files_.Content(path);
    const size_t stride = std::max<size_t>(1, original.size() / 30);
    for (size_t size = 0; size < original.size(); size += stride) {
      files_.Content(path).resize(size);
      ASSERT_NO_FATAL_FAILURE(Check(path + " cut to " + std::to_string(size), &outcome));
      files_.Content(path) = original;
    }
    for (size_t extra : {1, 64, 5000}) {
      files_.Content(path).resize(original.size() + extra);
      ASSERT_NO_FATAL_FAILURE(Check(path + " longer by " + std::to_string(extra), &outcome));
      files_.Content(path) = original;
    }
  }
  EXPECT_EQ(outcome.same, 0);
}

TEST_F(Damage, RandomGarbageInAnyFileIsRefusedOrHarmless) {
  Random random(20261121);
  Outcome outcome;
  const auto paths = files_.AllFiles();
  for (int round = 0; round < 300; ++round) {
    const std::string& path = paths[random.Below(paths.size())];
    const auto original = files_.Content(path);
    if (original.empty()) continue;
    auto& bytes = files_.Content(path);
    const size_t begin = random.Below(bytes.size());
    for (size_t at = begin; at < bytes.size() && at < begin + 1 + random.Below(40); ++at)
      bytes[at] = static_cast<uint8_t>(random.Next());
    ASSERT_NO_FATAL_FAILURE(Check(path + " garbage at " + std::to_string(begin), &outcome));
    files_.Content(path) = original;
  }
  EXPECT_GT(outcome.refused, 0);
}

TEST_F(Damage, SwappedFilesAreRefused) {
  const std::string folder = world_.Path(12);
  Outcome outcome;
  for (const auto& [a, b] : std::map<std::string, std::string>{{"layout0.shard-0-2.bin", "layout0.shard-1-3.bin"},
                                                               {"part-00000.json", "part-00001.json"},
                                                               {"objects.rank-00000.bin", "objects.rank-00001.bin"},
                                                               {"manifest.json", "part-00000.json"}}) {
    std::swap(files_.Content(folder + "/" + a), files_.Content(folder + "/" + b));
    ASSERT_NO_FATAL_FAILURE(Check("swapped " + a + " and " + b, &outcome));
    std::swap(files_.Content(folder + "/" + a), files_.Content(folder + "/" + b));
  }
  EXPECT_EQ(outcome.same, 0);
}

TEST_F(Damage, AMissingFileIsRefused) {
  const std::string folder = world_.Path(12);
  Outcome outcome;
  for (const std::string& path : files_.AllFiles()) {
    if (path.ends_with("/latest")) continue;
    ASSERT_TRUE(files_.Rename("root/" + path.substr(path.find("step_")), folder + "/aside").ok());
    ASSERT_NO_FATAL_FAILURE(Check("without " + path, &outcome));
    ASSERT_TRUE(files_.Rename(folder + "/aside", "root/" + path.substr(path.find("step_"))).ok());
  }
  EXPECT_EQ(outcome.same, 0);
  Check("all back", &outcome);
  EXPECT_EQ(outcome.same, 1);
}

}  // namespace
}  // namespace kintsugi::checkpoint
