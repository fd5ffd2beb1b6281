#include "replica/save/checksum.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/base/random.h"

namespace kintsugi::checkpoint {
namespace {

TEST(Checksum, HexComesBackAndNothingElseIsTaken) {
  const std::vector<Checksum> checksums = {0, 1, 0xFEDCBA9876543210ull, UINT64_MAX};
  const std::string hex = ToHex(checksums);
  EXPECT_EQ(hex.size(), 64u);
  EXPECT_EQ(ToHex(Checksum{0xFEDCBA9876543210ull}), "fedcba9876543210");
  EXPECT_EQ(ChecksumsFromHex(hex), checksums);
  EXPECT_EQ(ChecksumsFromHex(""), std::vector<Checksum>());
  for (const std::string& bad : {std::string("0"), std::string(15, 'a'), std::string(16, 'A'), std::string(16, 'g'),
                                 "0x" + std::string(14, '0'), std::string(16, ' ')})
    EXPECT_EQ(ChecksumsFromHex(bad), std::nullopt) << bad;
}

TEST(Checksum, EveryBlockHasItsOwn) {
  std::vector<uint8_t> bytes(2 * kBlockBytes + 17);
  Random random(3);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  std::vector<Checksum> before, after;
  AppendBlocks(bytes, &before);
  ASSERT_EQ(before.size(), 3u);
  EXPECT_EQ(BlockCount(bytes.size()), 3u);
  bytes[kBlockBytes + 5] ^= 1;
  AppendBlocks(bytes, &after);
  EXPECT_EQ(before[0], after[0]);
  EXPECT_NE(before[1], after[1]);
  EXPECT_EQ(before[2], after[2]);
  EXPECT_NE(DigestOf(before), DigestOf(after));
}

TEST(Checksum, PiecesOfWholeBlocksGiveTheSameAsTheWhole) {
  std::vector<uint8_t> bytes(3 * kBlockBytes + 1, 7);
  bytes[0] = 1;
  std::vector<Checksum> whole, pieces;
  AppendBlocks(bytes, &whole);
  AppendBlocks(std::span<const uint8_t>(bytes).first(2 * kBlockBytes), &pieces);
  AppendBlocks(std::span<const uint8_t>(bytes).subspan(2 * kBlockBytes), &pieces);
  EXPECT_EQ(whole, pieces);
  EXPECT_EQ(BlockCount(0), 0u);
  EXPECT_EQ(BlockCount(kBlockBytes), 1u);
}

}  // namespace
}  // namespace kintsugi::checkpoint
