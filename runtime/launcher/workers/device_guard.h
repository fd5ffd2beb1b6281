// DeviceGuard: a node's devices as its launcher sees them: which rank has which, and what happens to them.
//
// What: simulated faults come through a pipe that every rank's process has; where there are devices NVML and the kernel's log are
// asked too. An event is handed on with its verdict and with the ranks that it reaches; an excluded device is given to
// nobody. Devices are numbered as a process sees them that has not moved.
// Threads: one, which runs the io_context; the watcher's threads post to it.
// Errors: SetUp: a pipe that cannot be made; kInvalidArgument: more devices than processes see.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/unique_fd.h"
#include "runtime/device/device_pool.h"
#include "runtime/device/device_watcher.h"
#include "runtime/device/nvml.h"
#include "runtime/device/visible_devices.h"

namespace kintsugi {

struct DeviceGuardOptions {
  // 0: one for each rank of the node, and none is watched; -1: those that NVML finds and CUDA_VISIBLE_DEVICES leaves, if any.
  int devices = 0;
  int ranks = 1;  // of the node
};

class DeviceGuard {
 public:
  // `local_ranks`: whose processes must end, with the text for their exit's cause.
  using OnFault = std::function<void(const std::vector<int>& local_ranks, const std::string& why)>;
  // The rank of the node whose process has this pid, or -1.
  using FindRank = std::function<int(int pid)>;

  DeviceGuard(boost::asio::io_context& io, std::shared_ptr<LogSink> log);
  ~DeviceGuard();

  Status SetUp(const DeviceGuardOptions& options, FindRank find_rank, OnFault on_fault);
  // Where processes tell simulated faults.
  int fd() const { return write_fd_.get(); }
  device::DevicePool& pool() { return *pool_; }
  // Of the node, which are watched; 0: none is.
  int devices() const { return watched_; }
  // What else a rank's process is told of them, by the names of variables: where it has moved, that it finds its device where it looks for it.
  std::map<std::string, std::string> Environment(int local_rank);
  // Says which watchers are stuck.
  void Poll(TimePoint now);

 private:
  void Read();
  void OnEvent(const device::DeviceEvent& event);
  void Watch(std::shared_ptr<const device::Nvml> nvml);

  boost::asio::io_context& io_;
  const std::shared_ptr<LogSink> log_;
  FindRank find_rank_;
  OnFault on_fault_;
  std::optional<device::DevicePool> pool_;
  std::optional<device::VisibleDevices> visible_;
  int watched_ = 0;
  UniqueFd write_fd_;
  boost::asio::posix::stream_descriptor pipe_;
  std::array<char, 4096> bytes_{};
  std::string line_;
  std::shared_ptr<bool> lives_ = std::make_shared<bool>(true);
  std::unique_ptr<device::DeviceWatcher> watcher_;
};

}  // namespace kintsugi
