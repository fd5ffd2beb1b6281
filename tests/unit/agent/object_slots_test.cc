// ObjectSlots: the newest two steps are there, for this process and the next.
#include "runtime/agent/object_slots.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>

namespace kintsugi {
namespace {

// What two ranks have of one object each, of `size` bytes.
std::vector<RankObjects> Bytes(uint64_t step, size_t size) {
  const auto of = [&](uint8_t byte) { return std::make_shared<const std::vector<uint8_t>>(size, byte); };
  return {{Rank(0), {{"object", of(static_cast<uint8_t>(step))}}}, {Rank(2), {{"object", of(0xff)}}}};
}

bool operator==(const std::vector<RankObjects>& a, const std::vector<RankObjects>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const RankObjects& x, const RankObjects& y) {
    return x.rank == y.rank && JoinMirrored(x.objects) == JoinMirrored(y.objects);
  });
}

TEST(ObjectSlots, HoldsTheNewestTwoSteps) {
  ObjectSlots slots = ObjectSlots::Create(10).value();
  EXPECT_FALSE(slots.Read(Step(0)).ok());
  for (uint64_t step = 0; step < 50; ++step) {
    EXPECT_FALSE(slots.Write(Step(step), Bytes(step, 7 * step)).value());
    for (uint64_t other = 0; other < 52; ++other) {
      const auto read = slots.Read(Step(other));
      const bool there = other <= step && other + 2 > step;
      ASSERT_EQ(read.ok(), there) << step << " " << other;
      if (there) {
        EXPECT_TRUE(*read == Bytes(other, 7 * other));
      }
    }
  }
}

TEST(ObjectSlots, ReadsWhatWasWrittenLastOfAStepAndKeepsWhatWasBeforeUntilItIsWhole) {
  ObjectSlots slots = ObjectSlots::Create(10).value();
  (void)slots.Write(Step(6), Bytes(6, 100)).value();
  (void)slots.Write(Step(7), Bytes(7, 100)).value();
  (void)slots.Write(Step(7), Bytes(70, 90), /*ahead=*/true).value();
  EXPECT_TRUE(slots.Read(Step(7)).value() == Bytes(70, 90));
  EXPECT_TRUE(slots.IsAhead(Step(7)));
  constexpr uint64_t kRefreshed = 2 * (90 + 16 + 6);  // with what frames them
  // A process that was killed while it wrote: the slot names no step, and the bytes before are found.
  SharedMemory view = SharedMemory::Open(UniqueFd(dup(slots.fd()))).value();
  auto* words = static_cast<uint64_t*>(view.memory().data);
  for (uint64_t i = 0; i < view.memory().size_bytes / 8; ++i)
    if (words[i] == 8 && words[i + 1] == kRefreshed) words[i] = 0;
  EXPECT_TRUE(slots.Read(Step(7)).value() == Bytes(7, 100));
  EXPECT_FALSE(slots.IsAhead(Step(7)));
}

TEST(ObjectSlots, KeepsARefreshedStepBesideTheNextAndAStepThatWasGoneBackTo) {
  ObjectSlots slots = ObjectSlots::Create(10).value();
  for (uint64_t step = 1; step < 20; ++step) {
    (void)slots.Write(Step(step), Bytes(step, 50)).value();
    if (step > 1) {
      EXPECT_TRUE(slots.Read(Step(step - 1)).value() == Bytes(step + 99, 60)) << step;
    }
    (void)slots.Write(Step(step), Bytes(step + 100, 60), true).value();
    EXPECT_TRUE(slots.Read(Step(step)).value() == Bytes(step + 100, 60));
  }
  (void)slots.Write(Step(20), Bytes(20, 50)).value();
  (void)slots.Write(Step(19), Bytes(19, 50)).value();  // update 20 was given up
  EXPECT_TRUE(slots.Read(Step(19)).value() == Bytes(19, 50));
  EXPECT_FALSE(slots.Read(Step(20)).ok());
}

TEST(ObjectSlots, GrowsAndKeepsTheStepBefore) {
  ObjectSlots slots = ObjectSlots::Create(10).value();
  (void)slots.Write(Step(6), Bytes(6, 100)).value();
  EXPECT_TRUE(slots.Write(Step(7), Bytes(7, 1'000'000)).value());
  EXPECT_TRUE(slots.Read(Step(6)).value() == Bytes(6, 100));
  EXPECT_TRUE(slots.Read(Step(7)).value() == Bytes(7, 1'000'000));
  EXPECT_FALSE(slots.Write(Step(8), Bytes(8, 1'000'000)).value());
}

TEST(ObjectSlots, IsFoundByTheNextProcess) {
  UniqueFd file;
  {
    ObjectSlots slots = ObjectSlots::Create(10).value();
    (void)slots.Write(Step(3), Bytes(3, 30)).value();
    file.Reset(dup(slots.fd()));
  }
  ObjectSlots again = ObjectSlots::Open(std::move(file)).value();
  EXPECT_TRUE(again.Read(Step(3)).value() == Bytes(3, 30));
  EXPECT_FALSE(again.Write(Step(4), Bytes(4, 40)).value());
  EXPECT_TRUE(again.Read(Step(3)).value() == Bytes(3, 30));
}

TEST(ObjectSlots, RefusesAnotherFile) {
  for (const uint64_t size : {1, 64, 4096, 1 << 20}) {
    const SharedMemory other = SharedMemory::Allocate(size).value();
    EXPECT_EQ(ObjectSlots::Open(UniqueFd(dup(other.memory().shared_fd))).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(ObjectSlots::Open(UniqueFd()).ok());
  UniqueFd unsealed(memfd_create("unsealed", 0));
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 20), 0);
  EXPECT_FALSE(ObjectSlots::Open(std::move(unsealed)).ok()) << "it might shrink under the mapping";
}

TEST(ObjectSlots, WritesWhatIsSharedOnce) {
  ObjectSlots slots = ObjectSlots::Create(1 << 20).value();
  const auto large = std::make_shared<const std::vector<uint8_t>>(300'000, uint8_t{7});
  const auto at = [&](uint64_t step) {  // a small object that changes its size lies behind the large one
    auto small = std::make_shared<const std::vector<uint8_t>>(step, static_cast<uint8_t>(step));
    return std::vector<RankObjects>{{Rank(1), {{"a", small}, {"large", large}}}};
  };
  (void)slots.Write(Step(1), at(1)).value();
  (void)slots.Write(Step(2), at(2)).value();
  SharedMemory view = SharedMemory::Open(UniqueFd(dup(slots.fd()))).value();
  auto* const bytes = static_cast<uint8_t*>(view.memory().data);
  const auto marked = static_cast<size_t>(std::find(bytes, bytes + view.memory().size_bytes, uint8_t{7}) - bytes) + 1000;
  ASSERT_EQ(bytes[marked], 7);
  bytes[marked] = 8;
  for (uint64_t step = 3; step <= 6; ++step) {
    (void)slots.Write(Step(step), at(step)).value();
    EXPECT_EQ(*slots.Read(Step(step)).value().at(0).objects.at(0).bytes, std::vector<uint8_t>(step, static_cast<uint8_t>(step)));
  }
  EXPECT_EQ(bytes[marked], 8) << "the bytes that lie there are not written again";
}

// A file that a crashed process scribbled on: sizes beyond the file are not believed.
TEST(ObjectSlots, BelievesNoSizeBeyondTheFile) {
  ObjectSlots slots = ObjectSlots::Create(10).value();
  (void)slots.Write(Step(3), Bytes(3, 30)).value();
  SharedMemory view = SharedMemory::Open(UniqueFd(dup(slots.fd()))).value();
  auto* words = static_cast<uint64_t*>(view.memory().data);
  for (uint64_t i = 0; i < view.memory().size_bytes / 8; ++i)
    if (words[i] == 2 * (30 + 16 + 6)) words[i] = UINT64_MAX;
  EXPECT_FALSE(slots.Read(Step(3)).ok());
}

}  // namespace
}  // namespace kintsugi
