// ObjectSlots: the newest two steps are there, for this process and the next.
#include "runtime/agent/object_slots.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>

namespace kintsugi {
namespace {

std::vector<uint8_t> Bytes(uint64_t step, size_t size) {
  return std::vector<uint8_t>(size, static_cast<uint8_t>(step));
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
        EXPECT_EQ(*read, Bytes(other, 7 * other));
      }
    }
  }
}

TEST(ObjectSlots, ReadsWhatWasWrittenLastOfAStepAndKeepsWhatWasBeforeUntilItIsWhole) {
  ObjectSlots slots = ObjectSlots::Create(10).value();
  (void)slots.Write(Step(6), Bytes(6, 100)).value();
  (void)slots.Write(Step(7), Bytes(7, 100)).value();
  (void)slots.Write(Step(7), Bytes(70, 90), /*ahead=*/true).value();
  EXPECT_EQ(slots.Read(Step(7)).value(), Bytes(70, 90));
  EXPECT_TRUE(slots.IsAhead(Step(7)));
  // A process that was killed while it wrote: the slot names no step, and the bytes before are found.
  SharedMemory view = SharedMemory::Open(UniqueFd(dup(slots.fd()))).value();
  auto* words = static_cast<uint64_t*>(view.memory().data);
  for (uint64_t i = 0; i < view.memory().size_bytes / 8; ++i)
    if (words[i] == 8 && words[i + 1] == 90) words[i] = 0;
  EXPECT_EQ(slots.Read(Step(7)).value(), Bytes(7, 100));
  EXPECT_FALSE(slots.IsAhead(Step(7)));
}

TEST(ObjectSlots, KeepsARefreshedStepBesideTheNextAndAStepThatWasGoneBackTo) {
  ObjectSlots slots = ObjectSlots::Create(10).value();
  for (uint64_t step = 1; step < 20; ++step) {
    (void)slots.Write(Step(step), Bytes(step, 50)).value();
    if (step > 1) EXPECT_EQ(slots.Read(Step(step - 1)).value(), Bytes(step + 99, 60)) << step;
    (void)slots.Write(Step(step), Bytes(step + 100, 60), true).value();
    EXPECT_EQ(slots.Read(Step(step)).value(), Bytes(step + 100, 60));
  }
  (void)slots.Write(Step(20), Bytes(20, 50)).value();
  (void)slots.Write(Step(19), Bytes(19, 50)).value();  // update 20 was given up
  EXPECT_EQ(slots.Read(Step(19)).value(), Bytes(19, 50));
  EXPECT_FALSE(slots.Read(Step(20)).ok());
}

TEST(ObjectSlots, GrowsAndKeepsTheStepBefore) {
  ObjectSlots slots = ObjectSlots::Create(10).value();
  (void)slots.Write(Step(6), Bytes(6, 100)).value();
  EXPECT_TRUE(slots.Write(Step(7), Bytes(7, 1'000'000)).value());
  EXPECT_EQ(slots.Read(Step(6)).value(), Bytes(6, 100));
  EXPECT_EQ(slots.Read(Step(7)).value(), Bytes(7, 1'000'000));
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
  EXPECT_EQ(again.Read(Step(3)).value(), Bytes(3, 30));
  EXPECT_FALSE(again.Write(Step(4), Bytes(4, 40)).value());
  EXPECT_EQ(again.Read(Step(3)).value(), Bytes(3, 30));
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

// A file that a crashed process scribbled on: sizes beyond the file are not believed.
TEST(ObjectSlots, BelievesNoSizeBeyondTheFile) {
  ObjectSlots slots = ObjectSlots::Create(10).value();
  (void)slots.Write(Step(3), Bytes(3, 30)).value();
  SharedMemory view = SharedMemory::Open(UniqueFd(dup(slots.fd()))).value();
  auto* words = static_cast<uint64_t*>(view.memory().data);
  for (uint64_t i = 0; i < view.memory().size_bytes / 8; ++i)
    if (words[i] == 30) words[i] = UINT64_MAX;
  EXPECT_FALSE(slots.Read(Step(3)).ok());
}

}  // namespace
}  // namespace kintsugi
