#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/base/unique_fd.h"
#include "runtime/device/device_watcher.h"

namespace kintsugi::device {
namespace {

class KernelLog final : public DeviceSource {
 public:
  KernelLog(std::function<int(const std::string&)> find_device, std::string path)
      : find_device_(std::move(find_device)), path_(std::move(path)) {}

  std::string name() const override { return "kernel log"; }

  Status Open() override {
    fd_ = UniqueFd(open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (fd_.get() < 0)
      return {StatusCode::kUnavailable, path_ + ": " + std::strerror(errno) + "; device faults come from NVML alone"};
    // Only what happens from now on: older lines are of other runs. (A pipe has no end to go to.)
    static_cast<void>(lseek(fd_.get(), 0, SEEK_END));
    return Status::Ok();
  }

  Status Wait(Duration limit, std::vector<DeviceEvent>* events) override {
    pollfd wait{fd_.get(), POLLIN, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
    if (poll(&wait, 1, static_cast<int>(ms)) <= 0) return Status::Ok();
    std::array<char, 8192> bytes;  // the largest record that the kernel gives
    const ssize_t size = read(fd_.get(), bytes.data(), bytes.size());
    // EPIPE: records were overwritten before they were read; the next read goes on behind them.
    if (size < 0 && errno != EPIPE && errno != EAGAIN && errno != EINTR)
      return {StatusCode::kUnavailable, path_ + ": " + std::strerror(errno)};
    if (size == 0) return {StatusCode::kUnavailable, path_ + " has ended"};
    if (size > 0) TakeLines(std::string_view(bytes.data(), static_cast<size_t>(size)), events);
    return Status::Ok();
  }

 private:
  void TakeLines(std::string_view bytes, std::vector<DeviceEvent>* events) {
    for (char byte : bytes) {
      if (byte != '\n') {
        if (line_.size() < 4096) line_ += byte;
        continue;
      }
      if (auto event = ParseKernelLine(line_)) {
        event->device = find_device_ ? find_device_(event->pci) : -1;
        events->push_back(std::move(*event));
      }
      line_.clear();
    }
  }

  const std::function<int(const std::string&)> find_device_;
  const std::string path_;
  UniqueFd fd_;
  std::string line_;
};

}  // namespace

std::unique_ptr<DeviceSource> KernelLogSource(std::function<int(const std::string&)> find_device, std::string path) {
  return std::make_unique<KernelLog>(std::move(find_device), std::move(path));
}

}  // namespace kintsugi::device
