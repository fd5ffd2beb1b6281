#include "kernels/host_checksum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/host_copy.h"
#include "kernels/host_copy_way.h"
#include "runtime/base/random.h"

namespace kintsugi {
namespace {

std::vector<uint8_t> RandomBytes(uint64_t seed, size_t size) {
  Random random(seed);
  std::vector<uint8_t> bytes(size);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  return bytes;
}

// CRC-32C bit by bit (reflected polynomial 0x82F63B78): slow and obvious.
uint32_t SlowCrc32c(const std::vector<uint8_t>& bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

TEST(BlockChecksum, GivesTheStandardCheckValues) {
  EXPECT_EQ(BlockChecksum(ChecksumAlgorithm::kCrc32c, "123456789", 9), 0xE3069283u);
  EXPECT_EQ(BlockChecksum(ChecksumAlgorithm::kXxh3, "", 0), 0x2D06800538D394C2u);
  EXPECT_EQ(BlockChecksum(ChecksumAlgorithm::kNone, "123456789", 9), 0u);
}

TEST(BlockChecksum, AgreesWithTheObviousCrc) {
  for (size_t size : {0, 1, 7, 63, 64, 1000, 4097}) {
    const auto bytes = RandomBytes(size, size);
    EXPECT_EQ(BlockChecksum(ChecksumAlgorithm::kCrc32c, bytes.data(), size), SlowCrc32c(bytes)) << size;
  }
}

TEST(RunningChecksum, DoesNotDependOnHowBytesAreCut) {
  const auto bytes = RandomBytes(7, 300000);
  for (auto algorithm : {ChecksumAlgorithm::kCrc32c, ChecksumAlgorithm::kXxh3, ChecksumAlgorithm::kMultilinear}) {
    const uint64_t whole = BlockChecksum(algorithm, bytes.data(), bytes.size());
    Random random(3);
    RunningChecksum running(algorithm);
    for (int round = 0; round < 10; ++round) {
      running.Reset();
      for (size_t at = 0; at < bytes.size();) {
        const size_t part = std::min<size_t>(bytes.size() - at, random.Below(70000));
        running.Update(bytes.data() + at, part);
        at += part;
      }
      EXPECT_EQ(running.Value(), whole) << ChecksumName(algorithm);
    }
  }
}

void ExpectCopied(internal::CopyWay way, const uint8_t* source, size_t to, size_t size) {
  SCOPED_TRACE(std::string(internal::CopyWayName(way)) + " to " + std::to_string(to) + ", " + std::to_string(size));
  std::vector<uint8_t> target(size + 128, 0xAA);
  RunningChecksum checksum(ChecksumAlgorithm::kCrc32c);
  internal::CopyBy(way, target.data() + to, source, size, &checksum);
  EXPECT_EQ(std::memcmp(target.data() + to, source, size), 0);
  EXPECT_EQ(checksum.Value(), BlockChecksum(ChecksumAlgorithm::kCrc32c, source, size));
  EXPECT_EQ(target[to + size], 0xAA);
  if (to > 0) {
    EXPECT_EQ(target[to - 1], 0xAA);
  }
}

TEST(StreamCopy, EachWayCopiesAndChecksumsEveryByteAtEveryAlignment) {
  const auto source = RandomBytes(11, 700000);
  for (internal::CopyWay way : internal::kCopyWays) {
    if (!internal::CanCopy(way)) continue;
    for (size_t from : {0, 1, 33})
      for (size_t to : {0, 3, 63})
        for (size_t size : {0, 5, 131071, 131072, 163840, 600001}) ExpectCopied(way, source.data() + from, to, size);
  }
}

TEST(StreamCopy, TheWayThatIsChosenIsOneThatTheProcessorHas) {
  EXPECT_TRUE(internal::CanCopy(internal::ChosenCopyWay()));
  for (internal::CopyWay way : internal::kCopyWays)
    EXPECT_EQ(internal::CopyWayFromName(internal::CopyWayName(way)), way);
  EXPECT_EQ(internal::CopyWayFromName("streams-3"), std::nullopt);
}

// Before the ways are tried, and behind it.
TEST(StreamCopy, CopiesMoreThanIsCopiedUntried) {
  const auto source = RandomBytes(12, 5 << 20);
  for (int i = 0; i < 8; ++i) {
    std::vector<uint8_t> target(source.size());
    StreamCopy(target.data(), source.data(), source.size());
    EXPECT_EQ(target, source);
  }
}

TEST(ChecksumFromNumber, RefusesUnknownNumbers) {
  EXPECT_EQ(ChecksumFromNumber(1), ChecksumAlgorithm::kCrc32c);
  EXPECT_FALSE(ChecksumFromNumber(4).has_value());
}

}  // namespace
}  // namespace kintsugi
