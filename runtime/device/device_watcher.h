// DeviceWatcher: asks sources of device events, each on a thread of its own, because a call into a sick device's driver
// may block for seconds.
//
// Threads: the callback runs on a source's thread; none runs after Stop. Stop waits for threads at most kWatchStopLimit
// and leaves behind one that is stuck in its driver.
// Ownership: sources are owned.
// Errors: a source that cannot be opened or fails is dropped, and `log` says why once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/device_event.h"

namespace kintsugi::device {

class DeviceSource {
 public:
  virtual ~DeviceSource() = default;
  virtual std::string name() const = 0;
  virtual Status Open() = 0;
  // Waits for events, about `limit` at most; fills in all but `source`. An error ends the source.
  virtual Status Wait(Duration limit, std::vector<DeviceEvent>* events) = 0;
};

inline constexpr Duration kWatchWait = std::chrono::milliseconds(250);
inline constexpr Duration kWatchStopLimit = std::chrono::seconds(2);
// A source that has not come back for so long is stuck, and that is said.
inline constexpr Duration kWatchStuck = std::chrono::seconds(5);

class KINTSUGI_EXPORT DeviceWatcher {
 public:
  DeviceWatcher(std::vector<std::unique_ptr<DeviceSource>> sources, std::function<void(const DeviceEvent&)> callback,
                std::shared_ptr<LogSink> log);
  ~DeviceWatcher();
  DeviceWatcher(const DeviceWatcher&) = delete;
  DeviceWatcher& operator=(const DeviceWatcher&) = delete;

  void Stop();
  // Sources that have been inside one call for longer than kWatchStuck; each is named once.
  std::vector<std::string> NewlyStuck(TimePoint now);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

// The kernel's log: /dev/kmsg, or another file of its lines. `find_device` turns "0000:3b:00" into an index, or -1.
KINTSUGI_EXPORT std::unique_ptr<DeviceSource> KernelLogSource(std::function<int(const std::string&)> find_device,
                                                              std::string path = "/dev/kmsg");

}  // namespace kintsugi::device
