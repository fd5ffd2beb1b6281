#include "runtime/device/device_watcher.h"

#include <atomic>
#include <deque>
#include <thread>

#include "runtime/base/mutex.h"

namespace kintsugi::device {

struct DeviceWatcher::Shared {
  struct One {
    std::unique_ptr<DeviceSource> source;
    std::atomic<int64_t> called_ns{0};  // since when inside a call; 0: not
    bool told_stuck = false;
  };

  void Run(One& one) {
    const std::string name = one.source->name();
    Status status = Guarded(one, [&] { return one.source->Open(); });
    while (status.ok() && !stopping) {
      std::vector<DeviceEvent> events;
      status = Guarded(one, [&] { return one.source->Wait(kWatchWait, &events); });
      for (DeviceEvent& event : events) {
        event.source = name;
        const MutexLock lock(mutex);
        if (callback) callback(event);
      }
    }
    if (!status.ok() && !stopping)
      log->Write(LogLevel::kWarning, LogLine("device_source_lost", {{"source", name}, {"why", status.message()}}));
    const MutexLock lock(mutex);
    --running;
    changed.NotifyAll();
  }

  template <typename Call>
  static Status Guarded(One& one, const Call& call) {
    one.called_ns = SteadyClock::SteadyNow().nanoseconds();
    const Status status = call();
    one.called_ns = 0;
    return status;
  }

  std::deque<One> all;
  std::shared_ptr<LogSink> log;
  std::atomic<bool> stopping{false};
  Mutex mutex;
  CondVar changed;
  std::function<void(const DeviceEvent&)> callback KINTSUGI_GUARDED_BY(mutex);  // null once stopped
  int running KINTSUGI_GUARDED_BY(mutex) = 0;
};

DeviceWatcher::DeviceWatcher(std::vector<std::unique_ptr<DeviceSource>> sources,
                             std::function<void(const DeviceEvent&)> callback, std::shared_ptr<LogSink> log)
    : shared_(std::make_shared<Shared>()) {
  shared_->log = std::move(log);
  {
    const MutexLock lock(shared_->mutex);
    shared_->callback = std::move(callback);
    shared_->running = static_cast<int>(sources.size());
  }
  for (auto& source : sources) shared_->all.emplace_back().source = std::move(source);
  for (Shared::One& one : shared_->all) std::thread([shared = shared_, &one] { shared->Run(one); }).detach();
}

DeviceWatcher::~DeviceWatcher() { Stop(); }

void DeviceWatcher::Stop() {
  shared_->stopping = true;
  MutexLock lock(shared_->mutex);
  shared_->callback = nullptr;
  shared_->changed.WaitFor(lock, kWatchStopLimit,
                           [this]() KINTSUGI_REQUIRES(shared_->mutex) { return shared_->running == 0; });
}

std::vector<std::string> DeviceWatcher::NewlyStuck(TimePoint now) {
  std::vector<std::string> names;
  for (Shared::One& one : shared_->all) {
    const int64_t since = one.called_ns;
    if (since == 0 || now - TimePoint(Duration(since)) < kWatchStuck || std::exchange(one.told_stuck, true)) continue;
    names.push_back(one.source->name());
  }
  return names;
}

}  // namespace kintsugi::device
