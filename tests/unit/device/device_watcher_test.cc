#include "runtime/device/device_watcher.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "runtime/device/nvml.h"
#include "tests/support/memory_log.h"

namespace kintsugi::device {
namespace {

using namespace std::chrono_literals;

// Events as they come, for a test to wait for.
class Inbox {
 public:
  std::function<void(const DeviceEvent&)> callback() {
    return [this](const DeviceEvent& event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
      changed_.notify_all();
    };
  }
  std::vector<DeviceEvent> Wait(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 30s, [&] { return events_.size() >= count; });
    return events_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<DeviceEvent> events_;
};

std::vector<std::unique_ptr<DeviceSource>> Only(std::unique_ptr<DeviceSource> source) {
  std::vector<std::unique_ptr<DeviceSource>> sources;
  sources.push_back(std::move(source));
  return sources;
}

TEST(KernelLogSource, TellsXidsWithTheirDevice) {
  const std::string path = testing::TempDir() + "kintsugi_kmsg_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int writer = open(path.c_str(), O_RDWR | O_CLOEXEC);
  Inbox inbox;
  DeviceWatcher watcher(
      Only(KernelLogSource([](const std::string& pci) { return pci == "0000:3b:00" ? 1 : -1; }, path)),
      inbox.callback(), NullLogSink());
  const std::string text =
      "6,1,2,-;usb 1-1: new device\n4,2,3,-;NVRM: Xid (PCI:0000:3b:00): 95, pid=12, name=x\n4,3,4,-;NVRM: Xid "
      "(PCI:0000:99:00): 13, pid=1\n";
  ASSERT_EQ(write(writer, text.data(), 40), 40);  // a line that comes in two pieces
  ASSERT_EQ(write(writer, text.data() + 40, text.size() - 40), static_cast<ssize_t>(text.size() - 40));
  const auto events = inbox.Wait(2);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].number, 95);
  EXPECT_EQ(events[0].device, 1);
  EXPECT_EQ(events[0].pid, 12);
  EXPECT_EQ(events[0].source, "kernel log");
  EXPECT_EQ(events[1].number, 13);
  EXPECT_EQ(events[1].device, -1);
  watcher.Stop();
  close(writer);
  unlink(path.c_str());
}

TEST(DeviceWatcher, SaysWhyASourceIsLostAndGoesOnWithTheOthers) {
  const auto log = std::make_shared<MemoryLogSink>();
  {
    DeviceWatcher watcher(Only(KernelLogSource(nullptr, "/nowhere/kmsg")), nullptr, log);
    for (int i = 0; i < 3000 && log->lines().empty(); ++i) usleep(10000);
  }
  ASSERT_EQ(log->lines().size(), 1u);
  EXPECT_NE(log->lines()[0].find("/nowhere/kmsg"), std::string::npos) << log->lines()[0];
}

// A driver's call that does not come back until the test lets it.
class Stuck final : public DeviceSource {
 public:
  explicit Stuck(std::shared_ptr<std::atomic<bool>> let_go) : let_go_(std::move(let_go)) {}
  std::string name() const override { return "stuck"; }
  Status Open() override { return Status::Ok(); }
  Status Wait(Duration, std::vector<DeviceEvent>* events) override {
    while (!*let_go_) usleep(1000);
    events->push_back({});
    return Status::Ok();
  }

 private:
  const std::shared_ptr<std::atomic<bool>> let_go_;
};

TEST(DeviceWatcher, NamesASourceThatIsStuckOnceAndEndsWithoutIt) {
  const auto let_go = std::make_shared<std::atomic<bool>>(false);
  std::atomic<int> told{0};
  {
    DeviceWatcher watcher(
        Only(std::make_unique<Stuck>(let_go)), [&](const DeviceEvent&) { ++told; }, NullLogSink());
    EXPECT_TRUE(watcher.NewlyStuck(SteadyClock::SteadyNow()).empty());
    std::vector<std::string> stuck;
    for (int i = 0; i < 3000 && stuck.empty(); ++i) {
      usleep(1000);
      stuck = watcher.NewlyStuck(SteadyClock::SteadyNow() + kWatchStuck);
    }
    EXPECT_EQ(stuck, std::vector<std::string>{"stuck"});
    EXPECT_TRUE(watcher.NewlyStuck(SteadyClock::SteadyNow() + kWatchStuck).empty());
  }
  *let_go = true;
  usleep(20000);
  EXPECT_EQ(told, 0) << "an event was told after the end";
}

class NvmlTest : public testing::Test {
 protected:
  NvmlTest() {
    void* library = dlopen(FAKE_NVML, RTLD_NOW);
    event_ = reinterpret_cast<void (*)(int, unsigned long long, unsigned long long)>(dlsym(library, "fakeNvmlEvent"));
    set_ = reinterpret_cast<void (*)(const char*, int, int)>(dlsym(library, "fakeNvmlSet"));
    nvml_ = Nvml::Load(FAKE_NVML).value();
    for (int device : {0, 1})
      for (const char* what : {"recovery", "remap failed", "ecc", "wait"}) set_(what, device, 0);
  }
  void (*event_)(int, unsigned long long, unsigned long long);
  void (*set_)(const char*, int, int);
  std::shared_ptr<Nvml> nvml_;
};

TEST_F(NvmlTest, TellsXidsAndChangesOfTheRecoveryAction) {
  set_("recovery", 0, 3);  // before the run: no news
  Inbox inbox;
  DeviceWatcher watcher(Only(NvmlSource(nvml_, 1h)), inbox.callback(), NullLogSink());
  event_(1, 0x8, 94);
  auto events = inbox.Wait(1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].number, 94);
  EXPECT_EQ(events[0].device, 1);
  EXPECT_EQ(events[0].source, "nvml");
  set_("recovery", 1, 2);
  event_(1, 0x8000, 0);
  event_(1, 0x8000, 0);  // told once
  event_(0, 0x4000, 0);
  events = inbox.Wait(3);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].kind, EventKind::kRecoveryAction);
  EXPECT_EQ(events[1].number, 2);
  EXPECT_EQ(events[2].kind, EventKind::kLost);
  EXPECT_EQ(events[2].device, 0);
}

TEST_F(NvmlTest, FindsByPollingWhatNoEventTells) {
  Inbox inbox;
  DeviceWatcher watcher(Only(NvmlSource(nvml_, 1ms)), inbox.callback(), NullLogSink());
  event_(0, 0x8, 43);  // the source is open
  inbox.Wait(1);
  set_("remap failed", 0, 1);
  set_("ecc", 1, 15);
  const auto events = inbox.Wait(3);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].number + events[2].number, 64) << "a failed remapping and a lost device";
  EXPECT_NE(events[1].kind == EventKind::kLost, events[2].kind == EventKind::kLost);
}

TEST_F(NvmlTest, FindsADeviceByItsAddress) {
  EXPECT_EQ(nvml_->FindByPci("0000:3b:00"), 1);
  EXPECT_EQ(nvml_->FindByPci("0000:99:00"), -1);
}

TEST(Nvml, ThatIsMissingSaysSo) {
  const Status status = Nvml::Load("/nowhere/libnvidia-ml.so.1").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("KINTSUGI_NVML_LIBRARY"), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace kintsugi::device
