// A node's devices: what a fault does to the processes that are on one, and who gets which device next. Faults come through
// the pipe that ranks have.
#include "runtime/launcher/workers/device_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/device/device_event.h"

namespace kintsugi {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Lines final : LogSink {
  void Write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

class Devices : public ::testing::Test {
 protected:
  static constexpr int kPidOfRankOne = 4711;

  // One for each of so many ranks, and none is watched.
  void Make(int ranks) {
    const auto find_rank = [](int pid) { return pid == kPidOfRankOne ? 1 : -1; };
    const auto on_fault = [this](const std::vector<int>& local_ranks, const std::string& why) {
      for (const int rank : local_ranks) ended.push_back(rank);
      reasons.push_back(why);
    };
    ASSERT_TRUE(guard.SetUp({0, ranks}, find_rank, on_fault).ok());
  }
  // A process writes this into the pipe, in one piece or two.
  void Write(const std::string& text) {
    ASSERT_EQ(write(guard.fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    io.restart();
    io.poll();
  }
  void Fault(int xid, int device, int pid = 0) {
    device::DeviceEvent event;
    event.number = xid;
    event.device = device;
    event.pid = pid;
    Write(device::SimulatedLine(event) + "\n");
  }

  std::vector<int> ended;
  std::vector<std::string> reasons;
  boost::asio::io_context io;
  std::shared_ptr<Lines> log = std::make_shared<Lines>();
  DeviceGuard guard{io, log};
};

constexpr int kContained = 94, kUncontained = 95, kRowRemap = 63;

TEST_F(Devices, EndTheProcessThatAFaultNames) {
  Make(2);
  Fault(kContained, 1, kPidOfRankOne);
  EXPECT_THAT(ended, ElementsAre(1));
  EXPECT_THAT(reasons, ElementsAre(HasSubstr("device 1: ")));
  EXPECT_EQ(guard.pool().Assign(1), 1) << "the device is as good as before";
}

TEST_F(Devices, EndAllThatAreOnOneWhereNoProcessIsNamed) {
  Make(2);
  Fault(kContained, 0);
  EXPECT_THAT(ended, ElementsAre(0));
}

TEST_F(Devices, FindTheDeviceByTheProcess) {
  Make(2);
  Fault(kContained, -1, kPidOfRankOne);
  EXPECT_THAT(ended, ElementsAre(1));
  EXPECT_THAT(reasons, ElementsAre(HasSubstr("device 1: ")));
}

TEST_F(Devices, ThatAreLostAreGivenToNobodyAndEndTheirProcessesOnce) {
  Make(2);
  Fault(kUncontained, 1);
  ASSERT_THAT(ended, ElementsAre(1));
  EXPECT_TRUE(guard.pool().IsExcluded(1));
  EXPECT_EQ(guard.pool().Assign(1), std::nullopt) << "the other has a rank of its own";
  Fault(kUncontained, 1);
  EXPECT_THAT(ended, SizeIs(1)) << "whoever was on it has been ended";
  EXPECT_THAT(log->lines, SizeIs(2)) << "and each is said";
}

TEST_F(Devices, ThatOnlyWarnEndNobody) {
  Make(2);
  Fault(kRowRemap, 0);
  EXPECT_THAT(ended, IsEmpty());
  EXPECT_THAT(log->lines, ElementsAre(AllOf(HasSubstr("device_fault"), HasSubstr("device=0"))));
}

TEST_F(Devices, OfOthersAreNobodysHere) {
  Make(2);
  Fault(kUncontained, 7);
  Fault(kContained, -1, 1);
  EXPECT_THAT(ended, IsEmpty());
}

TEST_F(Devices, AreToldOfInWholeLines) {
  Make(2);
  device::DeviceEvent event;
  event.number = kContained;
  event.device = 1;
  const std::string line = device::SimulatedLine(event);
  Write(line.substr(0, 5));
  EXPECT_THAT(ended, IsEmpty());
  Write(line.substr(5) + "\n");
  EXPECT_THAT(ended, ElementsAre(1));
  Write("no event at all\n" + std::string(3000, 'x') + "\n" + line + "\n");
  EXPECT_THAT(ended, ElementsAre(1, 1)) << "what is no event is nothing, and the next line counts";
}

TEST_F(Devices, WithoutAWatchChangeNoEnvironment) {
  Make(2);
  EXPECT_EQ(guard.devices(), 0);
  EXPECT_TRUE(guard.Environment(0).empty());
  guard.Poll(SteadyClock::SteadyNow());
}

TEST_F(Devices, AreSetUpOnceAndForSomebody) {
  EXPECT_THROW((void)guard.SetUp({0, 1}, nullptr, nullptr), CheckFailure);
  Make(1);
  EXPECT_THROW(Make(1), CheckFailure);
}

}  // namespace
}  // namespace kintsugi
