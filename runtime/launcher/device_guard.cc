#include "runtime/launcher/device_guard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/device/nvml.h"

namespace kintsugi {

using device::Action;

DeviceGuard::DeviceGuard(boost::asio::io_context& io, std::shared_ptr<LogSink> log)
    : io_(io), log_(std::move(log)), pipe_(io) {}

DeviceGuard::~DeviceGuard() { *lives_ = false; }

Status DeviceGuard::SetUp(const DeviceGuardOptions& options, FindRank find_rank, OnFault on_fault) {
  KINTSUGI_CHECK(!pool_ && find_rank && on_fault, "devices are watched twice, or for nobody");
  find_rank_ = std::move(find_rank);
  on_fault_ = std::move(on_fault);
  pool_.emplace(options.devices > 0 ? options.devices : options.ranks, options.ranks);
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
    return {StatusCode::kResourceExhausted, std::string("a pipe for device faults: ") + std::strerror(errno)};
  pipe_.assign(fds[0]);
  write_fd_ = UniqueFd(fds[1]);
  Read();
  if (options.devices > 0) Watch();
  return Status::Ok();
}

void DeviceGuard::Watch() {
  std::vector<std::unique_ptr<device::DeviceSource>> sources;
  std::function<int(const std::string&)> find_device;
  if (auto nvml = device::Nvml::Load(); nvml.ok()) {
    sources.push_back(device::NvmlSource(*nvml));
    find_device = [nvml = *nvml](const std::string& pci) { return nvml->FindByPci(pci); };
  } else {
    log_->Write(LogLevel::kWarning,
                LogLine("device_source_lost", {{"source", "nvml"}, {"why", nvml.status().message()}}));
  }
  sources.push_back(device::KernelLogSource(std::move(find_device)));
  const auto tell = [this, lives = lives_](const device::DeviceEvent& event) {
    boost::asio::post(io_, [this, lives, event] {
      if (*lives) OnEvent(event);
    });
  };
  watcher_ = std::make_unique<device::DeviceWatcher>(std::move(sources), tell, log_);
}

void DeviceGuard::Poll(TimePoint now) {
  if (!watcher_) return;
  for (const std::string& source : watcher_->NewlyStuck(now))
    log_->Write(LogLevel::kWarning,
                LogLine("device_source_stuck", {{"source", source}, {"why", "its driver does not answer"}}));
}

void DeviceGuard::Read() {
  pipe_.async_read_some(boost::asio::buffer(bytes_), [this](const boost::system::error_code& error, size_t size) {
    if (error) return;
    for (size_t i = 0; i < size; ++i) {
      if (bytes_[i] != '\n') {
        if (line_.size() <= device::kDeviceLineBytesMax) line_ += bytes_[i];
        continue;
      }
      if (const auto event = device::ParseSimulatedLine(line_)) OnEvent(*event);
      line_.clear();
    }
    Read();
  });
}

void DeviceGuard::OnEvent(const device::DeviceEvent& event) {
  const device::Verdict verdict = device::Classify(event);
  const int rank = event.pid > 0 ? find_rank_(event.pid) : -1;
  const int at = event.device >= 0 ? event.device : rank >= 0 ? pool_->DeviceOf(rank) : -1;
  log_->Write(verdict.action == Action::kNothing ? LogLevel::kInfo : LogLevel::kWarning,
              LogLine("device_fault", {{"device", std::to_string(at)},
                                       {"source", event.source},
                                       {"fault", verdict.text},
                                       {"action", std::string(device::ActionName(verdict.action))},
                                       {"text", event.text}}));
  if (verdict.action <= Action::kWatch || at < 0 || at >= pool_->devices()) return;
  const std::string why = "device " + std::to_string(at) + ": " + verdict.text;
  std::vector<int> ranks = pool_->RanksOn(at);
  if (verdict.action == Action::kRestartProcess) {
    if (rank >= 0) ranks = {rank};
  } else if (!pool_->Exclude(at, verdict.text)) {
    return;  // its processes were ended when it was excluded
  }
  on_fault_(ranks, why);
}

}  // namespace kintsugi
