#include "kernels/multilinear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/fast_divisor.h"
#include "kernels/host_checksum.h"
#include "runtime/base/random.h"

namespace kintsugi::internal {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint64_t kBlockBytes = 1 << 20;

uint64_t Sum(const Bytes& bytes) { return BlockChecksum(ChecksumAlgorithm::kMultilinear, bytes.data(), bytes.size()); }

Bytes RandomBytes(uint64_t seed, size_t size) {
  Random random(seed);
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  return bytes;
}

void Flip(Bytes& bytes, uint64_t bit) { bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8)); }

// The definition in the header of multilinear.h, written down a second time.
uint64_t ObviousSum(const Bytes& bytes) {
  uint64_t sum = bytes.size() * 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i * 4 < bytes.size(); ++i) {
    uint64_t word = 0;
    for (size_t k = 0; k < 4 && 4 * i + k < bytes.size(); ++k) word |= uint64_t{bytes[4 * i + k]} << (8 * k);
    uint32_t factor = static_cast<uint32_t>((2 * i + 1) * 0x9E3779B1u);
    factor ^= (factor >> 15) & 0xFFFFFFFEu;
    factor *= 0x85EBCA77u;
    factor ^= (factor >> 16) & 0xFFFFFFFEu;
    sum += word * factor;
  }
  return sum;
}

// The value is part of the wire format and of checkpoints: it never changes.
TEST(Multilinear, GivesItsCheckValue) {
  EXPECT_EQ(Sum({'1', '2', '3', '4', '5', '6', '7', '8', '9'}),
            ObviousSum({'1', '2', '3', '4', '5', '6', '7', '8', '9'}));
  EXPECT_EQ(Sum({'1', '2', '3', '4', '5', '6', '7', '8', '9'}), 0xA63650A4F74A31AAu);
  EXPECT_EQ(Sum({}), 0u);
}

TEST(Multilinear, AgreesWithTheObviousSumAtEverySize) {
  for (size_t size : {1, 2, 3, 4, 31, 32, 33, 63, 64, 65, 95, 96, 1000, 4097, 1 << 20, (1 << 20) + 3}) {
    const auto bytes = RandomBytes(size, size);
    EXPECT_EQ(Sum(bytes), ObviousSum(bytes)) << size;
  }
}

// Two equal factors, or two that add up to 2^32, would hide a pair of flips.
TEST(Multilinear, FactorsOfABlockAreOddAndDifferent) {
  std::vector<uint32_t> factors(kBlockBytes / 4 * 16);
  for (uint64_t i = 0; i < factors.size(); ++i) {
    factors[i] = MultilinearFactor(i);
    ASSERT_EQ(factors[i] & 1, 1u) << i;
  }
  std::sort(factors.begin(), factors.end());
  EXPECT_EQ(std::adjacent_find(factors.begin(), factors.end()), factors.end());
}

TEST(Multilinear, DetectsEverySingleFlip) {
  Bytes bytes = RandomBytes(1, 4099);
  const uint64_t whole = Sum(bytes);
  for (uint64_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Flip(bytes, bit);
    ASSERT_NE(Sum(bytes), whole) << bit;
    Flip(bytes, bit);
  }
}

// The change that a flip makes is known without the sum: so all pairs of a block can be tried.
TEST(Multilinear, DetectsEveryPairOfFlipsInSixteenKilobytes) {
  constexpr uint64_t kWords = 4096;
  std::vector<uint32_t> factors(kWords);
  for (uint64_t i = 0; i < kWords; ++i) factors[i] = MultilinearFactor(i);
  for (int bit = 0; bit < 32; ++bit)
    for (uint64_t i = 0; i < kWords; ++i)
      for (uint64_t j = i + 1; j < kWords; ++j) {
        // At different bits the lower one decides; at the same one only these two remain.
        ASSERT_NE((uint64_t{factors[i]} - factors[j]) << bit, 0u);
        ASSERT_NE((uint64_t{factors[i]} + factors[j]) << bit, 0u);
      }
}

TEST(Multilinear, DetectsRandomPairsOfFlipsInAWholeBlock) {
  Bytes bytes = RandomBytes(2, kBlockBytes);
  const uint64_t whole = Sum(bytes);
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    const uint64_t first = random.Below(kBlockBytes * 8);
    // Half of them at the same bit of two words, which is where sums are weak.
    uint64_t second = round % 2 ? first % 32 + 32 * random.Below(kBlockBytes / 4) : random.Below(kBlockBytes * 8);
    if (second == first) second ^= 32;
    Flip(bytes, first);
    Flip(bytes, second);
    ASSERT_NE(Sum(bytes), whole) << first << " and " << second;
    Flip(bytes, first);
    Flip(bytes, second);
  }
  EXPECT_EQ(Sum(bytes), whole);
}

TEST(Multilinear, DetectsSwappedSixteenByteBlocks) {
  // Blocks whose words have equal sums, which a sum of words or evenly spaced factors would miss.
  for (uint32_t lane = 1; lane < 4; ++lane) {
    Bytes bytes(4096, 0);
    const uint64_t blocks = bytes.size() / 16;
    for (uint64_t i = 0; i < blocks; ++i)
      for (uint64_t j = i + 1; j < blocks; ++j) {
        bytes[16 * i] = bytes[16 * j + 4 * lane] = 1;
        const uint64_t whole = Sum(bytes);
        std::swap_ranges(bytes.begin() + 16 * i, bytes.begin() + 16 * i + 16, bytes.begin() + 16 * j);
        ASSERT_NE(Sum(bytes), whole) << i << " and " << j;
        std::fill_n(bytes.begin() + 16 * i, 16, 0);
        std::fill_n(bytes.begin() + 16 * j, 16, 0);
      }
  }
  Bytes bytes = RandomBytes(4, kBlockBytes);
  const uint64_t whole = Sum(bytes);
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    const uint64_t i = random.Below(kBlockBytes / 16), j = random.Below(kBlockBytes / 16);
    if (std::memcmp(&bytes[16 * i], &bytes[16 * j], 16) == 0) continue;
    const auto swap = [&] {
      std::swap_ranges(bytes.begin() + static_cast<int64_t>(16 * i), bytes.begin() + static_cast<int64_t>(16 * i + 16),
                       bytes.begin() + static_cast<int64_t>(16 * j));
    };
    swap();
    ASSERT_NE(Sum(bytes), whole) << i << " and " << j;
    swap();
  }
}

TEST(Multilinear, DetectsZeroedTailsAndLostZeros) {
  const Bytes whole = RandomBytes(6, 4096);
  Bytes zeroed = whole, zeros(4096, 0);
  for (size_t size = whole.size(); size-- > 0;) {
    const bool changes = zeroed[size] != 0 || zeroed != whole;
    zeroed[size] = 0;
    if (changes) {
      ASSERT_NE(Sum(zeroed), Sum(whole)) << size;
    }
    ASSERT_NE(Sum(Bytes(zeros.begin(), zeros.begin() + static_cast<int64_t>(size))), Sum(zeros)) << size;
  }
}

TEST(FastDivisor, DividesAllNumbersBelowTwoToThe31) {
  Random random(7);
  constexpr uint32_t kEnd = 1u << 31;
  std::vector<uint32_t> divisors = {1, 2, 3, 5, 7, 641, 1u << 16, (1u << 16) + 1, (1u << 30) + 1, kEnd - 1};
  for (int i = 0; i < 500; ++i)
    divisors.push_back(static_cast<uint32_t>(1 + random.Below(kEnd >> (i % 31)) % (kEnd - 1)));
  for (uint32_t divisor : divisors) {
    const FastDivisor fast = FastDivisor::Of(divisor);
    for (uint32_t number :
         {0u, 1u, divisor - 1, divisor, 2 * (divisor % (1u << 30)), kEnd - 1, kEnd - 2, kEnd / divisor * divisor - 1})
      if (number < kEnd) {
        ASSERT_EQ(fast.Quotient(number), number / divisor) << number << " / " << divisor;
      }
    for (int i = 0; i < 200; ++i) {
      const auto number = static_cast<uint32_t>(random.Below(kEnd));
      ASSERT_EQ(fast.Quotient(number), number / divisor) << number << " / " << divisor;
    }
  }
}

}  // namespace
}  // namespace kintsugi::internal
