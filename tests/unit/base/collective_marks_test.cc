// Marks of collectives: what is read is what was entered, however many threads enter.
#include "runtime/base/collective_marks.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

namespace kintsugi {
namespace {

std::unique_ptr<CollectiveMarks> Made() { return std::move(CollectiveMarks::Create()).value(); }

const std::vector<int32_t> kRanks = {4, 5, 6};

TEST(CollectiveMarks, KeepTheNewestOfAGroup) {
  const auto marks = Made();
  const int group = marks->Open("dp", kRanks, 5);
  for (uint64_t i = 1; i <= 100; ++i) {
    const uint64_t ticket = marks->Enter(group, {CollectiveKind::kAllReduce, 7, 1, -1, i, 1});
    if (i < 100) marks->Leave(group, ticket, i == 99);
  }
  const auto views = marks->Read();
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].name, "dp");
  EXPECT_EQ(views[0].ranks, kRanks);
  EXPECT_EQ(views[0].own_rank, 5);
  EXPECT_EQ(views[0].entered, 100u);
  ASSERT_EQ(views[0].newest.size(), MarkMemory::kRecords);
  EXPECT_EQ(views[0].newest.front().number, 37u);
  const CollectiveMarks::Mark& newest = views[0].newest.back();
  EXPECT_EQ(newest.number, 100u);
  EXPECT_EQ(newest.call.size, 100u);
  EXPECT_EQ(newest.call.root, -1);
  EXPECT_EQ(newest.left_ns, 0u);
  EXPECT_TRUE(views[0].newest[62].failed);
  EXPECT_FALSE(views[0].newest[61].failed);
}

TEST(CollectiveMarks, SendsHaveNumbersOfTheirOwn) {
  const auto marks = Made();
  const int group = marks->Open("pp", kRanks, 4);
  marks->Leave(group, marks->Enter(group, {CollectiveKind::kBarrier}), false);
  const uint64_t ticket = marks->Enter(group, {CollectiveKind::kReceive, 7, 0, 2, 10, 1});
  marks->Wait(group, ticket);
  const auto view = marks->Read().at(0);
  EXPECT_EQ(view.entered, 1u);
  ASSERT_EQ(view.newest.size(), 2u);
  EXPECT_EQ(view.newest[1].number, 1u);
  EXPECT_EQ(view.newest[1].call.root, 2);
  EXPECT_TRUE(view.newest[1].waited);
  EXPECT_FALSE(view.newest[0].waited);
}

TEST(CollectiveMarks, AGroupThatIsOpenedAgainBeginsAnew) {
  const auto marks = Made();
  const int group = marks->Open("dp", kRanks, 4);
  const uint64_t old = marks->Enter(group, {CollectiveKind::kAllReduce});
  EXPECT_EQ(marks->Open("dp", kRanks, 4), group);
  marks->Enter(group, {CollectiveKind::kBroadcast});
  marks->Leave(group, old, false);  // of the old connections: no mark is left by it
  const auto view = marks->Read().at(0);
  EXPECT_EQ(view.entered, 1u);
  ASSERT_EQ(view.newest.size(), 1u);
  EXPECT_EQ(view.newest[0].call.kind, CollectiveKind::kBroadcast);
  EXPECT_EQ(view.newest[0].left_ns, 0u);
}

TEST(CollectiveMarks, RanksOfOneProcessHaveGroupsOfTheirOwn) {
  const auto marks = Made();
  EXPECT_NE(marks->Open("dp", kRanks, 4), marks->Open("dp", kRanks, 5));
}

TEST(CollectiveMarks, ThereIsRoomForManyGroupsAndNoneForMore) {
  const auto marks = Made();
  for (size_t i = 0; i < MarkMemory::kGroups; ++i) EXPECT_GE(marks->Open("g" + std::to_string(i), kRanks, 4), 0);
  const int none = marks->Open("one too many", kRanks, 4);
  EXPECT_EQ(none, -1);
  marks->Leave(none, marks->Enter(none, {CollectiveKind::kBarrier}), false);
  EXPECT_EQ(marks->Read().size(), MarkMemory::kGroups);
}

TEST(CollectiveMarks, ThreadsTakeNumbersOfTheirOwn) {
  const auto marks = Made();
  const int group = marks->Open("dp", kRanks, 4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i)
        marks->Leave(group, marks->Enter(group, {CollectiveKind::kAllReduce, 7, 1, -1, 8, 1}), false);
    });
  for (int i = 0; i < 200; ++i) {
    const std::vector<CollectiveMarks::GroupView> seen = marks->Read();
    for (const CollectiveMarks::Mark& mark : seen.at(0).newest) {
      EXPECT_EQ(mark.call.kind, CollectiveKind::kAllReduce);
      EXPECT_EQ(mark.call.size, 8u);
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(marks->Read().at(0).entered, 20000u);
}

TEST(CollectiveMarks, AreSeenByAnotherProcessThroughTheirFile) {
  const std::string folder = ::testing::TempDir() + "/marks_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string path = folder + "/one.marks";
  auto made = CollectiveMarks::CreateIn(path);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_FALSE(CollectiveMarks::CreateIn(folder + "/none/one.marks").ok());
  auto opened = CollectiveMarks::OpenFrom(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value()->memory().stack_fd, -1);
  const int group = made.value()->Open("dp", kRanks, 5);
  const uint64_t ticket = made.value()->Enter(group, {CollectiveKind::kBarrier, 0, 0, -1, 0, 0});
  ASSERT_EQ(opened.value()->Read().size(), 1u);
  EXPECT_EQ(opened.value()->Read()[0].newest.at(0).left_ns, 0u);
  made.value()->Leave(group, ticket, false);
  EXPECT_NE(opened.value()->Read()[0].newest.at(0).left_ns, 0u);
  // Of another build, as far as its size shows.
  ASSERT_EQ(truncate(path.c_str(), sizeof(MarkMemory) - 64), 0);
  EXPECT_EQ(CollectiveMarks::OpenFrom(path).status().code(), StatusCode::kInvalidArgument);
  unlink(path.c_str());
  rmdir(folder.c_str());
}

}  // namespace
}  // namespace kintsugi
