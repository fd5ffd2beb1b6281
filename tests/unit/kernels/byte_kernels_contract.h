// The contract of byte_kernels.h, over every implementation: included by one test program per place where kernels run.
//
// What: random parts against an obvious copy, element by element, and against the host's casts and checksums. Whole
// arenas are compared, so a byte written outside of a region fails too.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "kernels/host_cast.h"
#include "kernels/host_checksum.h"
#include "runtime/base/random.h"
#include "tests/unit/kernels/kernel_memory.h"

namespace kintsugi {

struct KernelCase {
  const char* name;
  std::function<std::unique_ptr<KernelMemory>()> make;
};

inline std::string KernelCaseName(const testing::TestParamInfo<KernelCase>& info) { return info.param.name; }

class ByteKernelsContract : public testing::TestWithParam<KernelCase> {
 protected:
  using Bytes = std::vector<uint8_t>;

  void SetUp() override {
    memory_ = GetParam().make();
    if (!memory_->unavailable().empty()) GTEST_SKIP() << memory_->unavailable();
  }

  const ByteKernels& kernels() { return memory_->kernels(); }

  Bytes RandomBytes(size_t size) {
    Bytes bytes(size);
    for (size_t at = 0; at < size; at += 8) {
      const uint64_t word = random_.Next();
      std::memcpy(bytes.data() + at, &word, std::min<size_t>(8, size - at));
    }
    return bytes;
  }

  uint8_t* Place(const Bytes& bytes) {
    uint8_t* at = memory_->Allocate(bytes.size());
    memory_->Upload(at, bytes.data(), bytes.size());
    return at;
  }

  Bytes Fetch(const void* from, size_t size) {
    Bytes bytes(size);
    memory_->Download(bytes.data(), from, size);
    return bytes;
  }

  uint64_t FetchNumber(const uint64_t* from) {
    uint64_t number = 0;
    memory_->Download(&number, from, sizeof(number));
    return number;
  }

  // A region over a dense array with its axes in any order, gaps between rows and some axes backwards; `end` is the
  // bytes it needs, `start` the offset of its first element.
  struct Laid {
    RegionAxes stride{};
    uint64_t start = 0;
    uint64_t end = 0;
  };
  Laid Lay(int axes, const RegionAxes& length, uint64_t element_bytes, bool shuffle) {
    std::vector<int> order(static_cast<size_t>(axes));
    std::iota(order.begin(), order.end(), 0);
    if (shuffle)
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.Below(i)]);
    Laid laid;
    uint64_t step = element_bytes;
    for (int i = axes - 1; i >= 0; --i) {
      const int axis = order[static_cast<size_t>(i)];
      laid.stride[axis] = static_cast<int64_t>(step);
      if (length[axis] > 0 && random_.Chance(0.15)) {
        laid.start += step * static_cast<uint64_t>(length[axis] - 1);
        laid.stride[axis] = -laid.stride[axis];
      }
      step *= static_cast<uint64_t>(std::max<int64_t>(1, length[axis]));
      if (random_.Chance(0.4)) step += element_bytes * random_.Below(4);
    }
    laid.end = step;
    return laid;
  }

  RegionAxes Lengths(int axes, int64_t most) {
    RegionAxes length{};
    int64_t left = most;
    for (int axis = 0; axis < axes; ++axis) {
      length[axis] = static_cast<int64_t>(
          1 + random_.Below(static_cast<uint64_t>(std::max<int64_t>(1, std::min<int64_t>(left, 70)))));
      left /= length[axis];
    }
    if (axes > 0 && random_.Chance(0.05)) length[random_.Below(static_cast<uint64_t>(axes))] = 0;
    return length;
  }

  // Calls visit(offset in to, offset in from) for each element.
  template <typename Visit>
  static void ForElements(const RegionPair& region, const Visit& visit) {
    int64_t elements = 1;
    for (int axis = 0; axis < region.axes; ++axis) elements *= region.length[axis];
    for (int64_t i = 0; i < elements; ++i) {
      int64_t rest = i, to = 0, from = 0;
      for (int axis = region.axes - 1; axis >= 0; --axis) {
        const int64_t at = rest % region.length[axis];
        rest /= region.length[axis];
        to += at * region.to_stride[axis];
        from += at * region.from_stride[axis];
      }
      visit(to, from);
    }
  }

  struct Planned {
    uint64_t to = 0, from = 0;  // offsets of the first elements in the two arenas
    RegionPair region;
    uint64_t to_bytes = 1, from_bytes = 1;
  };
  // Parts that follow one another in both arenas.
  std::vector<Planned> PlanParts(size_t count, int64_t most,
                                 const std::function<std::pair<uint64_t, uint64_t>()>& sizes, bool aligned) {
    std::vector<Planned> parts(count);
    to_end_ = from_end_ = 0;
    for (Planned& part : parts) {
      std::tie(part.to_bytes, part.from_bytes) = sizes();
      part.region.axes = static_cast<int>(random_.Below(6));
      part.region.length = Lengths(part.region.axes, most);
      const bool same_order = random_.Chance(0.5);
      const Laid to = Lay(part.region.axes, part.region.length, part.to_bytes, !same_order);
      const Laid from = Lay(part.region.axes, part.region.length, part.from_bytes, !same_order);
      part.region.to_stride = to.stride;
      part.region.from_stride = from.stride;
      to_end_ += random_.Below(40);
      from_end_ += random_.Below(40);
      if (aligned || random_.Chance(0.5)) {
        to_end_ = (to_end_ + 15) / 16 * 16 + part.to_bytes * random_.Below(3);
        from_end_ = (from_end_ + 15) / 16 * 16 + part.from_bytes * random_.Below(3);
      }
      part.to = to_end_ + to.start;
      part.from = from_end_ + from.start;
      to_end_ += to.end;
      from_end_ += from.end;
    }
    return parts;
  }

  Random random_{20261121};
  std::unique_ptr<KernelMemory> memory_;
  uint64_t to_end_ = 0, from_end_ = 0;
};

TEST_P(ByteKernelsContract, CopiesManyRegionsAndNothingElse) {
  for (int round = 0; round < 12; ++round) {
    const bool is_many = round % 3 == 0;  // more than a launch takes
    const auto plan = PlanParts(
        is_many ? 900 : 20, is_many ? 60 : 60000,
        [&] {
          const uint64_t bytes = uint64_t{1} << random_.Below(5);
          return std::pair(bytes, bytes);
        },
        false);
    const Bytes source = RandomBytes(from_end_);
    Bytes expected(to_end_, 0xAA);
    uint8_t *to = memory_->Allocate(to_end_), *from = Place(source);
    std::vector<CopyPart> parts;
    for (const Planned& part : plan) {
      ForElements(part.region, [&](int64_t t, int64_t f) {
        std::memcpy(expected.data() + part.to + t, source.data() + part.from + f, part.to_bytes);
      });
      parts.push_back({to + part.to, from + part.from, part.region, part.to_bytes});
    }
    ASSERT_TRUE(kernels().Copy(parts, memory_->stream()).ok());
    ASSERT_EQ(Fetch(to, to_end_), expected) << round;
  }
}

TEST_P(ByteKernelsContract, CopiesLongRunsAtEveryAlignment) {
  const Bytes source = RandomBytes(200064);
  uint8_t* from = Place(source);
  for (uint64_t to_shift : {0, 1, 4, 15})
    for (uint64_t from_shift : {0, 2, 4, 15})
      for (uint64_t size : {0, 1, 15, 16, 17, 4096, 65536, 199999}) {
        uint8_t* to = memory_->Allocate(size + 32);
        const CopyPart part{to + to_shift,
                            from + from_shift,
                            {.axes = 1, .length = {static_cast<int64_t>(size)}, .to_stride = {1}, .from_stride = {1}},
                            1};
        ASSERT_TRUE(kernels().Copy({&part, 1}, memory_->stream()).ok());
        Bytes expected(size + 32, 0xAA);
        for (uint64_t i = 0; i < size; ++i) expected[to_shift + i] = source[from_shift + i];
        ASSERT_EQ(Fetch(to, size + 32), expected) << size << " bytes from " << from_shift << " to " << to_shift;
      }
}

constexpr ElementType kFloats[] = {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16,
                                   ElementType::kFloat8E4M3, ElementType::kFloat8E5M2};

// Every value of the 16-bit and 8-bit types; of float32, the neighbours of every rounding step of every narrower type,
// and random bits.
TEST_P(ByteKernelsContract, CastsEveryValueToTheBitsOfTheHost) {
  for (ElementType from_type : kFloats) {
    const uint64_t from_size = ElementSize(from_type);
    Bytes values;
    const auto add = [&](uint32_t bits) {
      const auto* at = reinterpret_cast<const uint8_t*>(&bits);
      values.insert(values.end(), at, at + from_size);
    };
    if (from_size < 4) {
      for (uint32_t bits = 0; bits < 1u << (8 * from_size); ++bits) add(bits);
    } else {
      for (uint32_t high = 0; high < 1u << 16; ++high)
        for (uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) add(high << 16 | low);
      for (int i = 0; i < 50000; ++i) add(static_cast<uint32_t>(random_.Next()));
    }
    const auto count = static_cast<int64_t>(values.size() / from_size);
    uint8_t* from = Place(values);
    for (ElementType to_type : kFloats) {
      const uint64_t to_bytes = static_cast<uint64_t>(count) * ElementSize(to_type);
      const RegionPair region{.axes = 1,
                              .length = {count},
                              .to_stride = {static_cast<int64_t>(ElementSize(to_type))},
                              .from_stride = {static_cast<int64_t>(from_size)}};
      uint8_t* to = memory_->Allocate(to_bytes);
      Bytes expected(to_bytes);
      CastRegion(expected.data(), to_type, values.data(), from_type, region);
      const CastPart part{to, to_type, from, from_type, region};
      ASSERT_TRUE(kernels().Cast({&part, 1}, memory_->stream()).ok());
      ASSERT_EQ(Fetch(to, to_bytes), expected) << static_cast<int>(from_type) << " to " << static_cast<int>(to_type);
    }
  }
}

TEST_P(ByteKernelsContract, CastsManyRegionsAndNothingElse) {
  for (int round = 0; round < 8; ++round) {
    ElementType to_type{}, from_type{};
    std::vector<std::pair<ElementType, ElementType>> types;
    const auto plan = PlanParts(
        round % 2 ? 30 : 400, round % 2 ? 20000 : 100,
        [&] {
          if (types.empty() || random_.Chance(0.3)) {
            to_type = kFloats[random_.Below(5)];
            from_type = kFloats[random_.Below(5)];
          }
          types.emplace_back(to_type, from_type);
          return std::pair(ElementSize(to_type), ElementSize(from_type));
        },
        true);
    const Bytes source = RandomBytes(from_end_);
    Bytes expected(to_end_, 0xAA);
    uint8_t *to = memory_->Allocate(to_end_), *from = Place(source);
    std::vector<CastPart> parts;
    for (size_t i = 0; i < plan.size(); ++i) {
      const Planned& part = plan[i];
      CastRegion(expected.data() + part.to, types[i].first, source.data() + part.from, types[i].second, part.region);
      parts.push_back({to + part.to, types[i].first, from + part.from, types[i].second, part.region});
    }
    const Status status = kernels().Cast(parts, memory_->stream());
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(Fetch(to, to_end_), expected) << round;
  }
}

TEST_P(ByteKernelsContract, SumsBlocksAsTheHostDoes) {
  const Bytes data = RandomBytes((3 << 20) + 64);
  uint8_t* at = Place(data);
  for (uint64_t shift : {0, 1, 2, 4, 8})
    for (uint64_t size : {0, 1, 5, 16, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, (3 << 20) - 7})
      for (uint64_t block_bytes : {kSumBlockBytesMin, kSumBlockBytes}) {
        const uint64_t blocks = SumBlocks(size, block_bytes);
        auto* sums = reinterpret_cast<uint64_t*>(memory_->Allocate((blocks + 1) * 8));
        ASSERT_TRUE(kernels().Checksum(at + shift, size, {sums, block_bytes}, memory_->stream()).ok());
        const Bytes raw = Fetch(sums, (blocks + 1) * 8);
        const auto* got = reinterpret_cast<const uint64_t*>(raw.data());
        for (uint64_t block = 0; block < blocks; ++block)
          ASSERT_EQ(got[block],
                    BlockChecksum(ChecksumAlgorithm::kMultilinear, data.data() + shift + block * block_bytes,
                                  std::min(block_bytes, size - block * block_bytes)))
              << "block " << block << " of " << size << " bytes at " << shift;
        ASSERT_EQ(got[blocks], 0xAAAAAAAAAAAAAAAAu);
      }
}

TEST_P(ByteKernelsContract, FindsTheFirstOfSeveralDifferences) {
  const Bytes data = RandomBytes(300032);
  uint8_t* a = Place(data);
  auto* found = reinterpret_cast<uint64_t*>(memory_->Allocate(8));
  for (int round = 0; round < 60; ++round) {
    const uint64_t shift = round % 3 == 0 ? 0 : random_.Below(17), size = round == 0 ? 0 : random_.Below(300000);
    Bytes other = data;
    uint64_t expected = kNoDifference;
    for (uint64_t change = random_.Below(4); size > 0 && change > 0; --change) {
      const uint64_t at = random_.Chance(0.2) ? size - 1 : random_.Below(size);
      other[shift + at] = static_cast<uint8_t>(~data[shift + at]);
      expected = std::min(expected, at);
    }
    uint8_t* b = Place(other);
    ASSERT_TRUE(kernels().Compare(a + shift, b + shift, size, found, memory_->stream()).ok());
    ASSERT_EQ(FetchNumber(found), expected) << size << " bytes at " << shift;
  }
}

TEST_P(ByteKernelsContract, PacksAndUnpacksWithTheSumsOfThePackedBytes) {
  for (int round = 0; round < 10; ++round) {
    const auto plan = PlanParts(
        round % 2 ? 300 : 25, round % 2 ? 500 : 80000,
        [&] {
          const uint64_t bytes = uint64_t{1} << random_.Below(round % 3 ? 5 : 1);
          return std::pair(bytes, bytes);
        },
        false);
    const Bytes source = RandomBytes(from_end_);
    uint8_t *memory = Place(source), *target = memory_->Allocate(from_end_);
    std::vector<PackPart> parts, targets;
    Bytes packed_expected, target_expected(from_end_, 0xAA);
    for (const Planned& part : plan) {
      const PackPart pack{memory + part.from,
                          {.axes = part.region.axes, .length = part.region.length, .stride = part.region.from_stride},
                          part.from_bytes,
                          packed_expected.size()};
      parts.push_back(pack);
      targets.push_back(pack);
      targets.back().memory = target + part.from;
      ForElements(part.region, [&](int64_t, int64_t f) {
        const auto* element = source.data() + part.from + f;
        packed_expected.insert(packed_expected.end(), element, element + part.from_bytes);
        std::memcpy(target_expected.data() + part.from + f, element, part.from_bytes);
      });
    }
    const uint64_t bytes = packed_expected.size(), block_bytes = kSumBlockBytesMin,
                   blocks = SumBlocks(bytes, block_bytes);
    // An odd base: then offsets among the packed bytes and addresses are aligned differently.
    uint8_t* packed = memory_->Allocate(bytes + 16) + (round % 2 ? random_.Below(16) : 0);
    auto* sums = reinterpret_cast<uint64_t*>(memory_->Allocate(blocks * 8));
    const BlockSums target_sums{sums, block_bytes};
    Status status = kernels().Pack(parts, packed, bytes, &target_sums, memory_->stream());
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(Fetch(packed, bytes), packed_expected);
    const Bytes raw = Fetch(sums, blocks * 8);
    std::vector<uint64_t> expected(blocks);
    for (uint64_t block = 0; block < blocks; ++block)
      expected[block] = BlockChecksum(ChecksumAlgorithm::kMultilinear, packed_expected.data() + block * block_bytes,
                                      std::min(block_bytes, bytes - block * block_bytes));
    ASSERT_EQ(std::memcmp(raw.data(), expected.data(), raw.size()), 0) << round;

    // And back: whole, and with one flipped bit.
    auto* wanted = reinterpret_cast<uint64_t*>(memory_->Allocate(blocks * 8));
    auto* bad = reinterpret_cast<uint64_t*>(memory_->Allocate(8));
    memory_->Upload(wanted, expected.data(), blocks * 8);
    ASSERT_TRUE(kernels().Unpack(targets, packed, bytes, &target_sums, wanted, bad, memory_->stream()).ok());
    EXPECT_EQ(FetchNumber(bad), kNoDifference);
    ASSERT_EQ(Fetch(target, from_end_), target_expected);
    if (bytes == 0) continue;
    const uint64_t at = random_.Below(bytes);
    Bytes damaged = packed_expected;
    damaged[at] ^= static_cast<uint8_t>(1u << random_.Below(8));
    memory_->Upload(packed, damaged.data(), bytes);
    ASSERT_TRUE(kernels().Unpack(targets, packed, bytes, &target_sums, wanted, bad, memory_->stream()).ok());
    EXPECT_EQ(FetchNumber(bad), at / block_bytes);
  }
}

TEST_P(ByteKernelsContract, PacksWithGapsWithoutSums) {
  const Bytes source = RandomBytes(256);
  uint8_t *from = Place(source), *packed = memory_->Allocate(256);
  const PackPart parts[] = {{from, {.axes = 1, .length = {10}, .stride = {4}}, 2, 6},
                            {from + 100, {.axes = 1, .length = {3}, .stride = {1}}, 1, 0}};
  ASSERT_TRUE(kernels().Pack(parts, packed, 256, nullptr, memory_->stream()).ok());
  Bytes expected(256, 0xAA);
  for (int i = 0; i < 10; ++i) std::memcpy(&expected[6 + 2 * i], &source[4 * i], 2);
  std::memcpy(expected.data(), &source[100], 3);
  EXPECT_EQ(Fetch(packed, 256), expected);
}

TEST_P(ByteKernelsContract, RefusesWhatItCannotDoAndTouchesNothing) {
  uint8_t* at = memory_->Allocate(4096);
  auto* sums = reinterpret_cast<uint64_t*>(memory_->Allocate(64));
  const auto code = [](const Status& status) { return status.code(); };
  const Region ten{.axes = 1, .length = {10}, .stride = {1}};
  const CopyPart three_bytes{at, at + 64, {.axes = 1, .length = {1}}, 3}, nine_axes{at, at + 64, {.axes = 9}, 1};
  const CopyPart negative{at, at + 64, {.axes = 1, .length = {-1}}, 1};
  for (const CopyPart& part : {three_bytes, nine_axes, negative})
    EXPECT_EQ(code(kernels().Copy({&part, 1}, memory_->stream())), StatusCode::kInvalidArgument);
  const CastPart complex{at, ElementType::kComplex64, at + 64, ElementType::kFloat32, {.axes = 1, .length = {1}}};
  EXPECT_EQ(code(kernels().Cast({&complex, 1}, memory_->stream())), StatusCode::kInvalidArgument);
  for (uint64_t block_bytes : {uint64_t{0}, uint64_t{1024}, kSumBlockBytesMin + 1})
    EXPECT_EQ(code(kernels().Checksum(at, 10, {sums, block_bytes}, memory_->stream())), StatusCode::kInvalidArgument);
  const BlockSums target{sums, kSumBlockBytesMin};
  const PackPart behind{at, ten, 1, 1}, first{at, ten, 1, 0}, shared{at + 64, ten, 1, 9};
  EXPECT_EQ(code(kernels().Pack({&behind, 1}, at + 512, 10, nullptr, memory_->stream())), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(kernels().Pack({&first, 1}, at + 512, 11, &target, memory_->stream())), StatusCode::kInvalidArgument);
  const PackPart both[] = {first, shared};
  EXPECT_EQ(code(kernels().Pack(both, at + 512, 19, nullptr, memory_->stream())), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(kernels().Unpack(both, at + 512, 19, nullptr, nullptr, nullptr, memory_->stream())),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Fetch(at, 4096), Bytes(4096, 0xAA));
}

}  // namespace kintsugi
