#include "kernels/placed_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "kernels/host_multilinear.h"
#include "kernels/multilinear.h"
#include "runtime/base/random.h"

namespace kintsugi {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes RandomBytes(uint64_t seed, size_t size) {
  Random random(seed);
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random.Next());
  return bytes;
}

// The definition in the header, byte by byte.
uint64_t ObviousSum(const Bytes& bytes, uint64_t offset) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint64_t at = offset + i;
    const uint64_t word = uint64_t{bytes[i]} << (8 * (at % 4));
    uint64_t factor = 2 * (at >> 33) * 0x9E3779B97F4A7C15u + 1;
    factor ^= factor >> 31 & ~uint64_t{1};
    sum += word * internal::MultilinearFactor(at / 4) * factor;
  }
  return sum;
}

// In checkpoints: it never changes.
TEST(PlacedSum, GivesItsCheckValues) {
  EXPECT_EQ(PlacedSum("123456789", 9, 0), 0x1643091F7DABD4EDu);
  EXPECT_EQ(PlacedSum("123456789", 9, kPlacedStretchBytes * 5 - 3), 0x6D4DD14F0BAD7754u);
  EXPECT_EQ(PlacedSum(nullptr, 0, 7), 0u);
}

TEST(PlacedSum, AgreesWithTheObviousSumAtEveryPlaceAndAlignment) {
  const Bytes bytes = RandomBytes(1, 1200);
  for (uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{62}, uint64_t{1} << 20,
                          kPlacedStretchBytes - 517, 3 * kPlacedStretchBytes - 64, 7 * kPlacedStretchBytes + 5})
    for (size_t from : {0, 1, 3, 8})
      for (size_t size : {0, 1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 191, 192, 700, 1100}) {
        const Bytes part(bytes.begin() + static_cast<int64_t>(from), bytes.begin() + static_cast<int64_t>(from + size));
        ASSERT_EQ(PlacedSum(bytes.data() + from, size, offset), ObviousSum(part, offset)) << offset << ' ' << size;
      }
}

TEST(PlacedSum, IsTheSumOfItsPartsHoweverCut) {
  const Bytes bytes = RandomBytes(2, 5000);
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const uint64_t offset = random.Next() >> (8 + random.Below(40));
    uint64_t sum = 0;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(bytes.size() - at, 1 + random.Below(300));
      sum += PlacedSum(bytes.data() + at, size, offset + at);
      at += size;
    }
    ASSERT_EQ(sum, PlacedSum(bytes.data(), bytes.size(), offset));
  }
}

TEST(PlacedSum, TellsEqualPlacesOfTwoStretchesApart) {
  Random random(4);
  for (int round = 0; round < 2000; ++round) {
    const auto a = static_cast<uint32_t>(random.Next()), b = static_cast<uint32_t>(random.Next());
    if (a == b) continue;
    const uint64_t place = 4 * random.Below(1u << 31), one = random.Below(64), other = one + 1 + random.Below(64);
    const auto of = [&](uint32_t first, uint32_t second) {
      return PlacedSum(&first, 4, one * kPlacedStretchBytes + place) +
             PlacedSum(&second, 4, other * kPlacedStretchBytes + place);
    };
    ASSERT_NE(of(a, b), of(b, a)) << one << ' ' << other;
  }
  std::set<uint64_t> factors;
  for (uint64_t stretch = 0; stretch < 4096; ++stretch) {
    EXPECT_EQ(internal::PlacedFactor(stretch) & 1, 1u);
    EXPECT_TRUE(factors.insert(internal::PlacedFactor(stretch)).second) << stretch;
  }
  EXPECT_EQ(internal::PlacedFactor(0), 1u);
}

#if defined(__x86_64__)
// Whichever of them this machine chooses, another one chooses the other.
TEST(PlacedSum, EveryVectorWidthGivesOneValue) {
  const Bytes bytes = RandomBytes(5, 64 * 9 + 1);
  for (uint64_t rows = 0; rows <= 9; ++rows)
    for (uint64_t first_word : {uint64_t{0}, uint64_t{13}, (uint64_t{1} << 31) - 160}) {
      const Bytes part(bytes.begin() + 1, bytes.begin() + 1 + static_cast<int64_t>(64 * rows));
      const uint64_t expected = ObviousSum(part, 4 * first_word);
      if (__builtin_cpu_supports("avx2")) {
        EXPECT_EQ(internal::MultilinearRowsAvx2(bytes.data() + 1, 2 * rows, first_word), expected) << rows;
        if (rows > 0) {
          const Bytes odd(part.begin(), part.end() - 32);
          EXPECT_EQ(internal::MultilinearRowsAvx2(bytes.data() + 1, 2 * rows - 1, first_word),
                    ObviousSum(odd, 4 * first_word));
        }
      }
      if (__builtin_cpu_supports("avx512vbmi2")) {
        EXPECT_EQ(internal::MultilinearRowsAvx512(bytes.data() + 1, rows, first_word), expected) << rows;
      }
    }
}
#endif

}  // namespace
}  // namespace kintsugi
